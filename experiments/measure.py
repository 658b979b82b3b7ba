"""Measurements on one batch of prompts: texts, laws, runs and the oracle.

Every function returns arrays of its batch's prompts alone, ready to be kept on
disk.  A *place* is the index of a token in the output of a prompt, counted from
0; a start at a place drafts that token and those after it.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
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

# Trees that the oracle grows together.
_NUM_TREES = 16


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


def oracle_everywhere(
  verifier: llama_model.Params,
  text: Text,
  num_tokens: np.ndarray,
  ease: np.ndarray,
  eos_ids: tuple[int, ...],
  capacities: Sequence[int],
  progress_fn: Callable[[int], None],
) -> Arrays:
  """Grows the oracle's tree at every place where an iteration may start.

  Its nodes come by falling probability, so that one tree of the largest
  capacity holds those of all others.

  Args:
    verifier: the model.
    text: the texts as read, with scratch slots for the largest capacity.
    num_tokens: `[R]` places of each text.
    ease: `[R, T]`; starts of like ease are grown together.  A batch waits for
      the slowest tree, which is the one where the text is nearly sure.
    eos_ids: tokens that end a text.
    capacities: `[C]` sizes `N`.
    progress_fn: told how many trees were grown since the last call.

  Returns:
    `value [R, T, C]`, the expected tokens `D` of each tree, and `length
    [R, T, C]`, the tokens that the text itself takes to leave it.
  """
  is_start = np.arange(ease.shape[1]) < num_tokens[:, None]
  rows, places = np.nonzero(is_start)
  order = np.argsort(ease[is_start], kind='stable')
  rows, places = rows[order], places[order]
  shape = (*ease.shape, len(capacities))
  found = {
    'value': np.zeros(shape, np.float32),
    'length': np.zeros(shape, np.int32),
  }
  for first in range(0, len(rows), _NUM_TREES):
    # All batches of one shape; what fills up the last is not kept.
    here = np.arange(first, min(first + _NUM_TREES, len(rows)))
    filled = np.resize(here, _NUM_TREES)
    of_trees = _oracle_trees(
      verifier,
      text,
      jnp.asarray(rows[filled]),
      jnp.asarray(places[filled]),
      eos_ids,
      tuple(capacities),
    )
    for name, values in of_trees.items():
      found[name][rows[here], places[here]] = values[: len(here)]
    progress_fn(len(here))
  return found


def oracle_run(
  lengths: np.ndarray, num_tokens: np.ndarray, max_new_tokens: int
) -> Arrays:
  """The oracle's own process, replayed along the texts.

  Decoding is lossless, so the oracle would emit the very same texts: each
  iteration walks the text through the best tree at its start.

  Args:
    lengths: `[R, T]` tokens that the text takes to leave the tree at each
      place.
    num_tokens: `[R]` tokens of each output that the run emits.
    max_new_tokens: width of the arrays.

  Returns:
    `num_tokens [R]`, `num_steps [R]`, and of each iteration `place [R, T]` and
    `emitted [R, T]`.
  """
  places, emitted = [], []
  for row, end in zip(lengths, num_tokens, strict=True):
    starts, tokens, place = [], [], 0
    while place < end:
      starts.append(place)
      tokens.append(min(row[place], end - place))
      place += tokens[-1]
    places.append(starts)
    emitted.append(tokens)
  return {
    'num_tokens': num_tokens,
    'num_steps': np.array([len(starts) for starts in places], np.int32),
    'place': _pad(places, max_new_tokens),
    'emitted': _pad(emitted, max_new_tokens),
  }


@functools.partial(jax.jit, static_argnames=('eos_ids', 'capacities'))
def _oracle_trees(verifier, text, rows, places, eos_ids, capacities):
  """Returns `value` and `length`, `[M, C]`, of the trees at `M` starts."""
  starts = text.prompt_lengths[rows] + places
  cache = llama_cache.KVCache(
    keys=text.cache.keys[:, rows],
    values=text.cache.values[:, rows],
    length=starts - 1,
  )
  trees, _, _ = oracle.best_trees(
    verifier,
    cache,
    text.tokens[rows, starts - 1],
    jax.tree.map(lambda x: x[rows], text.sampling),
    max(capacities),
    eos_ids,
  )
  last = text.tokens.shape[1] - 1

  def sample_fn(nodes, depth):
    del nodes
    return text.tokens[rows, jnp.minimum(starts + depth, last)], ()

  path = tree_lib.walk(trees, sample_fn, jnp.ones(len(rows), bool))
  order = jnp.arange(max(capacities))
  is_visited = order < path.length[:, None]
  log_p = jax.vmap(tree_lib.path_sum)(trees.parents, trees.log_q)
  worth = jnp.where(jax.vmap(tree_lib.present)(trees), jnp.exp(log_p), 0.0)
  # Of n nodes the tree has the first n, and the path those of them it visits.
  of_size = lambda n: {
    'value': jnp.sum(worth[:, :n], axis=1),
    'length': jnp.sum(is_visited & (path.nodes < n), axis=1),
  }
  sizes = [of_size(n) for n in capacities]
  return jax.tree.map(lambda *x: jnp.stack(x, axis=1), *sizes)


def _summarise(log_p, tokens):
  return entropy.summarise(log_p, tokens, NUM_TOP)


def _pad(rows, width, dtype=np.int32):
  padded = np.zeros((len(rows), width), dtype)
  for row, values in zip(padded, rows, strict=True):
    row[: len(values)] = values
  return padded
