"""Matrices of small whole numbers in blocks, as GGUF files hold them."""

import flax.struct
import jax
import jax.numpy as jnp

# Inputs that share a scale.
SIZE = 32


@flax.struct.dataclass
class Blocks:
  """A matrix, or a stack of them, in blocks of 32 inputs of an output.

  `w_i = scale q_i + offset`, which is exact in float32: `q` has at most 8 bits
  and a scale 11.

  Attributes:
    quants: `[..., in, out]` or `[..., out, in]` int8; one a byte, since two in
      a byte take longer to take apart than to read.
    scales: `[..., in / 32, out]` or `[..., out, in / 32]` float16.
    offsets: as the scales; None for 0.
  """

  quants: jax.Array
  scales: jax.Array
  offsets: jax.Array | None = None

  @property
  def shape(self) -> tuple[int, ...]:
    """Of the matrix."""
    return self.quants.shape

  @property
  def ndim(self) -> int:
    """Length of the shape."""
    return self.quants.ndim

  @property
  def dtype(self) -> jnp.dtype:
    """Of the values."""
    return jnp.dtype(jnp.float32)

  def values(self) -> jax.Array:
    """Returns the matrix in float32."""
    # The axis of inputs is that on which there are fewer scales.
    axis = self.ndim - 1
    if self.scales.shape[axis] == self.shape[axis]:
      axis -= 1
    blocked = (*self.shape[:axis], -1, SIZE, *self.shape[axis + 1 :])
    each = lambda x: jnp.expand_dims(x.astype(jnp.float32), axis + 1)
    values = self.quants.astype(jnp.float32).reshape(blocked)
    values = values * each(self.scales)
    if self.offsets is not None:
      values = values + each(self.offsets)
    return values.reshape(self.shape)
