"""Dirichlet laws against their marginals, moments and quantiles."""

import jax
import numpy as np
import pytest
from scipy import special, stats

from specjax.theory import dirichlet


def test_a_node_is_found_again_and_siblings_differ():
  env = dirichlet.make(np.full(6, 0.5))
  root = env.root(jax.random.key(1))
  law = lambda *path: env.log_law(follow(env, root, path))
  np.testing.assert_array_equal(law(2, 3), law(2, 3))
  seen = [law(), law(0), law(1), law(0, 1), law(1, 0)]
  assert len({np.asarray(x).tobytes() for x in seen}) == 5


def follow(env, state, path):
  for token in path:
    state = env.child(state, token)
  return state


@pytest.mark.parametrize('shape', [1.001, 1.05, 1.5, 3.0, 40.0])
def test_polynomial_is_the_quantile_function_of_a_log_gamma(shape):
  normal = np.linspace(-5.5, 5.5, 501)
  fit = np.polyval(dirichlet._log_gamma_polynomial(shape), normal / 5.6)
  # Each side by the tail that keeps its digits.
  below = special.gammaincinv(shape, stats.norm.cdf(normal))
  above = special.gammainccinv(shape, stats.norm.sf(normal))
  exact = np.log(np.where(normal < 0, below, above))
  np.testing.assert_allclose(fit, exact, atol=2e-5)


@pytest.mark.parametrize(
  'concentration', [[0.05] * 20, [0.3, 1.0, 4.0], [2.0, 0.5]]
)
def test_laws_have_their_marginals_and_moments(concentration):
  env = dirichlet.make(concentration)
  keys = jax.random.split(jax.random.key(2), 20000)
  log_p = jax.jit(jax.vmap(lambda key: env.log_law(env.root(key))))(keys)
  p = np.exp(np.asarray(log_p, np.float64))
  np.testing.assert_allclose(p.sum(axis=1), 1.0, rtol=1e-5)
  a = np.asarray(concentration)
  marginal = stats.beta(a[0], a.sum() - a[0])
  # At 20000 samples a correct sampler fails once in 10^4.
  assert stats.kstest(p[:5000, 0], marginal.cdf).pvalue > 1e-4
  surprisal = -np.log(np.maximum(p, 1e-300))
  for power, exact in zip((1, 2), env.moments(), strict=True):
    values = np.sum(p * surprisal**power, axis=1)
    error = values.std() / np.sqrt(len(values))
    assert abs(values.mean() - exact) < 4 * error


def test_one_token_is_sure():
  env = dirichlet.make([0.7])
  np.testing.assert_array_equal(env.moments(), [0.0, 0.0])
  assert env.log_law(env.root(jax.random.key(0)))[0] == 0.0


def test_what_is_no_concentration_is_named():
  with pytest.raises(ValueError, match='^expected positive .*, got'):
    dirichlet.make([0.5, 0.0])
