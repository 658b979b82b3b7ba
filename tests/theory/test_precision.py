"""float32 and float64 agree: each function on the same numbers in both."""

import jax
import jax.numpy as jnp
import numpy as np
import reference_theory as reference

from specjax.theory import (
  brw,
  drafting,
  iid_bounds,
  laws,
  run_bounds,
  sampled_starts,
  start_bounds,
)

CAPACITIES = np.array([1, 2, 5, 16, 1000])
ROWS = np.random.default_rng(0).dirichlet(np.full(8, 0.4), 5)
# Off the lattice, so that no threshold meets a tie.
SURPRISALS = np.random.default_rng(1).exponential(1.3, (12, 20))
TOKENS = np.random.default_rng(2).integers(0, 8, (12, 20))


def in_both(compute):
  """Returns what a function of nothing gives in float32 and in float64."""
  found = []
  for is_double in (False, True):
    with jax.enable_x64(is_double):
      leaves = jax.tree.leaves(compute())
      assert any(
        x.dtype == (float if is_double else np.float32) for x in leaves
      )
      found.append([np.asarray(x, np.float64) for x in leaves])
  return zip(*found, strict=True)


def assert_agree(compute, rtol=2e-5):
  for single, double in in_both(compute):
    np.testing.assert_allclose(single, double, rtol=rtol, atol=1e-6)


def texts():
  log_p = np.log(ROWS)[np.arange(12 * 20).reshape(12, 20) % 5]
  return reference.texts(log_p, TOKENS, eos_ids=[7])


def test_bounds_of_the_iid_model():
  mu, mu2 = np.array([[0.05, 1.0, 7.0], [0.1, 3.0, 60.0]])[..., None]
  for bound_fn in (
    iid_bounds.printed,
    iid_bounds.lorden,
    iid_bounds.lorden_dual,
    iid_bounds.achievable,
    iid_bounds.sharp,
  ):
    assert_agree(
      lambda fn=bound_fn: fn(jnp.asarray(mu), jnp.asarray(mu2), CAPACITIES)
    )


def test_drafters():
  log_p, log_q = np.log(ROWS[:2])[:, None]
  assert_agree(
    lambda: drafting.cross_moments(jnp.array(log_p), jnp.array(log_q))
  )
  assert_agree(
    lambda: drafting.draft_acceptance(jnp.array(log_p), jnp.array(log_q), 3)
  )
  assert_agree(lambda: drafting.chain(jnp.array([0.3, 0.999]), 40), rtol=2e-4)


def test_bounds_at_starts():
  rows, positions = np.arange(12), np.zeros(12, int)
  for t in (0.7, 2.9):
    assert_agree(lambda t=t: start_bounds.dual(texts(), rows, positions, 9, t))
    assert_agree(
      lambda t=t: start_bounds.counting(texts(), rows, positions, 9, t)
    )


def test_bounds_at_starts_from_log_probs_alone():
  walks = lambda: sampled_starts.of_surprisals(SURPRISALS, np.zeros(12, bool))
  for t in (0.7, 2.9):
    assert_agree(lambda t=t: sampled_starts.dual(walks(), 9, t))
    assert_agree(lambda t=t: sampled_starts.counting(walks(), 9, t))


def test_bounds_of_runs():
  num_tokens = np.full(12, 20)
  assert_agree(
    lambda: run_bounds.run(
      jnp.asarray(SURPRISALS), num_tokens, CAPACITIES, 1000
    )
  )
  assert_agree(
    lambda: run_bounds.run_context(texts().laws, num_tokens, CAPACITIES),
    rtol=1e-4,
  )


def test_best_trees():
  # The same keys draw the same regimes, whatever the precision.
  key = jax.random.key(0)
  assert_agree(lambda: brw.curves(laws.independent(ROWS), key, 9, 60))
