import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference_theory as reference

from specjax.theory import entropy as entropy_lib
from specjax.theory import laws, process
from specjax.trees import tree as tree_lib

KEY = jax.random.key(4)
ROWS = np.array(
  [
    [0.97, 0.01, 0.01, 0.01],
    [0.0, 1.0, 0.0, 0.0],
    [0.3, 0.2, 0.4, 0.1],
    [0.05, 0.05, 0.05, 0.85],
  ]
)
SWITCHING = laws.switching(ROWS, 0.8 * np.eye(4) + 0.05)
SIZE = 6


# Nodes that are used of the best tree, by regime.
SIZES = {'best': np.full(4, SIZE), 'by regime': np.array([1, 2, 4, 6])}
CHAINS = {'chain': 0, 'wrong chain': 3}


def best_policy(sizes):
  """Drafts the best tree of a size that depends on the regime."""
  count_fn = lambda state: jnp.asarray(sizes)[state.regime]
  return process.best_policy(SWITCHING, SIZE, count_fn)


def chain_policy(token):
  """Drafts one token again and again."""
  chain = tree_lib.Tree(
    tokens=jnp.full(SIZE, token),
    parents=jnp.arange(SIZE) - 1,
    log_q=jnp.zeros(SIZE),
    num_nodes=jnp.int32(SIZE),
  )
  return lambda state: chain


@functools.partial(jax.jit, static_argnums=0)
def run(make_policy, sample, parameter):
  return process.run(sample, make_policy(parameter))


SAMPLE = process.sample(SWITCHING, KEY, 40, 120, 4)


def test_texts_follow_their_laws():
  texts, states = SAMPLE
  regimes = np.asarray(states.regime)
  assert set(regimes.ravel()) == set(range(4))
  p = ROWS[regimes, np.asarray(texts.tokens)]
  np.testing.assert_allclose(texts.laws.surprisal, -np.log(p), atol=1e-5)
  for regime, row in enumerate(ROWS):
    drawn = np.asarray(texts.tokens)[regimes == regime]
    share = np.bincount(drawn, minlength=4) / len(drawn)
    assert np.all(
      np.abs(share - row) <= 4 * np.sqrt(row * (1 - row) / len(drawn)) + 1e-9
    )
  moments = entropy_lib.moments_of_laws(texts.laws, texts.num_tokens)
  np.testing.assert_allclose(moments, SWITCHING.moments(), rtol=0.15)


@pytest.mark.parametrize(
  ('make_policy', 'parameter'),
  [(best_policy, SIZES['by regime']), (chain_policy, CHAINS['chain'])],
)
def test_runs_equal_a_slow_walk(make_policy, parameter):
  tokens = np.asarray(SAMPLE.texts.tokens)
  emitted = np.asarray(run(make_policy, SAMPLE, parameter))
  np.testing.assert_array_equal(emitted.sum(axis=1), tokens.shape[1])
  draw = jax.jit(make_policy(parameter))
  for row in range(2):

    def tree_fn(history, root, row=row):
      at = lambda x: x[row, len(history)]
      return set(reference.paths(draw(jax.tree.map(at, SAMPLE.states))))

    calls = reference.num_calls(tokens[row].tolist(), None, tree_fn)
    assert calls == np.sum(emitted[row] > 0)


def test_the_best_policy_needs_fewest_calls():
  emitted = {name: run(best_policy, SAMPLE, x) for name, x in SIZES.items()}
  emitted |= {name: run(chain_policy, SAMPLE, x) for name, x in CHAINS.items()}
  rates = {
    name: SAMPLE.texts.tokens.size / np.sum(np.asarray(x) > 0)
    for name, x in emitted.items()
  }
  assert rates['best'] == max(rates.values()) > 1.5
  assert 1.0 <= rates['wrong chain'] < rates['chain']
