"""How weights are stored and multiplied: the only file that knows.

A matrix is stored `[in, out]`, a stack of them `[L, in, out]`; the head, like
the embedding, is stored by token, `[V, E]`.  Storage is float32, bfloat16 or
float16; float16 is storage only, and computes in float32.

On a CPU a layer is fast where each matrix passes through the cache once.  A
scan over layers copies every matrix out of its stack, and since none of these
copies needs another, XLA makes all of them before the first product: too many
for the cache.  So a matrix of a stack is an `Entry`, which the product reads,
and on a CPU no sooner than its input is there.
"""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax


class Entry(NamedTuple):
  """A matrix of a stack that is not read yet.

  Attributes:
    stack: `[L, in, out]`.
    number: int32 in `[0, L)`.
  """

  stack: jax.Array
  number: jax.Array


def compute_dtype(storage: jnp.dtype) -> jnp.dtype:
  """The type of activations that go with a storage type.

  Args:
    storage: type of the weights.

  Returns:
    bfloat16 for bfloat16, else float32.
  """
  return jnp.bfloat16 if storage == jnp.bfloat16 else jnp.float32


def entries(
  stacks: Mapping[str, jax.Array], number: jax.Array
) -> dict[str, jax.Array | Entry]:
  """One layer's weights, of which the matrices are yet to be read.

  Args:
    stacks: of all layers, vectors `[L, size]` and matrices `[L, in, out]`.
    number: int32 of the layer.

  Returns:
    Vectors, and an `Entry` for each matrix.
  """
  return {
    name: Entry(stack, number) if stack.ndim == 3 else stack[number]
    for name, stack in stacks.items()
  }


def matmul(
  x: jax.Array, w: jax.Array | Entry, after: jax.Array | None = None
) -> jax.Array:
  """`x w`, summed in float32.

  Args:
    x: `[..., in]`, in the compute type of `w`.
    w: `[in, out]`.
    after: what an `Entry` waits for in place of `x`: the product before this
      one, where both have the same input.

  Returns:
    `[..., out]`, of the type of `x`.
  """
  if isinstance(w, Entry):
    w = w.stack[_behind(w.number, x if after is None else after)]
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


def _behind(number, x):
  """Returns `number`, on a CPU by way of `x`."""

  def wait():
    # Adds 0, which XLA cannot know; an optimization_barrier would be removed
    # before the order is made.
    return number + (x[(0,) * x.ndim] > jnp.inf).astype(number.dtype)

  return lax.platform_dependent(cpu=wait, default=lambda: number)


def _dot(x, w, contracted):
  return lax.dot_general(
    x,
    w.astype(x.dtype),
    (((x.ndim - 1,), (contracted,)), ((), ())),
    precision=lax.Precision.HIGHEST,
    preferred_element_type=jnp.float32,
  )
