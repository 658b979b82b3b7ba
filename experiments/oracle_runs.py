"""The oracle along texts: its best trees everywhere, and its own process.

A *place* is the index of a token in the output of a prompt, as in `measure`.
"""

import functools
from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from experiments import measure
from specjax import parallel
from specjax.decode import prefill
from specjax.draft import oracle
from specjax.llama import cache as llama_cache
from specjax.llama import model as llama_model
from specjax.theory import prices
from specjax.trees import tree as tree_lib

# Trees that are grown together.
NUM_TREES = 16


def everywhere(
  verifier: llama_model.Params,
  text: measure.Text,
  num_tokens: np.ndarray,
  ease: np.ndarray,
  eos_ids: tuple[int, ...],
  capacities: Sequence[int],
  progress_fn: Callable[[int], None],
  layout: parallel.Layout | None = None,
) -> measure.Arrays:
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
    layout: devices that share out the trees; None for one device.

  Returns:
    `value [R, T, C]`, the expected tokens `D` of each tree, and `length
    [R, T, C]`, the tokens that the text itself takes to leave it; of the
    largest tree's M nodes `p`, `is_read [R, T, M]` and `notes [R, T, M, J]`,
    as in `theory.prices.Trees`.
  """
  is_start = np.arange(ease.shape[1]) < num_tokens[:, None]
  rows, places = np.nonzero(is_start)
  order = np.argsort(ease[is_start], kind='stable')
  rows, places = rows[order], places[order]
  num_trees = NUM_TREES
  if layout is not None:
    num_trees = prefill.round_up(num_trees, layout.num_groups)
  found = {}
  for first in range(0, len(rows), num_trees):
    # All batches of one shape; what fills up the last is not kept.
    here = np.arange(first, min(first + num_trees, len(rows)))
    filled = np.resize(here, num_trees)
    of_trees = _trees(
      (verifier, text),
      parallel.put_rows((rows[filled], places[filled]), layout),
      eos_ids,
      tuple(capacities),
      layout,
    )
    for name, values in of_trees.items():
      if name not in found:
        shape = (*ease.shape, *values.shape[1:])
        found[name] = np.zeros(shape, values.dtype)
      found[name][rows[here], places[here]] = values[: len(here)]
    progress_fn(len(here))
  return found


def priced(found: measure.Arrays, num_tokens: np.ndarray) -> prices.Trees:
  """Returns the trees at all places of runs, to be priced.

  Args:
    found: what `everywhere` returned.
    num_tokens: `[R]` places of each text.
  """
  is_place = np.arange(found['p'].shape[1]) < num_tokens[:, None]
  rows, places = np.nonzero(is_place)
  return prices.Trees(
    rows=rows,
    **{k: found[k][rows, places] for k in ('p', 'notes', 'is_read')},
  )


def run(
  lengths: np.ndarray, num_tokens: np.ndarray, max_new_tokens: int
) -> measure.Arrays:
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
    'place': measure.pad(places, max_new_tokens),
    'emitted': measure.pad(emitted, max_new_tokens),
  }


@functools.partial(jax.jit, static_argnames=('eos_ids', 'capacities', 'layout'))
def _trees(shared, starts, eos_ids, capacities, layout):
  """Returns what `everywhere` does, of the trees at some starts."""
  grow = functools.partial(_grow, eos_ids, capacities)
  return parallel.by_rows(grow, layout)(shared, starts)


def _grow(eos_ids, capacities, shared, starts):
  """Grows trees one after another until the last of them is the best."""
  (verifier, text), (rows, places) = shared, starts
  starts = text.prompt_lengths[rows] + places
  cache = llama_cache.KVCache(
    keys=text.cache.keys[:, rows],
    values=text.cache.values[:, rows],
    length=starts - 1,
  )
  trees, notes, is_read = oracle.best_trees(
    verifier,
    cache,
    text.tokens[rows, starts - 1],
    jax.tree.map(lambda x: x[rows], text.sampling),
    max(capacities),
    eos_ids,
    prices.notes,
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
  of_sizes = jax.tree.map(lambda *x: jnp.stack(x, axis=1), *sizes)
  return of_sizes | {'p': worth, 'notes': notes, 'is_read': is_read}
