"""The rows of a batch that is being decoded, and what is appended to them."""

import chex
import jax
import jax.numpy as jnp
from flax import struct

from specjax import edits
from specjax.draft import base
from specjax.llama import cache as llama_cache


@struct.dataclass
class StepInfo:
  """What happened in each iteration of each row; diagnostics, never fed back.

  Attributes:
    start: `[B, I]` int32 tokens before the iteration.
    num_nodes: `[B, I]` int32 nodes that took part.
    levels: `[B, I]` int32 depth of the deepest of them.
    tried: `[B, I]` int32 depth of the deepest drafts that the verifier looked
      at: one more than `depth`, unless the accepted path led to a leaf.
    depth: `[B, I]` int32 drafted tokens that the verifier accepted.
    emitted: `[B, I]` int32 tokens emitted, `D`; less than `depth + 1` where the
      text ends inside the accepted path.
  """

  start: jax.Array
  num_nodes: jax.Array
  levels: jax.Array
  tried: jax.Array
  depth: jax.Array
  emitted: jax.Array


@struct.dataclass
class DecodeState:
  """Everything about rows that are being decoded.

  Attributes:
    tokens: `[B, S]` int32 prompt and output, 0 past the end.
    log_p: `[B, S]` float32 log-probabilities of the output's tokens in nats.
    prompt_lengths: `[B]` int32 tokens of the prompt.
    lengths: `[B]` int32 tokens so far.
    limits: `[B]` int32 most tokens allowed.
    seeds: `[B]` uint32 request seeds.
    is_done: `[B]` bool.
    cache: the verifier's.
    drafter: the drafter's state.
    steps: the iterations so far.
    num_steps: `[B]` int32 their number.
  """

  tokens: jax.Array
  log_p: jax.Array
  prompt_lengths: jax.Array
  lengths: jax.Array
  limits: jax.Array
  seeds: jax.Array
  is_done: jax.Array
  cache: llama_cache.KVCache
  drafter: chex.ArrayTree
  steps: StepInfo
  num_steps: jax.Array


def row_axes(tree: chex.ArrayTree) -> chex.ArrayTree:
  """Returns the axis of rows of each array, caches being the exception.

  Args:
    tree: whose other arrays have the rows as leading axis.

  Returns:
    The same tree, of ints.
  """
  is_cache = lambda x: isinstance(x, llama_cache.KVCache)
  return jax.tree.map(
    lambda x: llama_cache.ROW_AXES if is_cache(x) else 0, tree, is_leaf=is_cache
  )


def emit(
  state: DecodeState,
  tokens: jax.Array,
  log_p: jax.Array,
  num_tokens: jax.Array,
  eos_ids: tuple[int, ...],
) -> tuple[DecodeState, jax.Array]:
  """Appends tokens up to the first that ends the text, or to the limit.

  Args:
    state: the rows.
    tokens: `[B, A]` int32 tokens of one iteration.
    log_p: `[B, A]` their log-probabilities in nats.
    num_tokens: `[B]` int32 how many of them there are; 0 for done rows.
    eos_ids: tokens that end a text; they are appended too.

  Returns:
    The rows with tokens, lengths and `is_done` brought up to date, and the
    number `[B]` of tokens appended.
  """
  order = jnp.arange(tokens.shape[1])
  is_eos = jnp.isin(tokens, jnp.asarray(eos_ids, jnp.int32))
  is_eos &= order < num_tokens[:, None]
  until_eos = jnp.where(
    jnp.any(is_eos, axis=1), jnp.argmax(is_eos, axis=1) + 1, num_tokens
  )
  room = jnp.maximum(state.limits - state.lengths, 0)
  num_tokens = jnp.minimum(until_eos, room)
  is_new = order < num_tokens[:, None]
  rows = jnp.arange(tokens.shape[0])[:, None]
  places = jnp.where(
    is_new, state.lengths[:, None] + order, state.tokens.shape[1]
  )
  put = lambda old, new: old.at[rows, places].set(new, mode='drop')
  lengths = state.lengths + num_tokens
  is_done = jnp.any(is_eos & is_new, axis=1) | (lengths >= state.limits)
  state = state.replace(
    tokens=put(state.tokens, tokens),
    log_p=put(state.log_p, log_p),
    lengths=lengths,
    is_done=state.is_done | is_done,
  )
  return state, num_tokens


def history(params: base.Params, state: DecodeState) -> edits.History | None:
  """Returns what the texts so far are to edits of logits, None without edits.

  Args:
    params: verifier and sampling parameters.
    state: the rows.
  """
  if params.sampling.edits is None:
    return None
  return edits.history(
    state.tokens,
    state.prompt_lengths,
    state.lengths,
    params.verifier.config.vocab_size,
  )
