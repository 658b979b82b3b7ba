"""Rotary position embedding in the half-split layout of Hugging Face."""

import chex
import jax
import jax.numpy as jnp
import numpy as np

from specjax.llama import config as llama_config


def inverse_frequencies(
  rope: llama_config.RopeConfig, head_dim: int
) -> np.ndarray:
  """Radians per position of each pair of coordinates.

  Plain: `f_i = theta^(-2i/H)`.  Linear: `f_i / factor`.  Llama 3, with wave
  length `w_i = 2 pi / f_i` and training length `P`:

    s_i = clip((P / w_i - low) / (high - low), 0, 1)
    f_i (s_i + (1 - s_i) / factor)

  Source: Su et al., arXiv 2104.09864; Chen et al., arXiv 2306.15595 (linear);
  the Llama 3.1 release (llama3).

  Args:
    rope: kind and parameters.
    head_dim: `H`.

  Returns:
    `[H/2]` float32; computed in float64, since positions multiply its errors.
  """
  plain = rope.theta ** (-np.arange(0, head_dim, 2, np.float64) / head_dim)
  if rope.kind == 'linear':
    plain = plain / rope.factor
  elif rope.kind == 'llama3':
    turns = rope.original_max_positions * plain / (2 * np.pi)
    low, high = rope.low_freq_factor, rope.high_freq_factor
    keep = np.clip((turns - low) / (high - low), 0, 1)
    plain = plain * (keep + (1 - keep) / rope.factor)
  return plain.astype(np.float32)


def angles(
  rope: llama_config.RopeConfig, head_dim: int, positions: jax.Array
) -> tuple[jax.Array, jax.Array]:
  """Cosines and sines of the rotation at each position.

  The products are float32 multiplications, never a matrix product: one in
  bfloat16 would round position 257 to 256.

  Args:
    rope: kind and parameters.
    head_dim: `H`.
    positions: `[B, T]` int32.

  Returns:
    `cos [B, T, 1, H/2]` and `sin` alike, float32.
  """
  frequencies = inverse_frequencies(rope, head_dim)
  radians = positions[..., None, None].astype(jnp.float32) * frequencies
  return jnp.cos(radians), jnp.sin(radians)


def rotate(x: jax.Array, cos: jax.Array, sin: jax.Array) -> jax.Array:
  """Rotates coordinate `i` with coordinate `i + H/2` by the given angles.

  `(x, y) -> (x cos - y sin, y cos + x sin)`, in float32.

  Args:
    x: `[B, T, heads, H]`.
    cos: `[B, T, 1, H/2]`.
    sin: `[B, T, 1, H/2]`.

  Returns:
    `[B, T, heads, H]`, of the type of `x`.
  """
  chex.assert_rank([x, cos, sin], 4)
  left, right = jnp.split(x.astype(jnp.float32), 2, axis=-1)
  turned = [left * cos - right * sin, right * cos + left * sin]
  return jnp.concatenate(turned, axis=-1).astype(x.dtype)
