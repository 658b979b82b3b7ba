"""Which keys a query may see; True opens."""

import jax
import jax.numpy as jnp


def causal(num_tokens: int) -> jax.Array:
  """Opens a token's own and all earlier positions of its block.

  Args:
    num_tokens: `T`.

  Returns:
    `[1, T, T]` bool; for `T = 3`

      1 0 0
      1 1 0
      1 1 1
  """
  return jnp.tril(jnp.ones((1, num_tokens, num_tokens), bool))


def within(documents: jax.Array) -> jax.Array:
  """Opens a token's own and earlier positions of its document.

  Args:
    documents: `[B, T]` int32, which text of its row a token belongs to.

  Returns:
    `[B, T, T]` bool, query by key.
  """
  same = documents[:, :, None] == documents[:, None]
  return same & causal(documents.shape[1])


def committed(length: jax.Array, num_slots: int) -> jax.Array:
  """Opens the first `length` slots of each row's cache.

  Args:
    length: `[B]` int32, slots in use.
    num_slots: `S`.

  Returns:
    `[B, 1, S]` bool, the same for every query of a row.
  """
  return (jnp.arange(num_slots) < length[:, None])[:, None]
