"""Environments: the law that stands at every node of a branching random walk.

An environment is a frozen struct.  What is random about a child is drawn from
its parent's key and its token, so whoever comes back to a node, by whatever
way, finds the law that was there before.
"""

from typing import Protocol

import flax
import jax

from specjax.theory import entropy as entropy_lib
from specjax.theory import offers as offers_lib


@flax.struct.dataclass
class State:
  """All that the future of a node depends on.

  Attributes:
    key: `[2]` uint32, random bits of the node and of all below it.
    regime: `[]` int32, which of the environment's laws stands here.
  """

  key: jax.Array
  regime: jax.Array


class Environment(Protocol):
  """What the simulators ask of an environment.

  Attributes:
    vocab_size: `V`.
    bytes_to_read: of working memory, to find the children of one node.
  """

  vocab_size: int
  bytes_to_read: int

  def root(self, key: jax.Array) -> State:
    """Draws the state of a start; the key is consumed."""

  def log_law(self, state: State) -> jax.Array:
    """Returns `[V]`: the log-probabilities after a node, in nats."""

  def child(self, state: State, token: jax.Array) -> State:
    """Returns the state of a node's child."""

  def offers(
    self, states: State, costs: jax.Array, low: jax.Array, high: jax.Array
  ) -> offers_lib.Offers:
    """Finds the children of nodes `[W]` that cost between two limits."""

  def moments(self) -> entropy_lib.Moments:
    """Returns `mu` and `mu2`, exact."""


def root_bits(key: jax.Array) -> jax.Array:
  """Returns `[2]` uint32: random bits for a start; the key is consumed."""
  # Its own data may be no more random than a seed.
  return hashed(jax.random.key_data(key), 0)


def hashed(bits: jax.Array, number: jax.Array) -> jax.Array:
  """Returns `[2]` uint32: random bits of a node and a number, its token say.

  Args:
    bits: `[2]` uint32, those of the node.
    number: `[]` an integer.
  """
  key = jax.random.wrap_key_data(bits)
  return jax.random.key_data(jax.random.fold_in(key, number))
