"""Trees that a model grows: which nodes there are depends on its laws.

For verification rules that want a deterministic tree.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from specjax import sampling as sampling_lib
from specjax.draft import base
from specjax.draft import reader as reader_lib
from specjax.trees import grow

# `(logits [B, W, V], sampling) -> log_q [B, W, V]`, in nats.
LawFn = Callable[[jax.Array, sampling_lib.Sampling], jax.Array]


def tempered(logits: jax.Array, sampling: sampling_lib.Sampling) -> jax.Array:
  """Returns the law by which a drafter ranks: at the row's temperature.

  Rows of temperature 0 are ranked at 1, since a law that knows one token fills
  no tree; nothing is filtered, since what the drafter would cut the verifier
  may not.

  Args:
    logits: `[B, W, V]`.
    sampling: parameters, `[B]`.

  Returns:
    `[B, W, V]` log-probabilities in nats.
  """
  greedy = sampling.temperature == 0
  temperature = jnp.where(greedy, 1.0, sampling.temperature)
  return jax.nn.log_softmax(logits / temperature[:, None, None])


def without(log_q: jax.Array, tokens: tuple[int, ...]) -> jax.Array:
  """Returns the laws `[..., V]` with some tokens at `-inf`."""
  return log_q.at[..., jnp.asarray(tokens, jnp.int32)].set(-jnp.inf)


@functools.cache
def make(
  reader: reader_lib.Reader,
  rule_fn: grow.RuleFn,
  max_nodes: int,
  eos_ids: tuple[int, ...],
  law_fn: LawFn = tempered,
) -> base.Drafter:
  """Returns a drafter whose trees grow by a rule.

  Args:
    reader: the model that drafts.
    rule_fn: from a number of nodes to the rule.
    max_nodes: largest tree that will be asked for.
    eos_ids: tokens that end a text; no token follows them, so they are worth
      nothing to a tree and are left out.
    law_fn: what nodes are ranked by.

  Returns:
    The drafter; its `params.drafter` is what the reader wants.

  Raises:
    ValueError: what the rule refuses for the largest tree; in `propose`, a tree
      larger than that.
  """
  largest = rule_fn(max_nodes)

  def init(params, prefix):
    return reader.init(params, prefix, largest.num_slots)

  def propose(params, memory, tokens, lengths, num_nodes):
    reader_lib.check_size(num_nodes, max_nodes)

    def read(memory, nodes):
      logits, memory = reader.read(params, memory, nodes)
      return without(law_fn(logits, params.sampling), eos_ids), memory

    roots = base.last_tokens(tokens, lengths)
    tree, slots, memory = grow.grow(rule_fn(num_nodes), roots, read, memory)
    return base.Proposal(tree), (memory, (tree.tokens, slots))

  def observe(params, state, verdict):
    memory, nodes = state
    num_slots = rule_fn(nodes[0].shape[1]).num_slots
    return reader_lib.keep_path(
      reader, params, memory, nodes, verdict, num_slots
    )

  return base.Drafter(init, propose, observe, reader.features)
