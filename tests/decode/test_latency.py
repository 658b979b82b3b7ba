"""Timing: what runs is what is said, in turns, and medians have intervals."""

import itertools
import time

import numpy as np
import pytest

from specjax.decode import latency
from specjax.draft import base
from specjax.trees import tree as tree_lib


def watch(monkeypatch, module):
  """Keeps what a module's program returned."""
  seen, run = [], module.run

  def watched(*args, **kwargs):
    seen.append(run(*args, **kwargs))
    return seen[-1]

  monkeypatch.setattr(module, 'run', watched)
  return seen


def test_an_iteration_runs_all_nodes_and_accepts_none(tiny, monkeypatch):
  seen = watch(monkeypatch, latency.loop)
  point = latency.Point(num_nodes=5, batch=2, context=7)
  assert latency.pass_timer(tiny, point, 3)() > 0
  [state] = seen
  np.testing.assert_array_equal(state.num_steps, [3, 3])
  np.testing.assert_array_equal(state.steps.num_nodes, np.full((2, 3), 5))
  np.testing.assert_array_equal(state.steps.levels, np.full((2, 3), 4))
  np.testing.assert_array_equal(state.steps.tried, np.full((2, 3), 1))
  np.testing.assert_array_equal(state.steps.emitted, np.ones((2, 3)))
  np.testing.assert_array_equal(state.lengths, [7 + 1 + 3] * 2)
  np.testing.assert_array_equal(state.cache.length, [7 + 3] * 2)


def test_one_node_is_plain_decoding(tiny, monkeypatch):
  plain, speculative = (
    watch(monkeypatch, module) for module in (latency.baseline, latency.loop)
  )
  for num_nodes in (1, 5):
    point = latency.Point(num_nodes, batch=2, context=7)
    assert latency.pass_timer(tiny, point, 3)() > 0
  assert len(plain) == len(speculative) == 1
  np.testing.assert_array_equal(plain[0].tokens, speculative[0].tokens)
  np.testing.assert_array_equal(plain[0].num_steps, [3, 3])


@pytest.mark.parametrize(
  ('num_nodes', 'module'), [(1, 'baseline'), (5, 'loop')]
)
def test_a_larger_cache_changes_nothing_else(
  tiny, monkeypatch, num_nodes, module
):
  seen = watch(monkeypatch, getattr(latency, module))
  point = latency.Point(num_nodes, batch=2, context=7)
  for num_slots in (None, 32):
    latency.pass_timer(tiny, point, 3, num_slots=num_slots)()
  assert [state.cache.num_slots for state in seen] == [11, 32]
  few, many = (state.tokens for state in seen)
  np.testing.assert_array_equal(few, many[:, :11])
  np.testing.assert_array_equal(seen[1].num_steps, [3, 3])
  with pytest.raises(ValueError, match='at least 11, got 10'):
    latency.pass_timer(tiny, point, 3, num_slots=10)


def test_no_draft_can_be_accepted():
  tokens, lengths = np.array([[3, 4, 0], [5, 0, 0]]), np.array([2, 1])
  tree = latency._HOPELESS.propose((), (), tokens, lengths, 4)[0].tree
  np.testing.assert_array_equal(tree.tokens[:, 0], [4, 5])
  assert np.all(tree.tokens[:, 1:] < 0)
  assert np.all(tree.parents[:, 0] == tree_lib.NO_PARENT)
  assert isinstance(latency._HOPELESS, base.Drafter)


def test_visits_depend_on_each_other(tiny, monkeypatch):
  """Every visit rolls its input by the token that it chose."""
  seen = []

  def watch(name):
    visit = getattr(latency, name)

    def watched(*args):
      seen.append((name, args, visit(*args)))
      return seen[-1][2]

    monkeypatch.setattr(latency, name, watched)

  watch('_visit')
  watch('_choose')
  # The head runs in visits of large trees alone.
  assert latency.visit_timer(tiny, 2, 3, 3)() > 0
  assert latency.visit_timer(tiny, 2, 2, 3)() > 0
  assert [name for name, *_ in seen] == ['_visit', '_choose']
  matrix = np.asarray(latency.llama_model.head_matrix(tiny))
  for (_, args, found), weights in zip(seen, (matrix.T, 1), strict=True):
    x, num_steps = args[-2:]
    assert num_steps == 3
    expected = np.asarray(x)
    for _ in range(3):
      logits = expected @ weights if np.ndim(weights) else expected
      expected = np.roll(expected, logits[0].argmax(), axis=1)
    np.testing.assert_array_equal(found, expected)
    assert not np.array_equal(found, x)


def test_rounds_are_interleaved_after_warming_up():
  calls, done = [], []
  timers = [lambda i=i: calls.append(i) or float(i) for i in range(4)]
  samples = latency.interleave(timers, 20, 0, lambda: done.append(len(calls)))
  np.testing.assert_array_equal(samples, np.tile(np.arange(4.0), (20, 1)))
  assert calls[:4] == [0, 1, 2, 3]
  rounds = [tuple(calls[i : i + 4]) for i in range(4, len(calls), 4)]
  assert len(rounds) == 20
  assert all(sorted(order) == [0, 1, 2, 3] for order in rounds)
  assert len(set(rounds)) > 10
  assert done == list(range(1, 85))


def test_seconds_are_those_of_a_step():
  nap = 0.02
  run = lambda state: time.sleep(5 * nap) or state
  begin = time.perf_counter()
  found = latency._timed(run, lambda: np.ones(1), 5)
  assert nap <= found <= (time.perf_counter() - begin) / 5


@pytest.mark.parametrize('num_rounds', [6, 7, 9, 12])
def test_intervals_of_medians(num_rounds):
  """Against all ways in which times can fall below and above the median."""
  samples = np.random.default_rng(0).permutation(num_rounds)[:, None]
  found = latency.summarise(samples.astype(float))
  assert found.median == (num_rounds - 1) / 2
  assert found.first_quartile == (num_rounds - 1) / 4
  assert found.third_quartile == 3 * (num_rounds - 1) / 4
  low, high = int(found.low[0]), int(found.high[0])

  def coverage(low, high):
    sides = itertools.product((0, 1), repeat=num_rounds)
    below = np.array([sum(side) for side in sides])
    # The order statistics enclose it if as many times are below.
    return np.mean((below > low) & (below <= high))

  assert coverage(low, high) >= 0.95 > coverage(low + 1, high - 1)


def test_refusals(tiny):
  with pytest.raises(ValueError, match='at least 6 rounds, got 5'):
    latency.summarise(np.ones((5, 1)))
  with pytest.raises(ValueError, match='context of at least 1, got 0'):
    latency.pass_timer(tiny, latency.Point(1, 1, 0), 1)
  with pytest.raises(ValueError, match='num_steps of at least 1, got 0'):
    latency.pass_timer(tiny, latency.Point(1, 1, 1), 0)
  with pytest.raises(ValueError, match='batch of at least 1, got 0'):
    latency.visit_timer(tiny, 0, 1, 1)
