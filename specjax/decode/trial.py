"""Drafts on trial: all that a verification rule may look at."""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp

from specjax import noise as noise_lib
from specjax import sampling as sampling_lib
from specjax.draft import base
from specjax.trees import tree as tree_lib


class Trial(NamedTuple):
  """A batch of trees, the verifier's laws and the noise.

  Attributes:
    proposal: the trees, and the laws they were drawn from or None.
    laws_fn: from one node of each row, `[B]`, to the verifier's laws after
      them, `[B, V]`.
    token_fn: `(nodes [B], depth []) -> (tokens [B], log_p [B])`, what plain
      decoding says after nodes.
    seeds: `[B]` uint32 request seeds.
    starts: `[B]` absolute position of the first token that may be added.
    active: `[B]` bool; other rows emit nothing.
  """

  proposal: base.Proposal
  laws_fn: Callable[[jax.Array], sampling_lib.Laws]
  token_fn: Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]
  seeds: jax.Array
  starts: jax.Array
  active: jax.Array

  def children(self, nodes: jax.Array) -> jax.Array:
    """Returns `[B, N]` bool: the children of one node of each row.

    Args:
      nodes: `[B]`.
    """
    trees = self.proposal.tree
    is_present = jax.vmap(tree_lib.present)(trees)
    return is_present & (trees.parents == nodes[:, None])

  def log_q(self, nodes: jax.Array, vocab_size: int) -> jax.Array:
    """Returns `[B, V]`: the laws that the nodes' children were drawn from.

    Args:
      nodes: `[B]`.
      vocab_size: `V`, of the verifier.

    Raises:
      ValueError: drafts without laws, or laws of another vocabulary.
    """
    log_q = self.proposal.log_q_full
    if log_q is None:
      raise ValueError(
        'expected the laws that drafts were drawn from, which every rule but '
        "'match' weighs, got a drafter without log_q_full"
      )
    if log_q.shape[-1] != vocab_size:
      raise ValueError(
        f'expected laws of drafts over {vocab_size} tokens, as the verifier '
        f'has, got {log_q.shape[-1]}'
      )
    return jnp.take_along_axis(log_q, nodes[:, None, None], axis=1)[:, 0]

  def coins(self) -> jax.Array:
    """Returns `[B, N]` float32: a coin for every node, uniform in [0, 1)."""
    num_nodes = self.proposal.tree.tokens.shape[1]
    return noise_lib.coins(self.seeds, self.starts, num_nodes)

  def draw(self, log_law: jax.Array, depth: jax.Array, use: int) -> jax.Array:
    """Returns `[B]` int32: the token that each law gives behind a node.

    Args:
      log_law: `[B, V]` log-probabilities in nats.
      depth: `[]` of the nodes.
      use: what the draw is for.
    """
    return sampling_lib.choose(log_law, self.seeds, self.starts + depth, use)
