"""The schedule by its formula, and what decays."""

import jax.numpy as jnp
import numpy as np
import optax
import pytest

from specjax.train import optimizer as optimizer_lib


@pytest.mark.parametrize('num_warmup', [0, 1, 4])
def test_the_rate_rises_and_falls_as_said(num_warmup):
  schedule = optimizer_lib.schedule(0.3, 12, num_warmup)
  found = [schedule(t) for t in range(13)]
  rise = [0.3 * (t + 1) / num_warmup for t in range(num_warmup)]
  shares = np.arange(13 - num_warmup) / (12 - num_warmup)
  fall = 0.3 * (0.1 + 0.9 * (1 + np.cos(np.pi * shares)) / 2)
  np.testing.assert_allclose(found, [*rise, *fall], rtol=1e-5)


@pytest.mark.parametrize('num_warmup', [-1, 12])
def test_a_rise_that_does_not_fit_is_an_error(num_warmup):
  with pytest.raises(ValueError, match=f'0 to 11 steps, got {num_warmup}'):
    optimizer_lib.schedule(0.3, 12, num_warmup)


def test_matrices_decay_and_norms_do_not():
  params = {'layers': {'q': jnp.ones((2, 3, 3)), 'ffn_norm': jnp.ones((2, 3))}}
  params['embed'], params['final_norm'] = jnp.ones((5, 3)), jnp.ones(3)
  optimizer = optimizer_lib.adamw(0.5, weight_decay=0.1)
  zeros = optax.tree.zeros_like(params)
  updates, _ = optimizer.update(zeros, optimizer.init(params), params)
  params = optax.apply_updates(params, updates)
  for value in (params['layers']['q'], params['embed']):
    np.testing.assert_allclose(value, 0.95, rtol=1e-6)
  for value in (params['layers']['ffn_norm'], params['final_norm']):
    np.testing.assert_array_equal(value, 1)


def test_long_gradients_are_shortened_together():
  params = {'a': jnp.zeros(1), 'b': jnp.zeros(1)}
  gradient = {'a': jnp.array([3.0]), 'b': jnp.array([4.0])}
  optimizer = optimizer_lib.adamw(1.0, weight_decay=0, max_norm=2.0)
  for size in (0.1, 1.0):
    scaled = optax.tree.scale(size, gradient)
    found, state = optimizer.update(scaled, optimizer.init(params), params)
    # The first moment holds a tenth of the gradient as it was used.
    moment = optax.tree.get(state, 'mu')
    wanted = size * 5 if size * 5 < 2 else 2
    np.testing.assert_allclose(optax.tree.norm(moment), 0.1 * wanted, rtol=1e-5)
