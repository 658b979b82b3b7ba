"""Simulation against closed forms on a grid of laws: 4 standard errors."""

import jax
import numpy as np
import pytest
import reference_theory as reference

from specjax.theory import brw, laws, process, renewal, sampled_starts

VOCAB = 50
CAPACITY = 17
NUM_TEXTS = 400
LENGTH = 100

LAWS = {
  'two tokens': np.array([0.7, 0.3]),
  'dyadic': np.array([0.5, 0.25, 0.25]),
  'uniform': laws.uniform(6),
  'geometric': laws.geometric(0.7, 20),
  'zipf': reference.ZIPF,
  'peaked': reference.PEAKED,
  'drawn': np.random.default_rng(5).dirichlet(np.full(VOCAB, 0.2)),
}


@jax.jit
def simulate(env, key):
  """Returns surprisals `[R, T]` of texts, and what each iteration emits."""
  sample = process.sample(env, key, NUM_TEXTS, LENGTH, 1)
  emitted = process.run(sample, process.best_policy(env, CAPACITY))
  return sample.texts.laws.surprisal, emitted


def assert_mean_is(values, exact):
  """Values of independent texts have this mean, within 4 standard errors."""
  values = np.asarray(values, np.float64)
  error = values.std() / np.sqrt(len(values))
  assert abs(values.mean() - exact) <= 4 * error + 1e-5 * abs(exact)


@pytest.mark.parametrize('name', LAWS)
def test_simulation_agrees_with_closed_forms(name):
  law = LAWS[name]
  env = laws.fixed(np.append(law, np.zeros(VOCAB - len(law))))
  found, emitted = simulate(env, jax.random.key(7))
  surprisals = np.asarray(found, np.float64)
  for power, exact in zip((1, 2), reference.moments(law), strict=True):
    assert_mean_is(np.mean(surprisals**power, axis=1), exact)

  nodes = reference.node_probabilities(law, 3000)
  # The last iterations of a text are cut; those before do not know it.
  emitted = np.asarray(emitted)[:, : LENGTH - CAPACITY]
  optimum = np.sum(nodes[:CAPACITY])
  assert_mean_is(emitted[emitted > 0], optimum)

  walks = sampled_starts.of_surprisals(surprisals, np.zeros(NUM_TEXTS, bool))
  # Beside the atoms, of which the first is the best tree's own threshold.
  for t in -np.log(nodes[[CAPACITY - 1, CAPACITY // 2]]) + 1e-3:
    dual = sampled_starts.dual(walks, CAPACITY, t).values
    counting = sampled_starts.counting(walks, CAPACITY, t).values
    assert_mean_is(dual, reference.exact_dual(nodes, CAPACITY, t))
    assert_mean_is(counting, reference.exact_counting(nodes, CAPACITY, t))
    assert optimum <= np.mean(dual) + 4 * np.std(dual) / np.sqrt(NUM_TEXTS)

    curve = renewal.from_walks(surprisals, np.array([t]))
    is_visited = np.cumsum(surprisals, axis=1) <= t
    # Many-to-one: U sums the probabilities of nodes, M counts them.
    near = nodes[nodes >= np.exp(-t)]
    assert len(near) < len(nodes)
    error = np.std(np.sum(is_visited, axis=1)) / np.sqrt(NUM_TEXTS)
    assert abs(curve.value[0] - near.sum()) <= 4 * error + 1e-5
    weights = np.exp(np.cumsum(surprisals, axis=1)) * is_visited
    error = np.std(np.sum(weights, axis=1)) / np.sqrt(NUM_TEXTS)
    assert abs(curve.size[0] - len(near)) <= 4 * error + 1e-4 * len(near)


def test_best_trees_of_drawn_laws_are_worth_their_mean():
  """Two nodes: the mean of the best child, over a grid of mixtures."""
  rows = np.random.default_rng(6).dirichlet(np.full(7, 0.5), 4)
  for weights in np.eye(4)[:2] * 0.6 + 0.1:
    env = laws.independent(rows, weights)
    found = brw.curves(env, jax.random.key(1), 2000, 2)[:, 1]
    assert_mean_is(found, 1.0 + weights @ rows.max(axis=1))
