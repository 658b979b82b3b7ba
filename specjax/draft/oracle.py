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
from collections.abc import Callable

import jax
import jax.numpy as jnp

from specjax import sampling as sampling_lib
from specjax.draft import base, grown
from specjax.draft import reader as reader_lib
from specjax.llama import cache as llama_cache
from specjax.llama import model as llama_model
from specjax.trees import grow, rules
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
    ValueError: a size below 1; in `propose`, a tree larger than `max_nodes`, or
      sampling parameters with edits of logits.
  """
  return grown.make(
    reader_lib.verifier(), rules.best_first, max_nodes, eos_ids, _law
  )


def best_trees(
  verifier: llama_model.Params,
  cache: llama_cache.KVCache,
  roots: jax.Array,
  sampling: sampling_lib.Sampling,
  num_nodes: int,
  eos_ids: tuple[int, ...],
  note_fn: Callable[[jax.Array], jax.Array],
) -> tuple[tree_lib.Tree, jax.Array, jax.Array]:
  """Grows the tree of the most probable continuations, one for each row.

  Args:
    verifier: the model.
    cache: of the tokens before the roots; its last `num_nodes` slots or more
      are scratch, never committed.
    roots: `[B]` int32 last token of each context.
    sampling: of the law whose probabilities count, `[B]`.
    num_nodes: size `N` of the trees.
    eos_ids: tokens that end a text and are left out.
    note_fn: `log_p [B, W, V] -> [B, W, J]`, what is kept of the laws.

  Returns:
    tree: trees with a leading axis `[B]`; nodes by falling probability of their
      path, so that the first n nodes are the best tree of n. `log_q` is the
      verifier's own log-probability. A law with little support may leave nodes
      absent.
    notes: `[B, N, J]` of the law after each node.
    is_read: `[B, N]`; the notes of leaves that were not read mean nothing.

  Raises:
    ValueError: sampling parameters with edits of logits.
  """
  rule = rules.best_first(num_nodes)
  reader = reader_lib.verifier()
  params = base.Params(verifier, (), sampling)
  rows = jnp.arange(roots.shape[0])[:, None]

  def read(memory, nodes):
    cache, notes = memory
    logits, cache = reader.read(params, cache, nodes)
    log_p = _law(logits, sampling)
    notes = notes.at[rows, nodes.slots].set(note_fn(log_p), mode='drop')
    return grown.without(log_p, eos_ids), (cache, notes)

  laws = jnp.zeros((len(roots), rule.num_slots, verifier.config.vocab_size))
  notes = jax.eval_shape(note_fn, laws)
  memory = (cache, jnp.zeros(notes.shape, notes.dtype))
  tree, slots, (_, notes) = grow.grow(rule, roots, read, memory)
  return tree, notes[rows, jnp.maximum(slots, 0)], slots != grow.NO_SLOT


def _law(logits, sampling):
  """The law that is sampled; with edits it would depend on the branch too."""
  if sampling.edits is not None:
    raise ValueError(
      'expected sampling without edits of logits, after which the oracle does '
      'not know the best tree, got penalties, bias or a minimum length'
    )
  return sampling_lib.log_law(logits, sampling)
