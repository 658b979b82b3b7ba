"""Sequoia's programme against exhaustive search, best-first and the paper."""

import itertools

import numpy as np
import pytest
import reference_shapes

from specjax.trees import sequoia, shapes


def exhaustive(size, rates, depth, branch):
  """Most expected tokens of all trees within the limits, -inf for none."""
  values = [
    shapes.expected_tokens(shape, rates)
    for shape in reference_shapes.every_shape(size, len(rates))
    if shape.depths.max() <= depth
    and np.bincount(shape.parents[1:], minlength=1).max() <= branch
  ]
  return max(values, default=-np.inf)


def test_equals_exhaustive_search_within_limits():
  rng = np.random.default_rng(0)
  for depth, branch in itertools.product((0, 1, 2, 4), (1, 2, 3)):
    rates = rng.dirichlet(np.ones(4))[:3]
    programme = sequoia.solve(5, rates, depth, branch)
    for size in range(1, 6):
      best = exhaustive(size, rates, depth, branch)
      assert programme.values[-1, size] == pytest.approx(best, abs=1e-12)
      if np.isfinite(best):
        shape = sequoia.best(size, rates, depth, branch)
        assert len(shape.parents) == size
        assert shape.depths.max() <= depth
        assert np.bincount(shape.parents[1:], minlength=1).max() <= branch
        got = shapes.expected_tokens(shape, rates)
        assert got == pytest.approx(best, abs=1e-12)


@pytest.mark.parametrize('seed', range(4))
def test_without_limits_it_is_best_first(seed):
  rng = np.random.default_rng(seed)
  rates = rng.dirichlet(np.full(9, 0.4))[:8]
  programme = sequoia.solve(60, rates)
  for size in range(1, 61):
    best_first = shapes.expected_tokens(shapes.best_first(size, rates), rates)
    assert programme.values[-1, size] == pytest.approx(best_first, abs=1e-12)
    shape = sequoia.shape_of(programme, size)
    got = shapes.expected_tokens(shape, rates)
    assert got == pytest.approx(best_first, abs=1e-12)


def test_every_entry_of_the_table_is_won_by_its_shape():
  rates = [0.1, 0.4, 0.2, 0.0, 0.1]
  programme = sequoia.solve(40, rates, branch=3)
  for depth, size in np.argwhere(np.isfinite(programme.values)):
    shape = sequoia.shape_of(programme, size, depth)
    assert shape.depths.max() <= depth
    # Nodes are distinct, and stand after their parents.
    edges = set(zip(shape.parents, shape.ranks, strict=True))
    assert len(edges) == size
    assert np.all(shape.parents < np.arange(size))
    got = shapes.expected_tokens(shape, rates)
    assert got == pytest.approx(programme.values[depth, size], abs=1e-12)
  # A deeper tree is never worse.
  assert np.all(np.maximum.accumulate(programme.values) == programme.values)


def test_the_published_vector_gives_its_numbers():
  programme = sequoia.solve(1024, reference_shapes.SEQUOIA)
  for size, tokens in reference_shapes.SEQUOIA_TREES.items():
    assert programme.values[-1, size] == pytest.approx(tokens, abs=6e-5)
  # One branch leaves chains of the best rank.
  chains = sequoia.solve(32, reference_shapes.SEQUOIA, branch=1)
  for size, tokens in reference_shapes.SEQUOIA_CHAINS.items():
    assert chains.values[-1, size] == pytest.approx(tokens, abs=6e-5)


@pytest.mark.parametrize(
  'make, message',
  [
    (lambda: sequoia.best(0, [0.5]), 'at least 1 node, got 0'),
    (lambda: sequoia.best(2, [0.5], depth=-1), 'depth of at least 0, got -1'),
    (lambda: sequoia.best(2, [0.5], branch=0), 'branch of at least 1, got 0'),
    (lambda: sequoia.best(2, [0.7, 0.6]), 'sum <= 1'),
    (lambda: sequoia.best(2, [0.0]), 'at most 1 within'),
    (lambda: sequoia.best(8, [0.5, 0.2], depth=2), 'at most 7 within.*got 8'),
    (
      lambda: sequoia.shape_of(sequoia.solve(3, [0.5]), 4),
      r'size in \[1, 3\], got 4',
    ),
    (
      lambda: sequoia.shape_of(sequoia.solve(3, [0.5]), 3, 9),
      r'depth in \[0, 2\], got 9',
    ),
  ],
)
def test_impossible_limits_are_refused(make, message):
  with pytest.raises(ValueError, match=message):
    make()
