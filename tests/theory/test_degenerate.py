"""Laws and sizes at the edge: sure tokens, tiny vocabularies, N = 1 and 10^6.

Nothing is NaN, and every bound keeps its order.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference_theory as reference
from hypothesis import example, given, settings
from hypothesis import strategies as st

from specjax.theory import (
  brw,
  drafting,
  iid_bounds,
  laws,
  process,
  renewal,
  resample,
  sampled_starts,
  start_bounds,
  thresholds,
)

VOCAB = 6
CAPACITIES = (1, 2, 3, 40, 10**6)
# Weights of a law's tokens: zeros, ties, and a token that is almost sure.
WEIGHTS = st.lists(
  st.sampled_from([0, 0, 1, 1, 2, 5, 30, 10**4, 10**7]),
  min_size=1,
  max_size=VOCAB,
).filter(any)


def law_of(weights):
  """Returns the law `[V]`, always of the same size."""
  weights = np.append(weights, np.zeros(VOCAB - len(weights)))
  return weights / weights.sum()


@jax.jit
def curve(env):
  return brw.curves(env, jax.random.key(0), 1, 150)[0]


@settings(max_examples=40, deadline=None)
@example(weights=[1])
@example(weights=[0, 1, 0])
@example(weights=[1, 1])
@example(weights=[10**7, 1])
@given(weights=WEIGHTS)
def test_order_of_the_bounds_of_one_law_at_every_size(weights):
  law = law_of(weights)
  sizes = np.arange(1, 151)
  mu, mu2 = reference.moments(law)
  optimum = np.asarray(curve(laws.fixed(law)), np.float64)
  np.testing.assert_allclose(optimum, reference.optimum(law, 150), rtol=2e-5)
  lower, dual, upper, printed, sharp = (
    np.asarray(fn(mu, mu2, sizes), np.float64)
    for fn in (
      iid_bounds.achievable,
      iid_bounds.lorden_dual,
      iid_bounds.lorden,
      iid_bounds.printed,
      iid_bounds.sharp,
    )
  )
  # Nearly sure laws lose digits where moments near 0 are divided.
  slack = 1e-4 * sizes
  assert np.all(lower <= optimum + slack)
  assert np.all(optimum <= dual + slack)
  assert np.all(dual <= upper + slack)
  assert not np.any(np.isnan(printed + sharp))


@settings(max_examples=25, deadline=None)
@example(weights=[[1]])
@example(weights=[[1, 0], [0, 1]])
@example(weights=[[1], [1, 1]])
@given(weights=st.lists(WEIGHTS, min_size=1, max_size=4))
def test_order_of_the_bounds_of_random_laws_under_a_mean_budget(weights):
  env = laws.independent(np.stack([law_of(w) for w in weights]))
  mu, mu2 = env.moments()
  if mu == 0.0:
    with pytest.raises(ValueError, match='not sure'):
      renewal.on_grid(*renewal.steps(env), 6.0, 1e-2)
    return
  grid = renewal.on_grid(*renewal.steps(env), 6.0, 1e-2)
  assert np.all(np.isfinite(grid.size) & np.isfinite(grid.value))
  sizes = np.arange(1, int(min(grid.size[-1], 300)) + 1)
  budget = renewal.mean_budget(grid, sizes)
  slack = 0.02 + 1e-4 * sizes  # a cell of the grid, and moments near 0
  assert np.all(iid_bounds.achievable(mu, mu2, sizes) <= budget + slack)
  assert np.all(budget <= iid_bounds.lorden_dual(mu, mu2, sizes) + slack)


def bounds_at_starts(texts, capacity, t):
  """Samples of every bound at the first token of each text, by name."""
  rows = np.arange(len(texts.num_tokens))
  at = (texts, rows, np.zeros_like(rows), capacity, t)
  walks = sampled_starts.of_surprisals(
    np.asarray(texts.laws.surprisal), np.zeros(len(rows), bool)
  )
  return {
    'dual': start_bounds.dual(*at).values,
    'counting': start_bounds.counting(*at).values,
    'sampled dual': sampled_starts.dual(walks, capacity, t).values,
    'sampled counting': sampled_starts.counting(walks, capacity, t).values,
  }


@settings(max_examples=15, deadline=None)
@example(weights=[1], seed=0)
@example(weights=[1, 1], seed=0)
@given(weights=WEIGHTS, seed=st.integers(0, 10**6))
def test_bounds_at_starts_are_finite_and_ordered(weights, seed):
  law = law_of(weights)
  tokens = np.random.default_rng(seed).choice(VOCAB, (4, 8), p=law)
  with np.errstate(divide='ignore'):
    log_p = np.broadcast_to(np.log(law), (4, 8, VOCAB))
  texts = reference.texts(log_p, tokens)
  for capacity in CAPACITIES:
    for t in (0.0, 1.5, 30.0):
      found = bounds_at_starts(texts, capacity, t)
      assert np.all(np.isfinite(list(found.values())))
      for kind in ('', 'sampled '):
        dual, counting = found[f'{kind}dual'], found[f'{kind}counting']
        assert np.all(dual <= counting * (1 + 1e-5) + 1e-5)
      if law.max() == 1.0:  # sure tokens: every node is won
        least = 1.0 if t == 0.0 else capacity
        assert np.all(found['dual'] >= least * (1 - 1e-5))
  rows = np.arange(4)
  fitted = thresholds.cross_fitted(
    texts, rows, np.zeros(4, int), 10**6, thresholds.BY_ROOT
  )
  assert np.all(np.isfinite(fitted))
  values = start_bounds.dual(texts, rows, 0 * rows, 10**6, fitted).values
  assert np.all(np.isfinite(resample.mean(values, rows, seed=0)))


@settings(max_examples=25, deadline=None)
@example(of_verifier=[1], of_drafter=[0, 1])
@example(of_verifier=[1], of_drafter=[1])
@example(of_verifier=[1, 1], of_drafter=[1, 0])
@given(of_verifier=WEIGHTS, of_drafter=WEIGHTS)
def test_drafting_is_finite_and_within_its_limits(of_verifier, of_drafter):
  with np.errstate(divide='ignore'):
    log_p, log_q = (
      jnp.log(jnp.asarray(law_of(w))) for w in (of_verifier, of_drafter)
    )
  moments = drafting.cross_moments(log_p, log_q)
  assert np.all(np.isfinite(jax.tree.leaves(moments)))
  sizes = np.array(CAPACITIES)
  won = np.asarray(drafting.drafter_asymptote(moments, sizes))
  assert np.all((won >= 1.0 - 1e-5) & (won <= sizes * (1 + 1e-5)))
  spread = drafting.variance(moments.mean, moments.second, sizes)
  assert np.all(np.isfinite(spread))
  accepted = drafting.draft_acceptance(log_p, log_q, 3)
  assert 0.0 <= accepted <= 1.0
  chained = drafting.chain(accepted, sizes)
  assert np.all((chained >= 1.0 - 1e-5) & (chained <= sizes * (1 + 1e-5)))


def test_sure_and_impossible_tokens_are_sampled_without_nan():
  rows = np.eye(VOCAB)[[1, 3]]
  env = laws.switching(rows, np.array([[0.5, 0.5], [1.0, 0.0]]))
  sample = process.sample(env, jax.random.key(0), 5, 12, 2)
  assert set(np.asarray(sample.texts.tokens).ravel()) == {1, 3}
  for x in jax.tree.leaves(sample.texts.laws):
    assert not np.any(np.isnan(x))
  np.testing.assert_array_equal(sample.texts.laws.surprisal, 0.0)
  emitted = process.run(sample, process.best_policy(env, 4))
  np.testing.assert_array_equal(emitted, np.tile([4, 0, 0, 0], (5, 3)))
