"""The heap against all paths, sorted."""

import itertools

import numpy as np

from experiments.walks import heap_trees

LAW = np.array([0.5, 0.3, 0.2])


def test_values_are_those_of_the_most_probable_paths():
  paths = [
    np.prod(path)
    for depth in range(6)
    for path in itertools.product(LAW, repeat=depth)
  ]
  # None that is left out is above 0.5^6.
  best = np.sort([p for p in paths if p > 0.5**6])[::-1]
  rising = np.sort(-np.log(LAW)).tolist()
  for num_nodes in range(1, len(best) + 1):
    found = heap_trees.value(lambda parent: rising, num_nodes)
    np.testing.assert_allclose(found, np.sum(best[:num_nodes]), rtol=1e-12)


def test_drawn_laws_are_rows_and_a_fixed_one_stays():
  rows = np.random.default_rng(0).dirichlet(np.ones(4), 9)
  draws = heap_trees.draws(rows, np.ones(4), np.random.default_rng(1))
  for name in ('fixed', 'independent'):
    first = draws[name](None)
    assert any(np.allclose(np.sort(-np.log(row)), first) for row in rows)
    assert (draws[name](first) is first) == (name == 'fixed')
  assert np.isclose(np.sum(np.exp(-np.array(draws['dirichlet'](None)))), 1.0)
