"""Measurements on one batch of prompts: texts, laws, runs and the oracle.

Every function returns arrays of its batch's prompts alone, ready to be kept on
disk.  A *place* is the index of a token in the output of a prompt, counted from
0; a start at a place drafts that token and those after it.
"""

import functools
from collections.abc import Callable, Mapping
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from specjax import sampling as sampling_lib
from specjax.decode import generate, score
from specjax.draft import base, oracle
from specjax.llama import cache as llama_cache
from specjax.llama import model as llama_model
from specjax.theory import entropy
from specjax.trees import tree as tree_lib

Arrays = Mapping[str, np.ndarray]

# Most probable tokens kept of every law.  The bounds on starts are exact for
# thresholds up to log of it, 5.5 nats.
NUM_TOP = 256


class Text(NamedTuple):
  """The texts of a batch as the verifier has read them.

  Attributes:
    tokens: `[B, S]` prompt and output.
    prompt_lengths: `[B]`.
    hidden: `[B, S, E]` after every token.
    cache: of all tokens, with scratch slots at its end.
    sampling: `[B]`.
  """

  tokens: jax.Array
  prompt_lengths: jax.Array
  hidden: jax.Array
  cache: llama_cache.KVCache
  sampling: sampling_lib.Sampling


def plain_texts(
  verifier: llama_model.Params,
  batch: generate.Batch,
  eos_ids: tuple[int, ...],
  max_new_tokens: int,
  progress_fn: Callable[[int], None],
) -> Arrays:
  """Decodes plainly.

  Returns:
    `tokens [R, T]` outputs, padded with 0, and `num_tokens [R]`.
  """
  results = generate.decode(
    verifier, batch, eos_ids=eos_ids, chunk=8, progress_fn=progress_fn
  )
  return {
    'tokens': _pad([r.tokens for r in results], max_new_tokens),
    'num_tokens': np.array([len(r.tokens) for r in results], np.int32),
  }


def drafter_run(
  verifier: llama_model.Params,
  batch: generate.Batch,
  eos_ids: tuple[int, ...],
  drafter: tuple[base.Drafter, chex.ArrayTree],
  num_nodes: int,
  max_new_tokens: int,
  progress_fn: Callable[[int], None],
) -> Arrays:
  """Decodes by speculation.

  Returns:
    `tokens [R, T]`, `num_tokens [R]`, `num_steps [R]`, and of each iteration
    `place`, `num_nodes`, `depth` and `emitted`, all `[R, T]` and padded with 0.
  """
  limits = jnp.minimum(batch.prefix.lengths + max_new_tokens, batch.limits)
  results = generate.decode(
    verifier,
    batch._replace(limits=limits),
    eos_ids=eos_ids,
    drafter=drafter[0],
    drafter_params=drafter[1],
    num_nodes=num_nodes,
    chunk=8,
    progress_fn=progress_fn,
  )
  prompt_lengths = np.asarray(batch.prefix.lengths)
  starts = [
    r.steps.start - length
    for r, length in zip(results, prompt_lengths, strict=False)
  ]
  steps = [r.steps for r in results]
  return {
    'tokens': _pad([r.tokens for r in results], max_new_tokens),
    'num_tokens': np.array([len(r.tokens) for r in results], np.int32),
    'num_steps': np.array([len(s.start) for s in steps], np.int32),
    'place': _pad(starts, max_new_tokens),
    'num_nodes': _pad([s.num_nodes for s in steps], max_new_tokens),
    'depth': _pad([s.depth for s in steps], max_new_tokens),
    'emitted': _pad([s.emitted for s in steps], max_new_tokens),
  }


def plain_run(texts: Arrays, max_new_tokens: int) -> Arrays:
  """The run of a tree of one node: every token is an iteration.

  Args:
    texts: what `plain_texts` returned.
    max_new_tokens: tokens of the run.

  Returns:
    The arrays of `drafter_run`.
  """
  num_tokens = np.minimum(texts['num_tokens'], max_new_tokens)
  places = np.arange(max_new_tokens, dtype=np.int32)
  is_step = (places < num_tokens[:, None]).astype(np.int32)
  return {
    'tokens': texts['tokens'][:, :max_new_tokens] * is_step,
    'num_tokens': num_tokens,
    'num_steps': num_tokens,
    'place': places * is_step,
    'num_nodes': is_step,
    'depth': 0 * is_step,
    'emitted': is_step,
  }


def read_texts(
  verifier: llama_model.Params,
  batch: generate.Batch,
  texts: Arrays,
  num_scratch: int,
) -> Text:
  """Runs prompts and outputs through the verifier once.

  Args:
    verifier: the model.
    batch: the prompts.
    texts: what `plain_texts` returned.
    num_scratch: scratch slots of the cache, for the oracle's trees.
  """
  tokens = np.array(batch.prefix.tokens)
  lengths = np.asarray(batch.prefix.lengths)
  for row in range(batch.num_prompts):
    output = texts['tokens'][row, : texts['num_tokens'][row]]
    tokens[row, lengths[row] : lengths[row] + len(output)] = output
  tokens = jnp.asarray(tokens)
  hidden, cache = score.read(verifier, tokens, tokens.shape[1] + num_scratch)
  return Text(tokens, batch.prefix.lengths, hidden, cache, batch.sampling)


def laws(verifier: llama_model.Params, text: Text, texts: Arrays) -> Arrays:
  """Summarises the law at every place of the outputs.

  Args:
    verifier: the model.
    text: the texts as read.
    texts: what `plain_texts` returned.

  Returns:
    The fields of `entropy.LawSummary`, `[R, T, ...]`.
  """
  num_rows, width = texts['tokens'].shape
  last = text.tokens.shape[1] - 1
  before = text.prompt_lengths[:, None] - 1 + jnp.arange(width)
  hidden = jax.vmap(lambda h, i: h[i])(text.hidden, jnp.minimum(before, last))
  tokens = jnp.zeros((len(hidden), width), jnp.int32)
  summary = score.laws(
    verifier,
    hidden,
    tokens.at[:num_rows].set(texts['tokens']),
    text.sampling,
    _summarise,
  )
  return {
    name: np.asarray(value)[:num_rows] for name, value in vars(summary).items()
  }


def oracle_run(
  verifier: llama_model.Params,
  text: Text,
  num_tokens: np.ndarray,
  eos_ids: tuple[int, ...],
  num_nodes: int,
  max_new_tokens: int,
  progress_fn: Callable[[int], None],
) -> Arrays:
  """Replays the oracle's own process along the texts.

  Decoding is lossless, so the oracle would emit the very same texts: each
  iteration walks the text through the best tree at its start.

  Args:
    verifier: the model.
    text: the texts as read.
    num_tokens: `[R]` tokens of each output that the run emits.
    eos_ids: tokens that end a text.
    num_nodes: capacity `N`.
    max_new_tokens: width of the arrays.
    progress_fn: told how many tokens were emitted since the last call.

  Returns:
    `num_tokens [R]`, `num_steps [R]`, and of each iteration `place [R, T]`,
    `emitted [R, T]` and `value [R, T]`, the expected tokens of its tree.
  """
  num_rows = len(num_tokens)
  rows = np.arange(len(text.tokens))
  ends = np.zeros(len(rows), int)
  ends[:num_rows] = num_tokens
  places = np.zeros(len(rows), int)
  steps = [([], [], []) for _ in rows]
  while np.any(places < ends):
    is_running = places < ends
    trees = best_trees(
      verifier, text, rows, np.where(is_running, places, 0), eos_ids, num_nodes
    )
    lengths = _walk(trees, text, jnp.asarray(places), jnp.asarray(is_running))
    emitted = np.minimum(np.asarray(lengths), ends - places)
    values = tree_values(trees)[:, -1]
    for row in np.flatnonzero(is_running):
      for kept, new in zip(
        steps[row], (places[row], emitted[row], values[row]), strict=True
      ):
        kept.append(new)
    places = places + emitted
    progress_fn(int(emitted.sum()))
  steps = steps[:num_rows]
  return {
    'num_tokens': num_tokens,
    'num_steps': np.array([len(s[0]) for s in steps], np.int32),
    'place': _pad([s[0] for s in steps], max_new_tokens),
    'emitted': _pad([s[1] for s in steps], max_new_tokens),
    'value': _pad([s[2] for s in steps], max_new_tokens, np.float32),
  }


def best_trees(
  verifier: llama_model.Params,
  text: Text,
  rows: np.ndarray,
  places: np.ndarray,
  eos_ids: tuple[int, ...],
  num_nodes: int,
) -> tree_lib.Tree:
  """Grows the oracle's trees at places of texts.

  Args:
    verifier: the model.
    text: the texts as read, with `num_nodes` scratch slots or more.
    rows: `[M]` the text of each start.
    places: `[M]` the place of each start.
    eos_ids: tokens that end a text.
    num_nodes: capacity `N`.

  Returns:
    Trees with a leading axis `[M]`, nodes by falling probability.
  """
  return _best_trees(
    verifier, text, jnp.asarray(rows), jnp.asarray(places), eos_ids, num_nodes
  )


def oracle_values(
  verifier: llama_model.Params,
  text: Text,
  rows: np.ndarray,
  places: np.ndarray,
  eos_ids: tuple[int, ...],
  num_nodes: int,
  progress_fn: Callable[[int], None],
) -> np.ndarray:
  """Values the oracle's trees at starts, a batch at a time.

  Args:
    verifier: the model.
    text: the texts as read.
    rows: `[M]` the text of each start.
    places: `[M]` the place of each start.
    eos_ids: tokens that end a text.
    num_nodes: capacity `N`.
    progress_fn: told how many trees were grown since the last call.

  Returns:
    `[M, N]` expected tokens of the first 1, 2, .. N nodes of each tree.
  """
  size = len(text.tokens)
  values = [np.zeros((0, num_nodes), np.float32)]
  for first in range(0, len(rows), size):
    # All batches of one shape; what fills up the last is not kept.
    here = np.arange(first, min(first + size, len(rows)))
    filled = np.resize(here, size)
    trees = best_trees(
      verifier, text, rows[filled], places[filled], eos_ids, num_nodes
    )
    values.append(tree_values(trees)[: len(here)])
    progress_fn(len(here))
  return np.concatenate(values)


def tree_values(trees: tree_lib.Tree) -> np.ndarray:
  """Expected tokens `[M, N]` of the first 1, 2, .. N nodes of oracle trees."""
  log_p = jax.vmap(tree_lib.path_sum)(trees.parents, trees.log_q)
  worth = jnp.where(jax.vmap(tree_lib.present)(trees), jnp.exp(log_p), 0.0)
  return np.asarray(jnp.cumsum(worth, axis=1))


@functools.partial(jax.jit, static_argnames=('eos_ids', 'num_nodes'))
def _best_trees(verifier, text, rows, places, eos_ids, num_nodes):
  lengths = text.prompt_lengths[rows] + places
  cache = llama_cache.KVCache(
    keys=text.cache.keys[:, rows],
    values=text.cache.values[:, rows],
    length=lengths - 1,
  )
  return oracle.best_trees(
    verifier,
    cache,
    text.tokens[rows, lengths - 1],
    jax.tree.map(lambda x: x[rows], text.sampling),
    num_nodes,
    eos_ids,
  )[0]


@jax.jit
def _walk(trees, text, places, is_running):
  """Returns `[B]`: tokens that each text takes to leave its tree."""
  rows = jnp.arange(len(places))
  starts = text.prompt_lengths + places
  last = text.tokens.shape[1] - 1

  def sample_fn(nodes, depth):
    del nodes
    return text.tokens[rows, jnp.minimum(starts + depth, last)], ()

  return tree_lib.walk(trees, sample_fn, is_running).length


def _summarise(log_p, tokens):
  return entropy.summarise(log_p, tokens, NUM_TOP)


def _pad(rows, width, dtype=np.int32):
  padded = np.zeros((len(rows), width), dtype)
  for row, values in zip(padded, rows, strict=True):
    row[: len(values)] = values
  return padded
