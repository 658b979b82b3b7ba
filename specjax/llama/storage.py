"""How weights are stored.

A matrix is stored `[in, out]`, a stack of them `[L, in, out]`; the head, like
the embedding, is stored by token, `[V, E]`.  Each is an array of float32,
bfloat16 or float16; or `Blocks`.  A `Matrix` is stored `[out, in]`, or in both
orders.
"""

from collections.abc import Mapping

import flax.struct
import jax
import jax.numpy as jnp

ORDERS = ('in_out', 'out_in', 'both')

# Inputs that share a scale.
BLOCK = 32


@flax.struct.dataclass
class Blocks:
  """A matrix, or a stack of them, in blocks of `BLOCK` inputs of an output.

  `w_i = scale q_i + offset`.  The product is exact in float32, for `q` has at
  most 8 bits and a scale 11; the sum is rounded once.

  Attributes:
    quants: `[..., in, out]` or `[..., out, in]` int8; or as uint8 and half as
      many inputs: a byte holds, in 4 bits each, one of the first half of a
      block and, as the higher bits, one of the second.
    scales: `[..., in / 32, out]` or `[..., out, in / 32]` float32; a file's
      float16 takes longer to widen than twice as many bytes to read.
    offsets: as the scales; None for 0.
  """

  quants: jax.Array
  scales: jax.Array
  offsets: jax.Array | None = None

  @property
  def shape(self) -> tuple[int, ...]:
    """Of the matrix."""
    shape = list(self.quants.shape)
    shape[self._axis] *= self.num_halves
    return tuple(shape)

  @property
  def ndim(self) -> int:
    """Length of the shape."""
    return self.quants.ndim

  @property
  def num_halves(self) -> int:
    """How many numbers a byte holds."""
    return 2 if self.quants.dtype == jnp.uint8 else 1

  @property
  def dtype(self) -> jnp.dtype:
    """Of the values."""
    return jnp.dtype(jnp.float32)

  def values(self) -> jax.Array:
    """Returns the matrix in float32."""
    numbers = self.quants
    if self.num_halves == 2:
      halves = jnp.expand_dims(self._blocked(numbers), self._axis + 1)
      shape = [2 if i == self._axis + 1 else 1 for i in range(halves.ndim)]
      shifts = jnp.array([0, 4], numbers.dtype).reshape(shape)
      numbers = ((halves >> shifts) & 15).reshape(self.shape)
    return self._scaled(numbers)

  def half(self, number: int) -> jax.Array:
    """Returns the inputs of one half of each block in float32.

    Args:
      number: 0 or 1; a byte has to hold two.

    Returns:
      `[..., in / 2, out]` or `[..., out, in / 2]`.
    """
    numbers = self.quants >> 4 if number else self.quants & 15
    return self._scaled(numbers)

  def _scaled(self, numbers):
    each = lambda x: jnp.expand_dims(x, self._axis + 1)
    values = self._blocked(numbers).astype(jnp.float32) * each(self.scales)
    if self.offsets is not None:
      values = values + each(self.offsets)
    return values.reshape(numbers.shape)

  def _blocked(self, numbers):
    """Parts the axis of inputs into blocks."""
    axis = self._axis
    before, after = numbers.shape[:axis], numbers.shape[axis + 1 :]
    return numbers.reshape(*before, self.scales.shape[axis], -1, *after)

  @property
  def _axis(self):
    """That of inputs; there are fewer scales on it than numbers."""
    last = self.ndim - 1
    return last - (self.scales.shape[last] == self.quants.shape[last])


Stored = jax.Array | Blocks


@flax.struct.dataclass
class Matrix:
  """A matrix or a stack of them, stored in one order or in both.

  Attributes:
    in_out: `[..., in, out]`, or None.
    out_in: `[..., out, in]`.
  """

  in_out: Stored | None
  out_in: Stored

  @property
  def ndim(self) -> int:
    """2, or 3 for a stack."""
    return self.out_in.ndim


def ordered(
  stacks: Mapping[str, Stored], order: str
) -> dict[str, Stored | Matrix]:
  """Stores the matrices of layers in another order.

  Args:
    stacks: of all layers, vectors `[L, size]` and matrices `[L, in, out]`.
    order: of `ORDERS`.

  Returns:
    The same, the matrices in that order.

  Raises:
    ValueError: an unknown order.
  """
  return {
    name: stack if stack.ndim < 3 else in_order(stack, order)
    for name, stack in stacks.items()
  }


def in_order(w: Stored, order: str) -> Stored | Matrix:
  """Stores a matrix in another order.

  Args:
    w: `[in, out]`, or a stack of them.
    order: of `ORDERS`.

  Raises:
    ValueError: an unknown order.
  """
  if order not in ORDERS:
    raise ValueError(f'expected an order of {ORDERS}, got {order!r}')
  if order == 'in_out':
    return w
  out_in = jax.tree.map(lambda x: x.swapaxes(-1, -2), w)
  return Matrix(w if order == 'both' else None, out_in)


def masked(stack: Stored | Matrix, kept: jax.Array) -> Stored | Matrix:
  """Makes some matrices of a stack 0.

  Args:
    stack: `[L, in, out]`.
    kept: `[L]`, 0 for those and 1 for the others.
  """
  return jax.tree.map(lambda x: x * kept.astype(x.dtype)[:, None, None], stack)


def num_bytes(w: Stored | Matrix) -> int:
  """Returns the bytes that a product reads.

  Args:
    w: a matrix or a vector, or a stack of them.
  """
  read = w.out_in if isinstance(w, Matrix) else w
  return sum(leaf.nbytes for leaf in jax.tree.leaves(read))


def take_rows(w: Stored, numbers: jax.Array) -> jax.Array:
  """Some rows of a matrix.

  Args:
    w: `[rows, size]`.
    numbers: `[...]` int32.

  Returns:
    `[..., size]`, of the type of the weights.
  """
  return values(jax.tree.map(lambda x: x[numbers], w))


def values(w: Stored) -> jax.Array:
  """Returns a matrix as an array; one that is an array as it is.

  Args:
    w: of any shape.
  """
  return w.values() if isinstance(w, Blocks) else w
