import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference_theory as reference

from specjax.theory import brw, dirichlet, iid_bounds, laws, renewal
from specjax.trees import tree as tree_lib

KEY = jax.random.key(3)
RNG = np.random.default_rng(0)
ROWS = RNG.dirichlet(np.full(7, 0.4), 5)
TRANSITION = RNG.dirichlet(np.full(5, 0.5), 5)
ENVIRONMENTS = {
  'fixed': laws.fixed(ROWS[0]),
  'independent': laws.independent(ROWS),
  'switching': laws.switching(ROWS, TRANSITION),
  'dirichlet': dirichlet.make(np.full(7, 0.3)),
}

grow = jax.jit(brw.best_tree, static_argnums=2)


def curve(law, num_nodes):
  """`D(1 .. N)` of one law; laws of equal vocabulary share a compilation."""
  return np.asarray(brw.curves(laws.fixed(law), KEY, 1, num_nodes))[0]


def long_curve(law):
  """`D(1 .. 20000)` of a law, whose vocabulary is filled up to 50."""
  return curve(np.append(law, np.zeros(50 - len(law))), 20000)


@pytest.mark.parametrize('name', ENVIRONMENTS)
def test_trees_equal_those_of_a_lazy_heap(name):
  env = ENVIRONMENTS[name]
  for seed in range(3):
    root = env.root(jax.random.key(seed))
    tree = grow(env, root, 150)
    found = reference.paths(tree)
    expected = reference.heap_tree(env, root, 150)
    # Nodes as dear as the last one are exchangeable.
    last = max(expected.values())
    inside = {path for path, cost in expected.items() if cost < last}
    assert inside <= set(found) and len(set(found)) == len(found) == 150
    # The tree holds edges, whose sums round otherwise than the heap's.
    costs = np.array(list(expected.values()))
    cost = -tree_lib.path_sum(tree.parents, tree.log_q)
    np.testing.assert_allclose(cost, costs, atol=2e-5)
    exact = np.cumsum(np.exp(-costs.astype(np.float64)))
    np.testing.assert_allclose(brw.values(tree), exact, rtol=1e-5)


def test_uniform_laws_are_exact():
  for arity in (2, 50):
    sizes = np.cumsum(float(arity) ** np.arange(8))
    expected = np.interp(np.arange(1, 201), sizes, np.arange(1, 9))
    found = long_curve(np.full(arity, 1 / arity))[:200]
    np.testing.assert_allclose(found, expected, rtol=2e-6)


def test_zipf_curve_at_all_sizes():
  found = long_curve(reference.ZIPF)
  sizes = np.array([2, 5, 17, 61, 257, 1025, 4097, 20000])
  expected = [1.4290, 1.8473, 2.3661, 2.8978, 3.5155, 4.1261, 4.7276, 5.4138]
  np.testing.assert_allclose(found[sizes - 1], expected, atol=5e-5)
  exact = reference.optimum(reference.ZIPF, 20000)
  np.testing.assert_allclose(found, exact, rtol=3e-6)


def test_peaked_law_outruns_its_asymptote():
  found = long_curve(reference.PEAKED)
  np.testing.assert_allclose(found[4096], 11.63, atol=5e-3)
  mu, mu2 = laws.fixed(reference.PEAKED).moments()
  np.testing.assert_allclose(iid_bounds.sharp(mu, mu2, 4097), 11.27, atol=5e-3)


def test_mean_over_starts_of_unlike_prompts_beats_pooled_lorden():
  easy = np.array([0.97] + 30 * [0.001])
  env = laws.mixture([easy, np.append(np.full(20, 0.05), np.zeros(11))])
  values = np.asarray(brw.curves(env, KEY, 64, 129))[:, -1]
  is_easy = values > 10
  np.testing.assert_allclose(values[is_easy], 32.68, atol=5e-3)
  np.testing.assert_allclose(values[~is_easy], 2.27, atol=5e-3)
  mean = (values[is_easy].mean() + values[~is_easy].mean()) / 2
  np.testing.assert_allclose(mean, 17.47, atol=1e-2)
  pooled = iid_bounds.lorden(*env.moments(), 129)
  np.testing.assert_allclose(pooled, 5.99, atol=5e-3)
  assert pooled < mean


@pytest.mark.parametrize('law', [[1.0], [0.4, 0.6], [0.0, 1.0]])
@pytest.mark.parametrize('num_nodes', [1, 2])
def test_smallest_sizes(law, num_nodes):
  exact = reference.optimum(law, num_nodes)
  np.testing.assert_allclose(curve(law, num_nodes), exact, rtol=1e-6)


def test_random_environments_stay_within_the_mean_budget():
  env = ENVIRONMENTS['independent']
  curves = np.asarray(brw.curves(env, KEY, 2000, 100), np.float64)
  sizes = np.arange(1, 101)
  budget = renewal.mean_budget(
    renewal.on_grid(*renewal.steps(env), 8.0, 1e-3), sizes
  )
  error = curves.std(axis=0) / np.sqrt(2000)
  assert np.all(curves.mean(axis=0) <= budget + 4 * error + 1e-3)
  # What a hard budget loses against a mean one is little here.
  assert np.all(curves.mean(axis=0) >= 0.93 * budget)
  # A root and its best child.
  best = np.mean(ROWS.max(axis=1))
  assert abs(curves[:, 1].mean() - 1 - best) < 4 * error[1]


def test_memory_stays_within_its_limit_and_does_not_change_the_curves():
  env = ENVIRONMENTS['dirichlet']
  results = []
  for max_bytes in (100_000, 10**6):
    compiled = brw.curves.lower(env, KEY, 20, 128, max_bytes).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < max_bytes
    results.append(compiled(env, KEY))
  np.testing.assert_allclose(*results, rtol=1e-6)
  with pytest.raises(ValueError, match='expected max_bytes >= .*, got 1000'):
    brw.curves(env, KEY, 20, 128, 1000)


def test_values_of_absent_nodes_are_none():
  tree = grow(ENVIRONMENTS['fixed'], ENVIRONMENTS['fixed'].root(KEY), 150)
  cut = brw.values(tree.replace(num_nodes=jnp.int32(3)))
  np.testing.assert_array_equal(cut[:3], brw.values(tree)[:3])
  assert jnp.all(cut[3:] == cut[2])


def test_a_size_below_one_is_refused():
  with pytest.raises(ValueError, match='expected num_nodes >= 1, got 0'):
    brw.best_tree(ENVIRONMENTS['fixed'], None, 0)
