"""EAGLE: a head on the verifier drafts, fed with the verifier's own features.

A head reads a token with what was known before it (see `llama.eagle`): the
feature of the token before, or in a tree the head's own state at the parent.
The states are kept by slot, as keys and values are.  What was read of a tree is
never committed: when the verifier has spoken the accepted path is read again
with its features, and the memory is that of a text that was read from left to
right.  Nothing is known before the first token, so its slot stays closed.
"""

import functools

import jax
import jax.numpy as jnp
from flax import struct
from jax import lax

from specjax.draft import reader as reader_lib
from specjax.llama import cache as llama_cache
from specjax.llama import config as llama_config
from specjax.llama import eagle, mask
from specjax.llama import model as llama_model
from specjax.trees import grow

# Tokens are read in pieces of this many, as many as the longest row has.
_PROMPT_PIECE = 64
_PATH_PIECE = 4


@struct.dataclass
class Memory:
  """What a head knows.

  Attributes:
    cache: committed slots of all tokens but the last, then scratch slots.
    feature: `[B, F E]` of the token before the last, 0 where there is none.
    states: `[B, P, E]` after the nodes in the scratch slots.
  """

  cache: llama_cache.KVCache
  feature: jax.Array
  states: jax.Array


@functools.cache
def reader(
  config: eagle.EagleConfig, verifier_config: llama_config.LlamaConfig
) -> reader_lib.Reader:
  """Returns a head; its parameters are `params.drafter`.

  Tokens that the head cannot draft have logits of `-inf`.

  Args:
    config: of the head.
    verifier_config: of the model that decides.

  Raises:
    ValueError: a vocabulary, a width or features that the verifier does not
      have; in `init`, prompts that were read without the features, or texts
      that may grow longer than the head was made for.
  """
  eagle.check_fit(config, verifier_config)

  # Drafters start outside of jit, where a loop would be compiled every time.
  @functools.partial(jax.jit, static_argnums=2)
  def init(params, prefix, num_slots):
    _check_prefix(config, prefix)
    batch, size = prefix.tokens.shape
    head, features = params.drafter, prefix.features
    cache = eagle.empty_cache(head, batch, size + num_slots)
    empty = Memory(
      cache=cache,
      feature=jnp.zeros_like(_joined(features)[:, 0]),
      states=jnp.zeros(
        (batch, num_slots, config.layer.width), cache.keys.dtype
      ),
    )
    tokens = prefix.tokens[:, : features.shape[1]]
    return _learn(
      params, empty, tokens, features, prefix.lengths - 1, _PROMPT_PIECE
    )

  def keep(params, memory, accepted, num_slots):
    del num_slots
    return _learn(
      params,
      memory,
      accepted.tokens,
      accepted.features,
      accepted.number,
      _PATH_PIECE,
    )

  return reader_lib.Reader(init, _read, keep, config.features)


def _read(params, memory, nodes):
  """Reads nodes of trees, as `Reader.read`."""
  head, cache = params.drafter, memory.cache
  batch, width, num_scratch = nodes.above.shape
  first = cache.num_slots - num_scratch
  committed = _committed(cache.length, first)
  committed = jnp.broadcast_to(committed, (batch, width, first))
  rows = jnp.arange(batch)[:, None]
  is_root = nodes.parent_slots == grow.NO_SLOT
  states, new_kv = eagle.forward(
    head,
    llama_model.embed(params.verifier, nodes.tokens),
    jnp.where(
      is_root[..., None],
      eagle.fuse(head, memory.feature)[:, None],
      memory.states[rows, jnp.maximum(nodes.parent_slots, 0)],
    ),
    cache.length[:, None] + nodes.depths,
    cache,
    jnp.concatenate([committed, nodes.above], axis=2),
    jnp.eye(width, dtype=bool)[None],
  )
  memory = memory.replace(
    cache=llama_cache.stash(cache, new_kv, first + nodes.slots),
    states=memory.states.at[rows, nodes.slots].set(states, mode='drop'),
  )
  logits = eagle.head(head, states)
  closed = (*logits.shape[:2], params.verifier.config.vocab_size)
  return (
    jnp.full(closed, -jnp.inf).at[..., head.token_ids].set(logits),
    memory,
  )


def _learn(params, memory, tokens, features, number, piece):
  """Commits tokens that the verifier has seen.

  Args:
    params: of verifier and head.
    memory: of everything before them.
    tokens: `[B, A]`, padded on the right.
    features: `[B, A, F, E]` of the tokens; each is known before the next.
    number: `[B]` how many tokens count.
    piece: how many are read in one pass.
  """
  head = params.drafter
  before = jnp.concatenate([memory.feature[:, None], _joined(features)], axis=1)
  padding = (0, -tokens.shape[1] % piece)
  padded_tokens = jnp.pad(tokens, [(0, 0), padding])
  padded_before = jnp.pad(before[:, :-1], [(0, 0), padding, (0, 0)])

  def read_piece(carry):
    cache, start = carry
    here = lambda x: lax.dynamic_slice_in_dim(x, start, piece, axis=1)
    order = jnp.broadcast_to(jnp.arange(piece), (len(number), piece))
    positions = cache.length[:, None] + order
    _, new_kv = eagle.forward(
      head,
      llama_model.embed(params.verifier, here(padded_tokens)),
      eagle.fuse(head, here(padded_before)),
      positions,
      cache,
      _committed(cache.length, cache.num_slots),
      mask.causal(piece) & (positions > 0)[:, None],
    )
    lengths = jnp.clip(number - start, 0, piece)
    return llama_cache.commit(cache, new_kv, order, lengths), start + piece

  cache, _ = lax.while_loop(
    lambda carry: jnp.any(number > carry[1]),
    read_piece,
    (memory.cache, jnp.int32(0)),
  )
  last = jnp.take_along_axis(before, number[:, None, None], axis=1)[:, 0]
  return memory.replace(cache=cache, feature=last)


def _committed(length, num_slots):
  """Opens committed slots, but for that of the first token."""
  return mask.committed(length, num_slots) & (jnp.arange(num_slots) > 0)


def _joined(features):
  """`[B, T, F, E]` -> `[B, T, F E]`."""
  return features.reshape(*features.shape[:2], -1)


def _check_prefix(config, prefix):
  if prefix.feature_layers != config.features:
    raise ValueError(
      f'expected prompts read with the features {config.features} of the head, '
      f'got {prefix.feature_layers}'
    )
  size, most = prefix.tokens.shape[1], config.layer.max_positions
  if size > most:
    raise ValueError(
      f'expected texts of at most {most} tokens, for which the head was made, '
      f'got room for {size}'
    )
