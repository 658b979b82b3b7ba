"""One layer and its parts: RMSNorm, attention and the gated feed-forward."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from specjax.llama import attention as attention_lib
from specjax.llama import config as llama_config
from specjax.llama import linear, rope


def run(
  config: llama_config.LlamaConfig,
  weights: Mapping[str, Any],
  x: jax.Array,
  turn: tuple[jax.Array, jax.Array],
  view: attention_lib.View,
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
  view: attention_lib.View,
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
  q, k, v = map(split, linear.matmuls(x, [weights[name] for name in 'qkv']))
  if config.qk_norm:
    q = rms_norm(q, weights['q_norm'], config.norm_eps)
    k = rms_norm(k, weights['k_norm'], config.norm_eps)
  q, k = rope.rotate(q, *turn), rope.rotate(k, *turn)
  keys, values = k.transpose(0, 2, 3, 1), v.transpose(0, 2, 1, 3)
  mixed = attention_lib.attend(q, keys, values, view)
  mixed = mixed.reshape(*x.shape[:2], -1)
  return linear.matmul(mixed, weights['o']), (keys, values)


def ffn(weights: Mapping[str, Any], x: jax.Array) -> jax.Array:
  """`(silu(x gate) * (x up)) down`.

  Source: Shazeer, arXiv 2002.05202 (SwiGLU).

  Args:
    weights: one layer's `gate`, `up` and `down`.
    x: `[B, T, E]`, normalised.

  Returns:
    What is added to the residual stream, `[B, T, E]`.
  """
  gate, up = linear.matmuls(x, [weights['gate'], weights['up']])
  return linear.matmul(jax.nn.silu(gate) * up, weights['down'])
