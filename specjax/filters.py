"""Top-k, top-p and min-p: which tokens of a law can be sampled at all.

No sort: a cut is a threshold, found by bisection over the floats, because a
full sort of a vocabulary costs as much as several nodes of a small model.
"""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

_LOWEST_KEY = np.iinfo(np.int32).min
_HIGHEST_KEY = np.iinfo(np.int32).max


def is_cut(top_k: jax.Array, top_p: jax.Array, min_p: jax.Array) -> jax.Array:
  """Returns bool of the parameters' shape: whether they cut any token.

  Args:
    top_k: keep the k most probable tokens, 0 keeps all.
    top_p: keep the fewest most probable tokens of at least this mass.
    min_p: keep tokens of at least min_p times the largest probability.
  """
  return (top_k > 0) | (top_p < 1) | (min_p > 0)


def cut(
  logits: jax.Array, top_k: jax.Array, top_p: jax.Array, min_p: jax.Array
) -> jax.Array:
  """Sets the logits of the tokens that are cut to `-inf`, `[..., V]`.

  Top-k first, then top-p of what it left, then min-p.  Tokens that tie with the
  last one kept are kept too.

  Args:
    logits: `[..., V]` float32, temperature applied.
    top_k: `[..., 1]` int32.
    top_p: `[..., 1]` float32.
    min_p: `[..., 1]` float32.
  """
  keys = _sortable(logits)

  def enough_tokens(threshold):
    count = jnp.sum(keys >= threshold, axis=-1, keepdims=True)
    return (top_k > 0) & (count >= top_k)

  logits = jnp.where(
    keys >= _largest_threshold(enough_tokens, keys), logits, -jnp.inf
  )
  p = jax.nn.softmax(logits)

  def enough_mass(threshold):
    mass = jnp.sum(jnp.where(keys >= threshold, p, 0.0), axis=-1, keepdims=True)
    return (top_p < 1) & (mass >= top_p)

  kept = keys >= _largest_threshold(enough_mass, keys)
  kept &= p >= min_p * jnp.max(p, axis=-1, keepdims=True)
  return jnp.where(kept, logits, -jnp.inf)


def _largest_threshold(satisfied_fn, keys: jax.Array) -> jax.Array:
  """Largest int32 `t` with `satisfied_fn(t)`, which holds up to some point.

  If it holds nowhere the result is the lowest key, which cuts nothing.
  """

  def halve(_, bounds):
    low, high = bounds
    # The mean rounded up, without overflow of low + high.
    middle = (low | high) - ((low ^ high) >> 1)
    good = satisfied_fn(middle)
    return jnp.where(good, middle, low), jnp.where(good, high, middle - 1)

  ends = lambda end: jnp.full((*keys.shape[:-1], 1), end, jnp.int32)
  low, _ = lax.fori_loop(0, 32, halve, (ends(_LOWEST_KEY), ends(_HIGHEST_KEY)))
  return low


def _sortable(x: jax.Array) -> jax.Array:
  """Maps float32 to int32 so that the order is kept (-0 lies below +0)."""
  bits = lax.bitcast_convert_type(x, jnp.int32)
  return bits ^ ((bits >> 31) & _HIGHEST_KEY)
