"""Caches of models that draft: committed slots, then scratch slots at the end.

A tree is read in several passes.  Its nodes are kept in scratch slots, which
later nodes attend to; once the verifier has spoken, those of the accepted path
are committed.  Between iterations a drafter's cache holds what the verifier's
does: all tokens but the last.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from specjax.draft import base
from specjax.llama import cache as llama_cache
from specjax.llama import mask
from specjax.llama import model as llama_model
from specjax.trees import grow

# Prompts are read in pieces of this many tokens, as many as the longest has.
_PIECE = 64


class Accepted(NamedTuple):
  """The accepted path of the trees just read.

  Attributes:
    tokens: `[B, A]` int32 the nodes' tokens, the root's first.
    slots: `[B, A]` int32 their scratch slots, -1 for a node that was not read,
      which can only be the last.
    number: `[B]` int32 how many nodes count; 0 for a row that is done.
    features: as in a `Verdict`.
  """

  tokens: jax.Array
  slots: jax.Array
  number: jax.Array
  features: jax.Array | None = None


def extend(cache: llama_cache.KVCache, num_scratch: int) -> llama_cache.KVCache:
  """Returns the cache with scratch slots at its end, of the same `length`.

  Args:
    cache: of S slots.
    num_scratch: slots to add.
  """
  pad = [(0, 0)] * 3
  return cache.replace(
    keys=jnp.pad(cache.keys, [*pad, (0, 0), (0, num_scratch)]),
    values=jnp.pad(cache.values, [*pad, (0, num_scratch), (0, 0)]),
  )


def read_prompts(
  llama: llama_model.Params,
  prefix: base.Prefix,
  num_scratch: int,
  layers: tuple[int, ...] | None = None,
) -> llama_cache.KVCache:
  """Reads all tokens of each prompt but the last into a cache of their own.

  Args:
    llama: the model.
    prefix: the prompts.
    num_scratch: slots at the end of the cache that are never committed.
    layers: the layers that run, all by default.

  Returns:
    A cache of `S + num_scratch` slots.

  Raises:
    ValueError: texts may grow longer than the model was made for.
  """
  batch, size = prefix.tokens.shape
  if size > llama.config.max_positions:
    raise ValueError(
      f'expected texts of at most {llama.config.max_positions} tokens, for '
      f'which the drafter was made, got room for {size}'
    )
  tokens = jnp.pad(prefix.tokens, [(0, 0), (0, -size % _PIECE)])

  def read_piece(carry):
    cache, start = carry
    piece = lax.dynamic_slice_in_dim(tokens, start, _PIECE, axis=1)
    lengths = jnp.clip(prefix.lengths - 1 - start, 0, _PIECE)
    _, cache = llama_model.prefill(llama, piece, lengths, cache, layers)
    return cache, start + _PIECE

  cache = llama_model.empty_cache(llama, batch, size + num_scratch, layers)
  cache, _ = lax.while_loop(
    lambda carry: jnp.any(carry[0].length < prefix.lengths - 1),
    read_piece,
    (cache, jnp.int32(0)),
  )
  return cache


def read(
  llama: llama_model.Params,
  cache: llama_cache.KVCache,
  nodes: grow.Nodes,
  layers: tuple[int, ...] | None = None,
) -> tuple[jax.Array, llama_cache.KVCache]:
  """Runs nodes of trees in one pass and keeps them in their scratch slots.

  Args:
    llama: the model.
    cache: of everything before the roots; its last `P` slots are scratch.
    nodes: what to read.
    layers: the layers that run, all by default.

  Returns:
    `[B, W, E]` hidden states, and the cache with the nodes in their slots.
  """
  batch, width, num_scratch = nodes.above.shape
  first = cache.num_slots - num_scratch
  committed = mask.committed(cache.length, first)
  committed = jnp.broadcast_to(committed, (batch, width, first))
  hidden, _, new_kv = llama_model.forward(
    llama,
    nodes.tokens,
    cache.length[:, None] + nodes.depths,
    cache,
    jnp.concatenate([committed, nodes.above], axis=2),
    jnp.eye(width, dtype=bool)[None],
    layers=layers,
  )
  return hidden, llama_cache.stash(cache, new_kv, first + nodes.slots)


def keep(
  llama: llama_model.Params,
  cache: llama_cache.KVCache,
  accepted: Accepted,
  num_scratch: int,
  layers: tuple[int, ...] | None = None,
) -> llama_cache.KVCache:
  """Commits the accepted path, and reads its last node if that was a leaf.

  Args:
    llama: the model.
    cache: with what was read of the trees in its scratch slots.
    accepted: the path.
    num_scratch: `P`, as the trees were read.
    layers: the layers that run, all by default.

  Returns:
    The cache, longer by `accepted.number`.
  """
  order = jnp.arange(accepted.slots.shape[1])
  is_read = accepted.slots != grow.NO_SLOT
  is_read &= order < accepted.number[:, None]
  num_read = jnp.sum(is_read, axis=1, dtype=jnp.int32)
  scratch = llama_cache.NewKV(
    keys=cache.keys[..., -num_scratch:],
    values=cache.values[..., -num_scratch:, :],
  )
  cache = llama_cache.commit(cache, scratch, accepted.slots, num_read)
  num_missing = accepted.number - num_read
  last = jnp.maximum(accepted.number - 1, 0)[:, None]
  leaf = jnp.take_along_axis(accepted.tokens, last, axis=1)

  def read_leaf(cache):
    return llama_model.prefill(llama, leaf, num_missing, cache, layers)[1]

  return lax.cond(
    jnp.any(num_missing > 0), read_leaf, lambda cache: cache, cache
  )
