"""Static shapes against exhaustive search and published numbers."""

import itertools

import numpy as np
import pytest

from specjax.trees import shapes

# Sequoia (Chen et al. 2024): chance that the r-th ranked child is the accepted
# one; 68M drafter, 13B verifier, CNN, temperature 0.6; rounded.
SEQUOIA = np.array(
  [
    0.6342,
    0.1079,
    0.0570,
    0.0225,
    0.0195,
    0.0150,
    0.0045,
    0.0030,
    0.0120,
    0.0045,
    0.0075,
    0.0045,
    0.0060,
    0.0030,
    0.0015,
    0.0030,
    0.0015,
    0.0030,
    0,
    0.0030,
    0.0030,
    0.0030,
    0,
    0.0015,
    0,
    0.0015,
    0,
    0,
    0,
    0.0015,
    0.0015,
    0.0015,
  ]
)


def test_published_acceptance_vector_gives_its_numbers():
  rates = np.sort(SEQUOIA)[::-1]
  expected = {
    2: 1.6342,
    4: 2.2915,
    8: 2.7322,
    16: 3.1303,
    32: 3.5008,
    64: 3.8602,
    128: 4.2079,
    256: 4.5508,
    1024: 5.2272,
  }
  for size, tokens in expected.items():
    # Unsorted rates give the same tree: ranks are taken by rate.
    for vector in (rates, SEQUOIA):
      shape = shapes.best_first(size, vector)
      assert shapes.expected_tokens(shape, vector) == pytest.approx(
        tokens, abs=6e-5
      )
  for size, tokens in {2: 1.6342, 4: 2.2915, 8: 2.6622, 16: 2.7319}.items():
    got = shapes.expected_tokens(shapes.chain(size), rates)
    assert got == pytest.approx(tokens, abs=6e-5)


def every_shape(size, num_ranks):
  """All trees of `size` nodes with children of distinct ranks."""
  for parents in itertools.product(*[range(i) for i in range(1, size)]):
    for ranks in itertools.product(range(num_ranks), repeat=size - 1):
      edges = list(zip(parents, ranks, strict=True))
      if len(set(edges)) == len(edges):
        yield shapes.Shape(np.array((-1, *parents)), np.array((0, *ranks)))


def test_best_first_equals_exhaustive_search():
  rng = np.random.default_rng(0)
  for size in range(1, 6):
    rates = rng.dirichlet(np.ones(4))[:3]
    best = max(
      shapes.expected_tokens(shape, rates) for shape in every_shape(size, 3)
    )
    got = shapes.expected_tokens(shapes.best_first(size, rates), rates)
    assert got == pytest.approx(best, abs=1e-12)


def test_chain_and_k_ary_are_what_they_say():
  chain = shapes.chain(4)
  np.testing.assert_array_equal(chain.parents, [-1, 0, 1, 2])
  np.testing.assert_array_equal(chain.depths, [0, 1, 2, 3])
  binary = shapes.k_ary(6, 2)
  np.testing.assert_array_equal(binary.parents, [-1, 0, 0, 1, 1, 2])
  np.testing.assert_array_equal(binary.ranks, [0, 0, 1, 0, 1, 0])
  np.testing.assert_array_equal(shapes.k_ary(4, 1).parents, chain.parents)


@pytest.mark.parametrize(
  'make',
  [
    lambda: shapes.chain(0),
    lambda: shapes.k_ary(3, 0),
    lambda: shapes.best_first(3, [0.7, 0.6]),
    lambda: shapes.best_first(3, [-0.1]),
    lambda: shapes.best_first(3, [0.0, 0.0]),
  ],
)
def test_impossible_shapes_are_refused(make):
  with pytest.raises(ValueError, match='expected'):
    make()
