"""One softmax over two sets of keys: those of the cache and the block's own.

Keys of a pass are not in the cache yet, and joining both would copy the cache
once a layer.  So each set has its own products, and the two share the softmax.
Products are of full precision on every platform, for a tree pass and a plain
step have to find the same tokens; in bfloat16 that costs a TPU nothing.

The same lines serve CPUs and accelerators.  What JAX has was compared:

`jax.nn.dot_product_attention` wants one set of keys, `[S, K, H]`.  Two calls
can be joined by their log-sum-exps, but these come rounded to the type of the
keys and without gradients.  Where nothing is open it averages everything, in
float32 it is not of full precision unless told so, and its cuDNN kernel takes
no float32.  Thousands of cycles, as XLA estimates them for a TPU v5e, of
attention to 2048 slots (8 key heads of 128, 4 query heads each, bfloat16):

  rows, tokens    here   keys joined   two calls
  1, 1              49            83          75
  1, 64            146           196         185
  8, 1             228           574         401
  8, 64           1734          1388        1961

Here each slot is read once, where it lies, and masks and exponentials become
part of the products; but for the last line all scores stay on the chip.  In the
loop of a whole Llama 8B (v5p) the three differ by 4 % of a layer at most for
one row.  For 16 rows of one token two calls are 22 % cheaper as long as XLA
turns the cache for the scatter of `cache.commit`, and 82 % dearer where it does
not.  GPUs were not compared.

Kernels in Pallas: `paged_attention` and `decode_attention` have one query a
row, `ragged_paged_attention` is causal; `flash_attention` needs keys repeated
for their query heads and a bias for every score; `splash_attention` divides by
0 where nothing is open and has no gradient beside log-sum-exps.  Those for TPUs
cannot be split over a mesh by XLA, as models in parts are.
"""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
from jax import lax


class View(NamedTuple):
  """What the queries of a block see in one layer's cache and in the block.

  Attributes:
    keys: `[B, K, H, S]`, cached.
    values: `[B, K, S, H]`, cached.
    cache_mask: `[B, 1 or T, S]` bool.
    block_mask: `[B or 1, T, T]` bool, query by key.
  """

  keys: jax.Array
  values: jax.Array
  cache_mask: jax.Array
  block_mask: jax.Array


def attend(
  q: jax.Array, keys: jax.Array, values: jax.Array, view: View
) -> jax.Array:
  """One softmax over the cache's and the block's keys, in float32.

  `out = sum_j e^{q k_j / sqrt(H)} v_j / sum_j e^{q k_j / sqrt(H)}` over the
  open `j` of both parts; 0 where none is open.

  Args:
    q: `[B, T, Q, H]`; consecutive queries share a key head.
    keys: `[B, K, H, T]`, of the block.
    values: `[B, K, T, H]`, of the block.
    view: of the cache and of the block.

  Returns:
    `[B, T, Q, H]`, of the type of `q`.
  """
  batch, num_tokens, num_heads, head_dim = q.shape
  num_kv_heads = keys.shape[1]
  chex.assert_shape(keys, (batch, num_kv_heads, head_dim, num_tokens))
  grouped = (batch, num_tokens, num_kv_heads, num_heads // num_kv_heads)
  q = q.reshape(*grouped, head_dim).transpose(0, 2, 3, 1, 4)
  q = q * jnp.asarray(head_dim**-0.5, q.dtype)
  # [B, K, G, T, S] and [B, K, G, T, T].
  parts = [
    _scores(q, view.keys, view.cache_mask),
    _scores(q, keys, view.block_mask),
  ]
  highest = [jnp.max(part, axis=-1, keepdims=True) for part in parts]
  highest = lax.stop_gradient(jnp.maximum(*highest))
  # A finite stand-in where nothing is open: -inf less -inf would be NaN.
  highest = jnp.maximum(highest, jnp.finfo(jnp.float32).min)
  parts = [jnp.exp(part - highest) for part in parts]
  total = sum(jnp.sum(part, axis=-1, keepdims=True) for part in parts)
  out = _mix(parts[0], view.values) + _mix(parts[1], values)
  out = out / jnp.where(total > 0, total, 1)
  return (
    out.transpose(0, 3, 1, 2, 4)
    .reshape(batch, num_tokens, num_heads, head_dim)
    .astype(q.dtype)
  )


def _scores(q, keys, mask):
  scores = jnp.einsum(
    'bkgth,bkhs->bkgts',
    q,
    keys,
    precision=lax.Precision.HIGHEST,
    preferred_element_type=jnp.float32,
  )
  return jnp.where(mask[:, None, None], scores, -jnp.inf)


def _mix(shares, values):
  return jnp.einsum(
    'bkgts,bksh->bkgth',
    shares.astype(values.dtype),
    values,
    precision=lax.Precision.HIGHEST,
    preferred_element_type=jnp.float32,
  )
