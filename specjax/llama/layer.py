"""One layer and its parts: RMSNorm, attention and the gated feed-forward."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import chex
import jax
import jax.numpy as jnp
from jax import lax

from specjax.llama import config as llama_config
from specjax.llama import linear, rope


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


def run(
  config: llama_config.LlamaConfig,
  weights: Mapping[str, Any],
  x: jax.Array,
  turn: tuple[jax.Array, jax.Array],
  view: View,
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
  """`y = x + attention(norm(x))`, then `y + ffn(norm(y))`.

  Args:
    config: sizes and switches.
    weights: of one layer.
    x: `[B, T, E]`, the residual stream.
    turn: cosines and sines of `rope.angles`.
    view: of the cache and of the block.

  Returns:
    The residual stream behind the layer, `[B, T, E]`, and the block's own keys
    `[B, K, H, T]` and values `[B, K, T, H]`.
  """
  norm = lambda name: rms_norm(x, weights[name], config.norm_eps)
  mixed, new_kv = attention(config, weights, norm('attention_norm'), turn, view)
  x = x + mixed
  return x + ffn(weights, norm('ffn_norm')), new_kv


def rms_norm(x: jax.Array, scale: jax.Array, eps: float) -> jax.Array:
  """`scale x / sqrt(mean(x²) + eps)`, in float32.

  Source: Zhang and Sennrich, arXiv 1910.07467.

  Args:
    x: `[..., E]`.
    scale: `[E]`.
    eps: keeps the root away from 0.

  Returns:
    `[..., E]`, of the type of `x`.
  """
  full = x.astype(jnp.float32)
  mean_square = jnp.mean(full * full, axis=-1, keepdims=True)
  return (full * lax.rsqrt(mean_square + eps) * scale).astype(x.dtype)


def attention(
  config: llama_config.LlamaConfig,
  weights: Mapping[str, Any],
  x: jax.Array,
  turn: tuple[jax.Array, jax.Array],
  view: View,
) -> tuple[jax.Array, tuple[jax.Array, jax.Array]]:
  """Grouped-query attention to the cache and to the block.

  Source: Ainslie et al., arXiv 2305.13245.

  Args:
    config: sizes and switches.
    weights: one layer's `q`, `k`, `v`, `o` and, with `qk_norm`, the norms
      `q_norm` and `k_norm`.
    x: `[B, T, E]`, normalised.
    turn: cosines and sines of `rope.angles`.
    view: of the cache and of the block.

  Returns:
    What is added to the residual stream, `[B, T, E]`, and the block's own keys
    `[B, K, H, T]` and values `[B, K, T, H]`.
  """
  split = lambda y: y.reshape(*y.shape[:2], -1, config.head_dim)
  q = split(linear.matmul(x, weights['q']))
  k = split(linear.matmul(x, weights['k']))
  v = split(linear.matmul(x, weights['v']))
  if config.qk_norm:
    q = rms_norm(q, weights['q_norm'], config.norm_eps)
    k = rms_norm(k, weights['k_norm'], config.norm_eps)
  q, k = rope.rotate(q, *turn), rope.rotate(k, *turn)
  keys, values = k.transpose(0, 2, 3, 1), v.transpose(0, 2, 1, 3)
  mixed = attend(q, keys, values, view)
  mixed = mixed.reshape(*x.shape[:2], -1)
  return linear.matmul(mixed, weights['o']), (keys, values)


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


def ffn(weights: Mapping[str, Any], x: jax.Array) -> jax.Array:
  """`(silu(x gate) * (x up)) down`.

  Source: Shazeer, arXiv 2002.05202 (SwiGLU).

  Args:
    weights: one layer's `gate`, `up` and `down`.
    x: `[B, T, E]`, normalised.

  Returns:
    What is added to the residual stream, `[B, T, E]`.
  """
  gate = linear.matmul(x, weights['gate'])
  up = linear.matmul(x, weights['up'], after=gate)
  return linear.matmul(jax.nn.silu(gate) * up, weights['down'])


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
