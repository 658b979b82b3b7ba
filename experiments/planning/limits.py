"""What the machine itself can do: the two sides of its roofline."""

import time
from collections.abc import Callable

import jax
import jax.numpy as jnp

# Of the matrix that is read: 256 MB, more than any cache holds.
_READ_SIZE = 8192
_COMPUTED_SIZE = 2048


def reading_timer() -> Callable[[], float]:
  """Returns a timer of reading: seconds a byte, by a matrix times a vector."""
  matrix = jnp.ones((_READ_SIZE, _READ_SIZE), jnp.float32)
  vector = jnp.ones(_READ_SIZE, jnp.float32)
  return lambda: _seconds(matrix, vector) / matrix.nbytes


def computing_timer(dtype: jnp.dtype) -> Callable[[], float]:
  """Returns a timer of computing: seconds an operation, by a matrix product.

  Args:
    dtype: of both matrices.
  """
  matrix = jnp.ones((_COMPUTED_SIZE, _COMPUTED_SIZE), dtype)
  return lambda: _seconds(matrix, matrix) / (2 * _COMPUTED_SIZE**3)


def _seconds(left, right):
  begin = time.perf_counter()
  jax.block_until_ready(_product(left, right))
  return time.perf_counter() - begin


@jax.jit
def _product(left, right):
  return left @ right
