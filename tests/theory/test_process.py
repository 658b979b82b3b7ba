import functools

import jax
import jax.numpy as jnp
import numpy as np
import reference_theory as reference

from specjax.theory import entropy as entropy_lib
from specjax.theory import laws, process, run_bounds
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


def chain(state, token=0):
  """A policy that drafts one token again and again."""
  del state
  nodes = jnp.arange(SIZE)
  return tree_lib.Tree(
    tokens=jnp.full(SIZE, token),
    parents=nodes - 1,
    log_q=jnp.zeros(SIZE),
    num_nodes=jnp.int32(SIZE),
  )


BEST = process.best_policy(SWITCHING, SIZE)
POLICIES = {
  'best': BEST,
  'by regime': process.best_policy(
    SWITCHING, SIZE, lambda state: 2 * state.regime
  ),
  'chain': chain,
  'wrong chain': functools.partial(chain, token=3),
}
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


def test_runs_equal_a_slow_walk():
  tokens = np.asarray(SAMPLE.texts.tokens)
  for name, policy in POLICIES.items():
    emitted = np.asarray(process.run(SAMPLE, policy))
    np.testing.assert_array_equal(emitted.sum(axis=1), tokens.shape[1])
    draw = jax.jit(policy)
    for row in range(2):
      text = tokens[row].tolist()

      def tree_fn(history, root, row=row, draw=draw):
        at = lambda x: x[row, len(history)]
        return set(reference.paths(draw(jax.tree.map(at, SAMPLE.states))))

      calls = reference.num_calls(text, None, tree_fn)
      assert calls == np.sum(emitted[row] > 0), name


def test_the_best_policy_needs_fewest_calls_and_run_bounds_hold():
  texts = SAMPLE.texts
  rates = {
    name: texts.tokens.size / np.sum(np.asarray(process.run(SAMPLE, fn)) > 0)
    for name, fn in POLICIES.items()
  }
  assert rates['best'] == max(rates.values()) > 1.5
  assert 1.0 <= rates['wrong chain'] < rates['chain']
  sizes = np.array([SIZE])
  limits = [
    run_bounds.run(texts.laws.surprisal, texts.num_tokens, sizes, 4),
    run_bounds.run_context(texts.laws, texts.num_tokens, sizes),
  ]
  for calls in limits:
    interval = run_bounds.rate(calls, texts.num_tokens, sizes, seed=0)
    assert rates['best'] <= interval.high[0]


def test_fixed_law_emits_the_trees_value():
  env = laws.fixed(reference.ZIPF)
  sample = process.sample(env, KEY, 100, 300, 1)
  best = process.best_policy(env, 17)
  for policy, exact in (
    (best, reference.optimum(reference.ZIPF, 17)[-1]),
    (chain, np.sum(reference.ZIPF[0] ** np.arange(SIZE))),
  ):
    emitted = np.asarray(process.run(sample, policy))
    # The last iterations are cut; those before do not know it.
    whole = emitted[:, :260]
    whole = whole[whole > 0]
    error = whole.std() / np.sqrt(len(whole))
    assert abs(whole.mean() - exact) < 4 * error
