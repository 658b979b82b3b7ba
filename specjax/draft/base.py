"""What a drafter is: a tuple of three pure functions over a batch of rows."""

from collections.abc import Callable
from typing import NamedTuple

import chex
import jax
from flax import struct

from specjax import sampling as sampling_lib
from specjax.llama import cache as llama_cache
from specjax.llama import model as llama_model
from specjax.trees import tree as tree_lib


@struct.dataclass
class Params:
  """Everything that stays the same while rows are decoded.

  Attributes:
    verifier: the model that decides.
    drafter: what the drafter needs of its own: weights, tables, or `()`.
    sampling: sampling parameters, `[B]`. A drafter that draws from laws of its
      own leaves edits to the verifier: `sampling.replace(edits=None)`.
  """

  verifier: llama_model.Params
  drafter: chex.ArrayTree
  sampling: sampling_lib.Sampling


@struct.dataclass
class Prefix:
  """Prompts that the verifier has read.

  Attributes:
    tokens: `[B, S]` int32, 0 past the prompt.
    lengths: `[B]` int32 prompt lengths, at least 1.
    seeds: `[B]` uint32 request seeds, for drafters that draw.
    cache: the verifier's, of the first `lengths - 1` tokens.
    features: `[B, T, F, E]` inputs of the verifier's `feature_layers` at these
      tokens; None where no drafter wants them.
    feature_layers: which they are, static to jit.
  """

  tokens: jax.Array
  lengths: jax.Array
  seeds: jax.Array
  cache: llama_cache.KVCache
  features: jax.Array | None = None
  feature_layers: tuple[int, ...] = struct.field(pytree_node=False, default=())


@struct.dataclass
class Proposal:
  """A batch of draft trees.

  Attributes:
    tree: trees with a leading axis `[B]`.
    log_q_full: `[B, N, V]` float32, or None where the drafts were not drawn.
      At each node that has children the log of the very law that they were
      drawn from, after sampling parameters, `-inf` at tokens that are never
      drawn.  Children are drawn in the order of their nodes, each from that law
      or, without replacement, from what is left of it; which nodes there are
      does not depend on what was drawn.  `V` is the verifier's vocabulary.
  """

  tree: tree_lib.Tree
  log_q_full: jax.Array | None = None


@struct.dataclass
class Verdict:
  """What the verifier made of a batch of draft trees.

  Attributes:
    path: `[B, N]` int32 accepted nodes, the root first.
    tokens: `[B, N]` int32 emitted tokens; `tokens[:, d]` follows `path[:, d]`.
      The last of them is the bonus token, which is no node of the tree.
    log_p: `[B, N]` float32 log-probabilities of the emitted tokens in nats.
    num_accepted: `[B]` int32 accepted nodes, the root included, which is the
      number `D` of emitted tokens; 0 for a row that is done.
    features: `[B, N, F, E]` inputs of the layers `Drafter.features` at
      `path`; None where the drafter wants none.
  """

  path: jax.Array
  tokens: jax.Array
  log_p: jax.Array
  num_accepted: jax.Array
  features: jax.Array | None = None


class Drafter(NamedTuple):
  """The three functions of a drafter, and what it wants of the verifier.

  Attributes:
    init: `(params, prefix) -> state`.
    propose: `(params, state, tokens [B, S], lengths [B], num_nodes) ->
      (Proposal, state)`; the root of each tree is `tokens[lengths - 1]`.
    observe: `(params, state, verdict) -> state`; told which of the nodes just
      proposed were committed.
    features: layers of the verifier whose inputs it is told of.
    is_light: whether it runs no model, so that proposing takes next to nothing.
  """

  init: Callable[[Params, Prefix], chex.ArrayTree]
  propose: Callable[..., tuple[Proposal, chex.ArrayTree]]
  observe: Callable[[Params, chex.ArrayTree, Verdict], chex.ArrayTree]
  features: tuple[int, ...] = ()
  is_light: bool = False


def stateless(
  propose_fn: Callable[..., Proposal],
  check_fn: Callable[[Params], None] = lambda params: None,
) -> Drafter:
  """Returns a light drafter that needs nothing but the tokens so far.

  Args:
    propose_fn: `(params, tokens [B, S], lengths [B], num_nodes) -> Proposal`.
    check_fn: called in `init`, to refuse parameters by a `ValueError`.
  """

  def init(params, prefix):
    del prefix
    check_fn(params)
    return ()

  def propose(params, state, tokens, lengths, num_nodes):
    return propose_fn(params, tokens, lengths, num_nodes), state

  return Drafter(
    init=init,
    propose=propose,
    observe=lambda params, state, verdict: state,
    is_light=True,
  )


def last_tokens(tokens: jax.Array, lengths: jax.Array) -> jax.Array:
  """Returns `[B]`: the last token of each row, the root of its next tree."""
  return jax.vmap(lambda row, length: row[length - 1])(tokens, lengths)


def check_vocabulary(vocab_size: int, verifier_size: int) -> None:
  """Refuses a drafter that does not speak with its verifier's tokens.

  Args:
    vocab_size: tokens that the drafter knows.
    verifier_size: tokens that the verifier knows.

  Raises:
    ValueError: they differ.
  """
  if vocab_size != verifier_size:
    raise ValueError(
      'expected a drafter with the vocabulary of its verifier, of '
      f'{verifier_size} tokens, got {vocab_size}'
    )
