"""One softmax over two sets of keys, beside loops and JAX's own attention."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.llama import attention, mask
from specjax.trees import tree as tree_lib

B, T, S, Q, K, H = 3, 6, 9, 6, 2, 4
ATTEND = jax.jit(attention.attend)


def random_case(seed, cache_mask, block_mask):
  """Arguments of `attend`, of numbers at random behind given masks."""
  rng = np.random.RandomState(seed)
  draw = lambda *shape: jnp.asarray(rng.randn(*shape), jnp.float32)
  num_tokens, num_slots = block_mask.shape[-1], cache_mask.shape[-1]
  kept = draw(B, K, H, num_slots), draw(B, K, num_slots, H)
  view = attention.View(*kept, jnp.asarray(cache_mask), jnp.asarray(block_mask))
  q = draw(B, num_tokens, Q, H)
  return q, draw(B, K, H, num_tokens), draw(B, K, num_tokens, H), view


def tree_masks(seed):
  rng = np.random.RandomState(seed)
  parents = [[-1] + [rng.randint(i) for i in range(1, T)] for _ in range(B)]
  return np.asarray(jax.vmap(tree_lib.ancestors)(jnp.array(parents)))


def committed(lengths):
  return np.asarray(mask.committed(jnp.array(lengths), S))


def scattered(seed, *shape):
  return np.random.RandomState(seed).rand(*shape) < 0.4


CASES = {
  # An empty cache, one in part, a full one.
  'tree': lambda: random_case(0, committed([0, 4, S]), tree_masks(0)),
  'step': lambda: random_case(
    1, committed([1, 4, S]), np.ones((1, 1, 1), bool)
  ),
  'prompt': lambda: random_case(2, np.zeros((B, 1, 1), bool), mask.causal(T)),
  # Each query its own slots; some queries see nothing in one part or in both.
  'scratch': lambda: random_case(
    3, scattered(3, B, T, S) & (np.arange(T) % 3 > 0)[:, None], tree_masks(1)
  ),
  'holes': lambda: random_case(
    4, committed([0, 0, 2]), scattered(4, B, T, T) & (np.arange(T) % 2 > 0)
  ),
}


def joined(keys, values, view):
  """Keys and values `[B, S + T, K, H]` and what is open, `[B, T, S + T]`."""
  num_tokens = keys.shape[-1]
  keys = jnp.concatenate([view.keys, keys], axis=3)
  values = jnp.concatenate([view.values, values], axis=2)
  wide = lambda x: jnp.broadcast_to(x, (B, num_tokens, x.shape[-1]))
  opened = jnp.concatenate(
    [wide(view.cache_mask), wide(view.block_mask)], axis=2
  )
  return keys.transpose(0, 3, 1, 2), values.transpose(0, 2, 1, 3), opened


def slow(q, keys, values, view):
  """The same by loops, in float64."""
  keys, values, opened = map(np.asarray, joined(keys, values, view))
  out = np.zeros(q.shape)
  for b, t, head in np.ndindex(q.shape[:3]):
    shares = np.zeros(opened.shape[2])
    for j in np.flatnonzero(opened[b, t]):
      key = keys[b, j, head // (Q // K)].astype(np.float64)
      shares[j] = np.exp(np.dot(q[b, t, head], key) / np.sqrt(H))
    if shares.any():
      out[b, t, head] = shares / shares.sum() @ values[b, :, head // (Q // K)]
  return out


@jax.jit
def by_library(q, keys, values, view):
  """The same by JAX, which averages all values where nothing is open."""
  keys, values, opened = joined(keys, values, view)
  out = jax.nn.dot_product_attention(q, keys, values, mask=opened[:, None])
  return jnp.where(opened.any(2)[..., None, None], out, 0)


@pytest.mark.parametrize('name', CASES)
def test_it_is_the_softmax_over_all_open_keys(name):
  case = CASES[name]()
  got = ATTEND(*case)
  np.testing.assert_allclose(got, slow(*case), rtol=1e-5, atol=1e-5)
  np.testing.assert_allclose(got, by_library(*case), rtol=1e-5, atol=1e-5)


def test_there_are_queries_that_see_nothing():
  *_, opened = joined(*CASES['holes']()[1:])
  is_blind = ~np.asarray(opened).any(2)
  assert is_blind.any()
  assert not is_blind.all()
  assert np.all(np.asarray(ATTEND(*CASES['holes']()))[is_blind] == 0)


@functools.partial(jax.jit, static_argnums=0)
def gradients(attend_fn, weights, q, keys, values, view):
  def total(q, keys, values, old_keys, old_values):
    seen = view._replace(keys=old_keys, values=old_values)
    return jnp.sum(weights * attend_fn(q, keys, values, seen))

  wanted = range(5)
  return jax.grad(total, wanted)(q, keys, values, view.keys, view.values)


@pytest.mark.parametrize('name', CASES)
def test_gradients_are_those_of_the_library(name):
  case = CASES[name]()
  weights = np.random.RandomState(9).randn(*case[0].shape).astype(np.float32)
  got = gradients(attention.attend, weights, *case)
  expected = gradients(by_library, weights, *case)
  for ours, theirs in zip(got, expected, strict=True):
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-5)


def test_a_key_may_lie_in_either_part():
  """What a chain finds does not depend on how much of it was committed."""
  q, keys, values, view = random_case(
    5, np.zeros((B, 1, S), bool), mask.causal(T)
  )
  whole = ATTEND(q, keys, values, view)
  for size in (1, 4):
    moved = view._replace(
      keys=view.keys.at[..., :size].set(keys[..., :size]),
      values=view.values.at[:, :, :size].set(values[:, :, :size]),
      cache_mask=jnp.asarray(committed([size] * B)),
      block_mask=mask.causal(T - size),
    )
    rest = ATTEND(q[:, size:], keys[..., size:], values[:, :, size:], moved)
    np.testing.assert_allclose(rest, whole[:, size:], rtol=1e-5, atol=1e-6)


def test_bfloat16_is_summed_in_float32():
  short = jax.tree.map(
    lambda x: x if x.dtype == bool else x.astype(jnp.bfloat16), CASES['tree']()
  )
  full = jax.tree.map(
    lambda x: x if x.dtype == bool else x.astype(jnp.float32), short
  )
  got = ATTEND(*short)
  assert got.dtype == jnp.bfloat16
  # Rounded: queries by a power of 2, not at all; shares; and the result.
  np.testing.assert_allclose(
    got.astype(jnp.float32), slow(*full), rtol=2**-7, atol=2**-7
  )
