import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference_theory as reference

from specjax.theory import laws

PAIR = np.array([[0.9, 0.1, 0.0], [0.2, 0.3, 0.5]])
ONE_HOT = np.array([0.0, 1.0, 0.0])
STICKY = np.array([[0.9, 0.1], [0.3, 0.7]])


def walk_regimes(env, num_starts, length, token=0):
  """Regimes `[R, T]` along one path below each of many starts."""

  def path(key):
    step = lambda state, _: (env.child(state, token), state.regime)
    return jax.lax.scan(step, env.root(key), length=length)[1]

  keys = jax.random.split(jax.random.key(0), num_starts)
  return np.asarray(jax.jit(jax.vmap(path))(keys))


def test_named_laws():
  np.testing.assert_allclose(laws.uniform(4), 0.25)
  geometric = laws.geometric(0.5, 3)
  np.testing.assert_allclose(geometric, np.array([4, 2, 1]) / 7)
  np.testing.assert_allclose(laws.zipf(1.5, 50), reference.ZIPF)


def test_moments_of_fixed_laws():
  moments = laws.fixed(laws.zipf(1.5, 50)).moments()
  np.testing.assert_allclose(moments, [2.30421, 8.00423], rtol=2e-6)
  for law in (ONE_HOT, laws.uniform(1)):
    np.testing.assert_array_equal(laws.fixed(law).moments(), [0.0, 0.0])


def test_moments_weigh_regimes_by_their_long_run_share():
  each = np.array([reference.moments(law) for law in PAIR])
  weights = np.array([0.25, 0.75])
  for make in (laws.mixture, laws.independent):
    moments = make(PAIR, weights).moments()
    np.testing.assert_allclose(moments, weights @ each, rtol=1e-5)
  # Balance: 0.1 a = 0.3 b.
  moments = laws.switching(PAIR, STICKY, [0.0, 1.0]).moments()
  np.testing.assert_allclose(moments, [0.75, 0.25] @ each, rtol=1e-5)
  # A chain of period 2, and one that never leaves where it starts.
  moments = laws.switching(PAIR, [[0, 1], [1, 0]], [1.0, 0.0]).moments()
  np.testing.assert_allclose(moments, [0.5, 0.5] @ each, rtol=1e-5)
  moments = laws.switching(PAIR, np.eye(2), weights).moments()
  np.testing.assert_allclose(moments, weights @ each, rtol=1e-5)


def test_regimes_follow_their_chances():
  regimes = walk_regimes(laws.switching(PAIR, STICKY, [0.8, 0.2]), 20000, 3)
  chances = np.array([0.8, 0.2])
  for depth in range(3):
    error = 4 * np.sqrt(chances[0] * chances[1] / 20000)
    assert abs(np.mean(regimes[:, depth] == 0) - chances[0]) < error
    chances = chances @ STICKY
  stays = regimes[regimes[:, 0] == 0, 1] == 0
  assert abs(stays.mean() - 0.9) < 4 * np.sqrt(0.09 / len(stays))
  independent = walk_regimes(laws.independent(PAIR, [0.3, 0.7]), 20000, 2)
  correlation = np.corrcoef(independent.T)[0, 1]
  assert abs(correlation) < 4 / np.sqrt(20000)
  assert abs(independent.mean() - 0.7) < 4 * np.sqrt(0.21 / 40000)
  kept = walk_regimes(laws.mixture(PAIR), 50, 3)
  assert np.all(kept == kept[:, :1]) and 0 < kept[:, 0].mean() < 1


def test_one_hot_rows_make_no_nan():
  env = laws.independent(np.stack([ONE_HOT, PAIR[0]]))
  assert not np.any(np.isnan(env.moments()))
  assert not jnp.any(jnp.isnan(env.log_p))


@pytest.mark.parametrize(
  'make',
  [
    lambda: laws.fixed([0.5, 0.6]),
    lambda: laws.fixed([1.5, -0.5]),
    lambda: laws.mixture(PAIR, [0.5, 0.4]),
    lambda: laws.switching(PAIR, [[1.0, 0.0], [0.5, 0.6]]),
    lambda: laws.fixed([np.nan, 1.0]),
  ],
)
def test_what_is_no_law_is_named(make):
  with pytest.raises(ValueError, match='^expected .*, got'):
    make()
