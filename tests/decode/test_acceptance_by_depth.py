"""Counts by depth, against loops over iterations."""

import numpy as np

from specjax.decode import acceptance, rows


def test_counts_equal_loops_and_add_up_to_the_texts():
  rng = np.random.default_rng(0)
  steps, drafted = [], 0
  for size in (7, 0, 12):
    levels = rng.integers(0, 5, size)
    tried = rng.integers(0, levels + 1)
    depth = np.maximum(tried - rng.integers(0, 2, size), 0)
    emitted = depth + 1
    if size:
      # Ends inside the accepted path.
      levels[-1], tried[-1], depth[-1], emitted[-1] = 4, 4, 3, 2
    drafted += sum(emitted) - size + bool(size)
    start = np.cumsum(emitted) - emitted
    steps.append(
      rows.StepInfo(start, levels + 1, levels, tried, depth, emitted)
    )
  found = acceptance.by_depth(steps)
  join = lambda name: np.concatenate([getattr(s, name) for s in steps])
  levels, tried, depth, emitted = map(
    join, ('levels', 'tried', 'depth', 'emitted')
  )
  for d in range(1, 5):
    assert found.proposed[d - 1] == sum(levels >= d)
    assert found.reached[d - 1] == sum((tried >= d) & (emitted >= d))
    assert found.accepted[d - 1] == sum((depth >= d) & (emitted >= d))
  assert [len(x) for x in found] == [4, 4, 4]
  assert found.accepted.sum() == drafted


def test_without_drafts_there_is_no_depth():
  none, ones = np.zeros(3, int), np.ones(3, int)
  steps = rows.StepInfo(np.arange(3), ones, none, none, none, ones)
  assert [len(x) for x in acceptance.by_depth([steps])] == [0, 0, 0]
