"""Growing rules against a slow NumPy twin."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.trees import grow

NUM_CANDIDATES = 12


def slow_best_tree(tokens, parents, costs, num_nodes):
  order = np.argsort(costs, kind='stable')[:num_nodes]
  tree = {'tokens': [], 'parents': [], 'log_q': []}
  place = {}
  for old in order:
    if np.isinf(costs[old]):
      break
    is_root = parents[old] < 0
    place[old] = len(place)
    tree['tokens'].append(tokens[old])
    tree['parents'].append(-1 if is_root else place[parents[old]])
    tree['log_q'].append(0 if is_root else costs[parents[old]] - costs[old])
  return tree, len(place)


def random_candidates(seed):
  """Candidates with many equal costs, free edges and absent branches."""
  rng = np.random.default_rng(seed)
  parents = [-1] + [rng.integers(0, i) for i in range(1, NUM_CANDIDATES)]
  costs = np.zeros(NUM_CANDIDATES, np.float32)
  for i in range(1, NUM_CANDIDATES):
    edge = rng.choice([0, 0.5, 1, np.inf], p=[0.2, 0.4, 0.25, 0.15])
    costs[i] = costs[parents[i]] + edge
  tokens = rng.integers(0, 99, NUM_CANDIDATES)
  return tokens, np.asarray(parents), costs


@pytest.mark.parametrize('num_nodes', [1, 5, NUM_CANDIDATES])
def test_best_tree_equals_slow_twin(num_nodes):
  candidates = [random_candidates(seed) for seed in range(60)]
  columns = [jnp.asarray(np.stack(c)) for c in zip(*candidates, strict=True)]
  best = functools.partial(grow.best_tree, num_nodes=num_nodes)
  trees = jax.device_get(jax.jit(jax.vmap(best))(*columns))
  some_absent = False
  for row, candidate in enumerate(candidates):
    expected, count = slow_best_tree(*candidate, num_nodes)
    some_absent |= count < num_nodes
    assert trees.num_nodes[row] == count
    for name, values in expected.items():
      np.testing.assert_array_equal(getattr(trees, name)[row, :count], values)
    # Absent nodes leave the tree well formed.
    assert np.all(trees.parents[row, 1:] < np.arange(1, num_nodes))
    assert np.all(trees.parents[row, 1:] >= 0)
    assert np.all(trees.log_q[row, count:] == 0)
  assert some_absent == (num_nodes > 1)


def test_ties_do_not_see_the_sign_of_zero():
  costs = jnp.array([-0.0, 0.0, -0.0, 1.0, 0.0, jnp.inf, -0.0])
  parents = jnp.array([-1, 0, 1, 0, 2, 0, 4])
  tree = grow.best_tree(jnp.arange(7), parents, costs, 6)
  np.testing.assert_array_equal(tree.tokens, [0, 1, 2, 4, 6, 3])
  np.testing.assert_array_equal(tree.parents, [-1, 0, 1, 2, 3, 0])
