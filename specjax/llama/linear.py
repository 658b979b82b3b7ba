"""How weights are stored and multiplied: the only file that knows.

A matrix is stored `[in, out]`, a stack of them `[L, in, out]`; the head, like
the embedding, is stored by token, `[V, E]`.  Storage is float32, bfloat16 or
float16; float16 is storage only, and computes in float32.
"""

import jax
import jax.numpy as jnp
from jax import lax


def compute_dtype(storage: jnp.dtype) -> jnp.dtype:
  """The type of activations that go with a storage type.

  Args:
    storage: type of the weights.

  Returns:
    bfloat16 for bfloat16, else float32.
  """
  return jnp.bfloat16 if storage == jnp.bfloat16 else jnp.float32


def matmul(x: jax.Array, w: jax.Array) -> jax.Array:
  """`x w`, summed in float32.

  Args:
    x: `[..., in]`, in the compute type of `w`.
    w: `[in, out]`.

  Returns:
    `[..., out]`, of the type of `x`.
  """
  return _dot(x, w, 0).astype(x.dtype)


def matmul_rows(x: jax.Array, w: jax.Array) -> jax.Array:
  """`x wᵀ` for a matrix stored by output, kept in float32.

  Args:
    x: `[..., in]`, in the compute type of `w`.
    w: `[out, in]`.

  Returns:
    `[..., out]` float32.
  """
  return _dot(x, w, 1)


def _dot(x, w, contracted):
  return lax.dot_general(
    x,
    w.astype(x.dtype),
    (((x.ndim - 1,), (contracted,)), ((), ())),
    precision=lax.Precision.HIGHEST,
    preferred_element_type=jnp.float32,
  )
