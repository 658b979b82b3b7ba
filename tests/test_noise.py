"""Noise: what it depends on, and its laws."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from specjax import noise


# Kinds: a seed that depends on the neighbours, rows or devices that share
# random numbers, noise that is used twice.
def test_noise_depends_on_seed_position_and_use_alone():
  one = noise.gumbel(jnp.uint32(5), jnp.int32(7), 0, 11)
  np.testing.assert_array_equal(
    one, jax.jit(noise.gumbel, static_argnums=3)(5, 7, 0, 11)
  )
  for other in [(6, 7, 0), (5, 8, 0), (5, 7, 1)]:
    assert np.all(one != noise.gumbel(*other, 11))


def test_no_two_uses_are_one():
  uses = [noise.USE_TOKEN, noise.USE_COIN, noise.USE_RESIDUAL]
  uses += [noise.draft_use(node) for node in range(64)]
  assert len(set(uses)) == len(uses)


def test_coins_are_uniform_below_1_and_independent_of_each_other():
  seeds, positions = np.repeat([1, 2, 70], 300), np.tile(np.arange(300), 3)
  coins = np.asarray(
    noise.coins(jnp.asarray(seeds, jnp.uint32), jnp.asarray(positions), 4)
  )
  assert coins.min() >= 0 and coins.max() < 1
  assert stats.kstest(coins.ravel(), 'uniform').pvalue > 1e-3
  assert len(np.unique(coins)) > 0.99 * coins.size
  # By node, by position and by seed.
  series = [*coins.T, coins[1:, 0], *coins[:, 0].reshape(3, 300)]
  for a, b in itertools.combinations(series, 2):
    size = min(len(a), len(b))
    if not np.array_equal(a[:size], b[:size]):
      assert abs(np.corrcoef(a[:size], b[:size])[0, 1]) < 4 / np.sqrt(size)
