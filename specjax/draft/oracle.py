"""The oracle: the best tree there is, grown with the verifier itself.

The N most probable continuations of a context form a tree, and no other tree of
N nodes is worth more (`E[D] = sum of p(w)` over its nodes).  The oracle finds
it exactly: it keeps the N best nodes that are known, asks the verifier for the
children of those it has not yet read, and stops when none of them can be better
than the N-th.  It costs about N tokens of the verifier, so it is a measure, not
a method.

Nodes that end the text are worth nothing to the tree (no token follows them)
and are never put into it.
"""

import functools

import jax

from specjax import sampling as sampling_lib
from specjax.draft import base, grown
from specjax.draft import reader as reader_lib
from specjax.llama import cache as llama_cache
from specjax.llama import model as llama_model
from specjax.trees import rules
from specjax.trees import tree as tree_lib


@functools.cache
def make(max_nodes: int, eos_ids: tuple[int, ...]) -> base.Drafter:
  """Returns the oracle as a drafter.

  Args:
    max_nodes: largest tree that will be asked for.
    eos_ids: tokens that end a text.

  Returns:
    The drafter; it needs no parameters of its own.

  Raises:
    ValueError: a size below 1; in `propose`, a tree larger than `max_nodes`.
  """
  return grown.make(
    reader_lib.verifier(),
    rules.best_first,
    max_nodes,
    eos_ids,
    sampling_lib.log_law,
  )


def best_trees(
  verifier: llama_model.Params,
  cache: llama_cache.KVCache,
  roots: jax.Array,
  sampling: sampling_lib.Sampling,
  num_nodes: int,
  eos_ids: tuple[int, ...],
) -> tuple[tree_lib.Tree, jax.Array, llama_cache.KVCache]:
  """Grows the tree of the most probable continuations, one for each row.

  Args:
    verifier: the model.
    cache: of the tokens before the roots; its last `num_nodes` slots or more
      are scratch, never committed.
    roots: `[B]` int32 last token of each context.
    sampling: of the law whose probabilities count, `[B]`.
    num_nodes: size `N` of the trees.
    eos_ids: tokens that end a text and are left out.

  Returns:
    tree: trees with a leading axis `[B]`; nodes by falling probability of their
      path, so that the first n nodes are the best tree of n. `log_q` is the
      verifier's own log-probability. A law with little support may leave nodes
      absent.
    slots: `[B, N]` int32 scratch slot, counted from the first, that holds a
      node's keys and values; -1 for leaves that were not read.
    cache: with the scratch slots filled; nothing is committed.
  """
  return grown.trees(
    reader_lib.verifier(),
    rules.best_first(num_nodes),
    base.Params(verifier, (), sampling),
    cache,
    roots,
    eos_ids,
    sampling_lib.log_law,
  )
