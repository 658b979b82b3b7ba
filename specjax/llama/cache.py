"""Keys and values of the tokens that a model has read.

A pass reads the cache and returns its own keys and values apart, as `NewKV`.
What becomes of them is the caller's choice: `commit` appends the accepted ones
and `stash` keeps any of them in slots of one's own.  Rejected tokens are never
written, so nothing is ever rolled back.
"""

import chex
import flax.struct
import jax
import jax.numpy as jnp
from jax import lax

from specjax.llama import config as llama_config


@flax.struct.dataclass
class KVCache:
  """Keys and values by slot; both products of attention read rows of them.

  Attributes:
    keys: `[L, B, K, H, S]`.
    values: `[L, B, K, S, H]`.
    length: `[B]` int32, committed slots of each row.
  """

  keys: jax.Array
  values: jax.Array
  length: jax.Array

  @property
  def num_slots(self) -> int:
    """`S`."""
    return self.keys.shape[-1]


@flax.struct.dataclass
class NewKV:
  """Keys and values of the tokens of one pass.

  Attributes:
    keys: `[L, B, K, H, T]`.
    values: `[L, B, K, T, H]`.
  """

  keys: jax.Array
  values: jax.Array


# The axis of rows of each array.
ROW_AXES = KVCache(keys=1, values=1, length=0)


def init(
  config: llama_config.LlamaConfig,
  batch: int,
  num_slots: int,
  dtype: jnp.dtype,
) -> KVCache:
  """An empty cache.

  Args:
    config: the model; its `num_layers` is the depth of the cache.
    batch: `B`.
    num_slots: `S`, longest text plus scratch slots.
    dtype: of keys and values.

  Returns:
    Zeros, every length 0.

  Raises:
    ValueError: a batch or a number of slots below 1.
  """
  if batch < 1 or num_slots < 1:
    raise ValueError(
      'expected a batch and num_slots of at least 1, got '
      f'{batch} and {num_slots}'
    )
  heads = (config.num_layers, batch, config.num_kv_heads)
  return KVCache(
    keys=jnp.zeros((*heads, config.head_dim, num_slots), dtype),
    values=jnp.zeros((*heads, num_slots, config.head_dim), dtype),
    length=jnp.zeros(batch, jnp.int32),
  )


def of_pass(new_kv: NewKV, lengths: jax.Array, num_slots: int) -> KVCache:
  """A cache of the first tokens of a pass.

  As `commit` to an empty cache, but nothing is scattered.

  Args:
    new_kv: of a pass over `T` tokens.
    lengths: `[B]` int32, tokens of each row that count.
    num_slots: `S`, at least the largest of the lengths.

  Returns:
    Their keys and values, and zeros behind them.
  """
  is_open = jnp.arange(num_slots) < lengths[:, None]

  def slots(x, axis):
    num_missing = num_slots - x.shape[axis]
    widths = [(0, 0, 0)] * x.ndim
    widths[axis] = (0, num_missing, 0)  # cuts what is too long
    x = lax.pad(x, jnp.zeros((), x.dtype), widths)
    shape = [1, len(is_open), *[1] * (x.ndim - 2)]
    shape[axis] = num_slots
    return jnp.where(is_open.reshape(shape), x, 0)

  return KVCache(
    keys=slots(new_kv.keys, axis=4),
    values=slots(new_kv.values, axis=3),
    length=lengths,
  )


def commit(
  cache: KVCache, new_kv: NewKV, path: jax.Array, num_accepted: jax.Array
) -> KVCache:
  """Appends the accepted tokens of a pass, each row its own number.

  Slot `length[b] + a` takes token `path[b, a]` for `a < num_accepted[b]`.  A
  write of fixed width would run over committed slots where it reaches the end
  of the cache; here what is not accepted, or does not fit, is dropped.

  Args:
    cache: to append to.
    new_kv: of a pass over `T` tokens.
    path: `[B, A]` int32 indices into the `T` tokens.
    num_accepted: `[B]` int32, how many entries of `path` count.

  Returns:
    The cache with `length + num_accepted`.
  """
  chex.assert_rank([path, num_accepted], [2, 1])
  order = jnp.arange(path.shape[1])
  slots = cache.length[:, None] + order
  slots = jnp.where(order < num_accepted[:, None], slots, cache.num_slots)
  path = path[None, :, None]
  accepted = NewKV(
    keys=jnp.take_along_axis(
      new_kv.keys, path[..., None, :], axis=4, mode='clip'
    ),
    values=jnp.take_along_axis(
      new_kv.values, path[..., None], axis=3, mode='clip'
    ),
  )
  written = stash(cache, accepted, slots)
  return written.replace(length=cache.length + num_accepted)


def stash(cache: KVCache, new_kv: NewKV, slots: jax.Array) -> KVCache:
  """Writes the tokens of a pass to chosen slots and commits none of them.

  Args:
    cache: to write to.
    new_kv: of a pass over `T` tokens.
    slots: `[B, T]` int32; a token whose slot is not in `[0, S)` is dropped.

  Returns:
    The cache with the same `length`.
  """
  chex.assert_shape(slots, (cache.length.shape[0], new_kv.keys.shape[-1]))
  # Negative indices would count from the end.
  slots = jnp.where(slots < 0, cache.num_slots, slots)
  rows = jnp.arange(slots.shape[0])[:, None]
  # Indexing by (row, slot) brings those axes to the front.
  keys = jnp.moveaxis(new_kv.keys, (1, 4), (0, 1)).astype(cache.keys.dtype)
  values = jnp.moveaxis(new_kv.values, (1, 3), (0, 1))
  values = values.astype(cache.values.dtype)
  return cache.replace(
    keys=cache.keys.at[:, rows, :, :, slots].set(keys, mode='drop'),
    values=cache.values.at[:, rows, :, slots].set(values, mode='drop'),
  )
