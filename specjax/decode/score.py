"""The verifier's laws along texts that are there already."""

import functools
from collections.abc import Callable

import chex
import jax
import jax.numpy as jnp
from jax import lax

from specjax import edits, programs
from specjax import sampling as sampling_lib
from specjax.llama import cache as llama_cache
from specjax.llama import model as llama_model


@functools.partial(programs.jit, static_argnames='num_slots')
def read(
  verifier: llama_model.Params, tokens: jax.Array, num_slots: int
) -> tuple[jax.Array, llama_cache.KVCache]:
  """Reads whole texts in one pass.

  Args:
    verifier: the model.
    tokens: `[B, T]` int32, padded on the right.
    num_slots: slots of the cache, at least T.

  Returns:
    hidden: `[B, T, E]`, after every token.
    cache: of all `T` tokens; with a smaller `length` it is the cache of any
      place in the texts.
  """
  batch, size = tokens.shape
  lengths = jnp.full(batch, size, jnp.int32)
  hidden, _, cache = llama_model.read(verifier, tokens, lengths, num_slots)
  return hidden, cache


@functools.partial(programs.jit, static_argnames=('summary_fn', 'chunk'))
def laws(
  verifier: llama_model.Params,
  hidden: jax.Array,
  tokens: jax.Array,
  sampling: sampling_lib.Sampling,
  summary_fn: Callable[[jax.Array, jax.Array], chex.ArrayTree],
  chunk: int = 8,
  history: edits.History | None = None,
) -> chex.ArrayTree:
  """Summarises the sampled law at every position of a batch of texts.

  The laws of `chunk` positions exist at a time, so that memory does not grow
  with the length of the texts.

  Args:
    verifier: the model.
    hidden: `[B, T, E]` after the token before each position.
    tokens: `[B, T]` the token that stands at each position; positions follow
      one another.
    sampling: parameters of the law, `[B]`.
    summary_fn: `(log_p [B, chunk, V], tokens [B, chunk]) -> pytree
      [B, chunk, ...]`.
    chunk: positions at a time.
    history: of the first position; wanted where `sampling` has edits.

  Returns:
    What `summary_fn` returned, `[B, T, ...]`.

  Raises:
    ValueError: edits without a history.
  """
  batch, num_positions = tokens.shape
  num_chunks = -(-num_positions // chunk)
  pad = num_chunks * chunk - num_positions

  def split(x):
    x = jnp.pad(x, [(0, 0), (0, pad)] + [(0, 0)] * (x.ndim - 2))
    return jnp.moveaxis(x.reshape(batch, num_chunks, chunk, *x.shape[2:]), 1, 0)

  def join(x):
    x = jnp.moveaxis(x, 0, 1)
    return x.reshape(batch, num_chunks * chunk, *x.shape[3:])[:, :num_positions]

  def one(args):
    rows, ids, places = args
    logits = llama_model.head(verifier, rows)
    before = None
    if history is not None:
      is_before = jnp.arange(num_positions) < places[:, None]
      before = edits.extend(
        history, tokens, jnp.broadcast_to(is_before, (batch, *is_before.shape))
      )
    return summary_fn(sampling_lib.log_law(logits, sampling, before), ids)

  places = jnp.arange(num_chunks * chunk).reshape(num_chunks, chunk)
  found = lax.map(one, (split(hidden), split(tokens), places))
  return jax.tree.map(join, found)
