"""Static shapes against exhaustive search and published numbers."""

import numpy as np
import pytest
import reference_shapes

from specjax.trees import shapes


def test_published_acceptance_vector_gives_its_numbers():
  rates = np.sort(reference_shapes.SEQUOIA)[::-1]
  for size, tokens in reference_shapes.SEQUOIA_TREES.items():
    # Unsorted rates give the same tree: ranks are taken by rate.
    for vector in (rates, reference_shapes.SEQUOIA):
      shape = shapes.best_first(size, vector)
      assert shapes.expected_tokens(shape, vector) == pytest.approx(
        tokens, abs=6e-5
      )
  for size, tokens in reference_shapes.SEQUOIA_CHAINS.items():
    got = shapes.expected_tokens(shapes.chain(size), rates)
    assert got == pytest.approx(tokens, abs=6e-5)


def test_best_first_equals_exhaustive_search():
  rng = np.random.default_rng(0)
  for size in range(1, 6):
    rates = rng.dirichlet(np.ones(4))[:3]
    best = max(
      shapes.expected_tokens(shape, rates)
      for shape in reference_shapes.every_shape(size, 3)
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
