"""What ways to draft win, against every tree there is."""

import numpy as np
import pytest

from specjax.theory import profiles, resample
from specjax.trees import shapes

RATES = (0.1, 0.45, 0.3)
SIZES = (1, 3, 6)


def every_tree(size):
  """All shapes of a size: any node's next child, in any order."""
  found = {((-1, 0),)}
  for _ in range(size - 1):
    found = {
      (*nodes, (parent, rank))
      for nodes in found
      for parent in range(len(nodes))
      for rank in range(len(RATES))
      if (parent, rank) not in nodes
    }
  for nodes in found:
    parents, ranks = np.array(nodes).T
    yield shapes.Shape(parents, ranks)


def test_no_tree_of_a_size_and_depth_wins_more():
  found = profiles.of_rates(RATES, SIZES, level_seconds=0.5, drafter='x')
  for size in SIZES[:2]:
    best = {}
    for shape in every_tree(size):
      for depth in range(int(shape.depths.max()), size):
        won = shapes.expected_tokens(shape, RATES)
        best[depth] = max(best.get(depth, 0), won)
    for name, nodes, won, seconds in zip(
      found.names,
      found.num_nodes,
      found.tokens.value,
      found.draft_seconds,
      strict=True,
    ):
      if nodes == size and 'depth' in name:
        assert won == pytest.approx(best[int(name.split()[4])])
        assert seconds == 0.5 * int(name.split()[4])


def test_chains_take_the_best_rank():
  found = profiles.of_rates(RATES, SIZES, level_seconds=0.5, drafter='x')
  chains = [i for i, name in enumerate(found.names) if name == 'x, chain']
  np.testing.assert_array_equal(found.num_nodes[chains], SIZES)
  np.testing.assert_allclose(
    found.tokens.value[chains],
    [sum(0.45**i for i in range(size)) for size in SIZES],
  )
  np.testing.assert_allclose(found.draft_seconds[chains], [0, 1.0, 2.5])


def test_joining_keeps_rows_together():
  one = profiles.of_rates(RATES, SIZES, level_seconds=0.5, drafter='x')
  other = profiles.of_moments(1.0, 2.0, [1, 8])
  both = profiles.join([one, other])
  row = lambda profile, i: (
    profile.names[i],
    profile.num_nodes[i],
    *(values[i] for values in profile.tokens),
    profile.draft_seconds[i],
  )
  count = len(one.names)
  assert row(both, 2) == row(one, 2)
  assert row(both, count + 1) == row(other, 1)
  assert isinstance(both.tokens, resample.Interval)
