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
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from specjax import sampling as sampling_lib
from specjax.draft import base
from specjax.llama import cache as llama_cache
from specjax.llama import mask
from specjax.llama import model as llama_model
from specjax.trees import grow
from specjax.trees import tree as tree_lib

_NO_SLOT = -1

# Nodes of a row read in one pass.  Where the text is nearly sure the best tree
# is a chain, which is read node by node; wider passes then read in vain.
_WIDTH = 2


class _Frontier(NamedTuple):
  """The best nodes that are known, cheapest first, in a batch of rows.

  A node that the verifier has read owns one of N scratch slots, which hold its
  keys and values.  Ancestors of listed nodes are listed too, so a slot whose
  owner has left the list is free.
  """

  tokens: jax.Array  # [B, N]
  costs: jax.Array  # [B, N] -log p of the path, inf where there is no node
  depths: jax.Array  # [B, N]
  slots: jax.Array  # [B, N] own scratch slot, -1 until read
  parent_slots: jax.Array  # [B, N] scratch slot of the parent, -1 at the root
  above: jax.Array  # [B, N slots, N slots] bool: ancestors by slot, self too
  cache: llama_cache.KVCache  # committed slots, then N scratch slots


@functools.cache
def make(max_nodes: int, eos_ids: tuple[int, ...]) -> base.Drafter:
  """Returns the oracle as a drafter.

  Args:
    max_nodes: largest tree that will be asked for.
    eos_ids: tokens that end a text.

  Returns:
    The drafter; it needs no parameters of its own.

  Raises:
    ValueError: in `propose`, a tree larger than `max_nodes`.
  """

  def init(params, prefix):
    del params
    return with_scratch(prefix.cache, max_nodes)

  def propose(params, cache, tokens, lengths, num_nodes):
    if num_nodes > max_nodes:
      raise ValueError(
        f'expected a tree of at most {max_nodes} nodes, got {num_nodes}'
      )
    # The last accepted node may be a leaf that was never read.
    cache = _catch_up(params.verifier, cache, tokens, lengths)
    roots = base.last_tokens(tokens, lengths)
    tree, slots, cache = best_trees(
      params.verifier, cache, roots, params.sampling, num_nodes, eos_ids
    )
    return base.Proposal(tree), (cache, slots)

  def observe(params, state, verdict):
    del params
    cache, slots = state
    return _keep(cache, slots, verdict)

  return base.Drafter(init, propose, observe)


def with_scratch(
  cache: llama_cache.KVCache, num_scratch: int
) -> llama_cache.KVCache:
  """Returns the cache with further slots at its end, of the same `length`.

  Args:
    cache: of S slots.
    num_scratch: slots to add.
  """
  pad = [(0, 0)] * 3
  return cache.replace(
    keys=jnp.pad(cache.keys, [*pad, (0, 0), (0, num_scratch)]),
    values=jnp.pad(cache.values, [*pad, (0, num_scratch), (0, 0)]),
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
  batch = roots.shape[0]
  full = lambda value: jnp.full((batch, num_nodes), value)
  frontier = _Frontier(
    tokens=full(0).at[:, 0].set(roots),
    costs=full(jnp.inf).at[:, 0].set(0.0),
    depths=full(0),
    slots=full(_NO_SLOT),
    parent_slots=full(_NO_SLOT),
    above=jnp.zeros((batch, num_nodes, num_nodes), bool),
    cache=cache,
  )
  frontier = lax.while_loop(
    lambda f: jnp.any(_must_read(f)),
    functools.partial(
      _read_best,
      verifier,
      sampling,
      eos_ids=eos_ids,
      width=min(_WIDTH, num_nodes),
    ),
    frontier,
  )
  slots = frontier.slots
  # [B, node, its parent]
  owner = slots[:, None] == frontier.parent_slots[:, :, None]
  parents = jnp.where(
    frontier.parent_slots == _NO_SLOT, tree_lib.NO_PARENT, jnp.argmax(owner, 2)
  )
  trees = jax.vmap(functools.partial(grow.best_tree, num_nodes=num_nodes))(
    frontier.tokens, parents, frontier.costs
  )
  return trees, slots, frontier.cache


def _must_read(frontier):
  """`[B, N]`: nodes whose children might be better than the N-th node."""
  can_improve = frontier.costs < frontier.costs[:, -1:]
  return (frontier.slots == _NO_SLOT) & can_improve


def _read_best(verifier, sampling, frontier, *, eos_ids, width):
  """Reads the best `width` nodes that must be read; merges their children."""
  num_nodes = frontier.tokens.shape[1]
  rows = jnp.arange(frontier.tokens.shape[0])[:, None]
  # Nodes in need come first; where there are too few, others follow and are not
  # `chosen`.
  need, order = lax.top_k(_must_read(frontier).astype(jnp.int8), width)
  chosen = need > 0
  is_used = jnp.any(frontier.slots[:, :, None] == jnp.arange(num_nodes), axis=1)
  free = lax.top_k((~is_used).astype(jnp.int8), width)[1]
  # A slot past the end is dropped by every write.
  new_slots = jnp.where(chosen, free, num_nodes)

  take = lambda x: jnp.take_along_axis(x, order, axis=1)
  parent_slots = take(frontier.parent_slots)
  above = frontier.above[rows, jnp.maximum(parent_slots, 0)]
  above &= (parent_slots != _NO_SLOT)[:, :, None]
  hidden, cache = _read(
    verifier,
    frontier.cache,
    take(frontier.tokens),
    take(frontier.depths),
    above,
    new_slots,
  )
  log_p = sampling_lib.log_law(llama_model.head(verifier, hidden), sampling)
  log_p = log_p.at[:, :, jnp.asarray(eos_ids, jnp.int32)].set(-jnp.inf)
  frontier = frontier._replace(
    slots=frontier.slots.at[rows, order].set(
      jnp.where(chosen, free, take(frontier.slots))
    ),
    above=frontier.above.at[rows, new_slots].set(
      above | (new_slots[:, :, None] == jnp.arange(num_nodes)), mode='drop'
    ),
    cache=cache,
  )
  costs = jnp.where(chosen, take(frontier.costs), jnp.inf)
  return _merge(frontier, log_p, costs, take(frontier.depths), new_slots)


def _read(verifier, cache, tokens, depths, above, slots):
  """Runs nodes that are no ancestors of each other.

  Args:
    verifier: the model.
    cache: with `M` scratch slots at its end.
    tokens: `[B, W]`.
    depths: `[B, W]`.
    above: `[B, W, M]` bool; the scratch slots of a node's ancestors.
    slots: `[B, W]` the scratch slot of each node, M for none.

  Returns:
    `[B, W, E]` and the cache with the nodes in their slots.
  """
  batch, width, num_scratch = above.shape
  first = cache.num_slots - num_scratch
  committed = mask.committed(cache.length, first)
  committed = jnp.broadcast_to(committed, (batch, width, first))
  hidden, _, new_kv = llama_model.forward(
    verifier,
    tokens,
    cache.length[:, None] + depths,
    cache,
    jnp.concatenate([committed, above], axis=2),
    jnp.eye(width, dtype=bool)[None],
  )
  return hidden, llama_cache.stash(cache, new_kv, first + slots)


def _merge(frontier, log_p, costs, depths, slots):
  """Keeps the N best of the listed nodes and the children of those just read.

  Args:
    frontier: with the nodes just read in it.
    log_p: `[B, W, V]` laws after the nodes just read.
    costs: `[B, W]` of the nodes just read; inf for those that do not count.
    depths: `[B, W]`.
    slots: `[B, W]`.
  """
  batch, num_nodes = frontier.tokens.shape
  # No more than N - 1 children of one node are among the best N nodes.
  child_log_p, tokens = lax.top_k(log_p, min(num_nodes - 1, log_p.shape[-1]))
  spread = lambda x: jnp.broadcast_to(x[:, :, None], tokens.shape)
  children = (
    tokens,
    spread(costs) - child_log_p,
    spread(depths + 1),
    jnp.full_like(tokens, _NO_SLOT),
    spread(slots),
  )
  both = [
    jnp.concatenate([old, new.reshape(batch, -1)], axis=1)
    for old, new in zip(frontier[:5], children, strict=True)
  ]
  best = jax.vmap(lambda c: tree_lib.select_best(c, num_nodes))(both[1])
  kept = (jnp.take_along_axis(x, best, axis=1) for x in both)
  return _Frontier(*kept, above=frontier.above, cache=frontier.cache)


def _keep(cache, slots, verdict):
  """Commits the accepted nodes that were read; a leaf may be missing."""
  num_scratch = slots.shape[1]
  path_slots = jnp.take_along_axis(slots, verdict.path, axis=1)
  is_accepted = jnp.arange(num_scratch) < verdict.num_accepted[:, None]
  num_read = jnp.sum(is_accepted & (path_slots != _NO_SLOT), axis=1)
  scratch = llama_cache.NewKV(
    keys=cache.keys[..., -num_scratch:],
    values=cache.values[..., -num_scratch:, :],
  )
  return llama_cache.commit(cache, scratch, path_slots, num_read)


def _catch_up(verifier, cache, tokens, lengths):
  """Reads the token before the root where it is not in the cache."""
  is_missing = cache.length < lengths - 1

  def read(cache):
    last = jnp.maximum(lengths - 2, 0)
    _, _, new_kv = llama_model.forward(
      verifier,
      jnp.take_along_axis(tokens, last[:, None], axis=1),
      last[:, None],
      cache,
      mask.committed(cache.length, cache.num_slots),
      jnp.ones((1, 1, 1), bool),
    )
    return llama_cache.commit(
      cache,
      new_kv,
      jnp.zeros((tokens.shape[0], 1), jnp.int32),
      is_missing.astype(jnp.int32),
    )

  return lax.cond(jnp.any(is_missing), read, lambda cache: cache, cache)
