"""Trees that grow: candidates are known by their costs, the best are kept.

A drafter's law at a node turns the node into candidates, one for each token it
may go on with.  `grow` asks for laws pass by pass, a fixed number of nodes a
pass, and keeps the cheapest candidates; a rule (see `rules`) says which nodes
are worth reading and when to stop.  Nothing here knows a model: laws come from
a function, which keeps what it read of a node in the slot that it is told.
"""

from collections.abc import Callable
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
from jax import lax

from specjax.trees import tree as tree_lib

NO_SLOT = -1


class Nodes(NamedTuple):
  """Nodes to be read in one pass, none of them an ancestor of another.

  Attributes:
    tokens: `[B, W]` int32.
    depths: `[B, W]` int32, 0 at the root.
    slots: `[B, W]` int32 where to keep what was read; past the last slot for
      nodes that only fill the pass and are not looked at.
    parent_slots: `[B, W]` int32 slots of their parents, -1 at the root.
    above: `[B, W, P]` bool; the slots, of `P`, that hold a node's ancestors.
  """

  tokens: jax.Array
  depths: jax.Array
  slots: jax.Array
  parent_slots: jax.Array
  above: jax.Array


# `(memory, nodes) -> (log_q [B, W, V], memory)`: the laws after nodes, in nats.
ReadFn = Callable[[chex.ArrayTree, Nodes], tuple[jax.Array, chex.ArrayTree]]


class Known(NamedTuple):
  """The candidates of one row that are known, cheapest first.

  A candidate that was read owns a slot.  Ancestors of listed candidates are
  listed too, so a slot whose owner has left the list is free.

  Attributes:
    tokens: `[M]` int32.
    costs: `[M]` float32 `-log q` of the path in nats, inf for no candidate.
    depths: `[M]` int32.
    slots: `[M]` int32 own slot, -1 until read.
    parent_slots: `[M]` int32 slot of the parent, -1 at the root.
    above: `[P, P]` bool; by slot, the slots of its owner's ancestors and its
      own.
    gain: `[]` float32 expected tokens that the last pass added to the tree.
    num_passes: `[]` int32.
  """

  tokens: jax.Array
  costs: jax.Array
  depths: jax.Array
  slots: jax.Array
  parent_slots: jax.Array
  above: jax.Array
  gain: jax.Array
  num_passes: jax.Array


class Rule(NamedTuple):
  """How a tree grows; all sizes are static.

  Attributes:
    num_nodes: size `N` of the tree.
    num_known: candidates `M >= N` that are kept.
    num_slots: `P`, most candidates that are read and kept at any time.
    width: `W`, nodes of a row that are read in one pass.
    branch: most children of one node that become candidates.
    wants_fn: from the `Known` of one row to `[M]` bool, the candidates to be
      read; the cheapest `W` of them are next.  The tree is done when no row
      wants any.
  """

  num_nodes: int
  num_known: int
  num_slots: int
  width: int
  branch: int
  wants_fn: Callable[[Known], jax.Array]


# The rule for a given number of nodes.
RuleFn = Callable[[int], Rule]


def grow(
  rule: Rule, roots: jax.Array, read_fn: ReadFn, memory: chex.ArrayTree
) -> tuple[tree_lib.Tree, jax.Array, chex.ArrayTree]:
  """Grows a tree for each row and keeps its `N` most probable nodes.

  Args:
    rule: what is read, and when it is enough.
    roots: `[B]` int32 last token of each context.
    read_fn: gives the laws after nodes; tokens of `-inf` are left out.
    memory: what `read_fn` starts from.

  Returns:
    tree: trees with a leading axis `[B]`, nodes by falling probability of their
      path.  Laws with little support may leave nodes absent.
    slots: `[B, N]` int32 slot that holds what was read of a node, -1 for leaves
      that were not read.
    memory: as the last pass left it.
  """
  batched = lambda fn: jax.vmap(lambda *args: fn(rule, *args))

  def step(carry):
    known, memory = carry
    known, nodes, costs = batched(_choose)(known)
    log_q, memory = read_fn(memory, nodes)
    return batched(_merge)(known, nodes, costs, log_q), memory

  known, memory = lax.while_loop(
    lambda carry: jnp.any(jax.vmap(rule.wants_fn)(carry[0])),
    step,
    (batched(_start)(roots), memory),
  )
  slots = known.slots[:, : rule.num_nodes]
  return batched(_tree_of)(known), slots, memory


def best_tree(
  tokens: jax.Array,
  parents: jax.Array,
  costs: jax.Array,
  num_nodes: int,
) -> tree_lib.Tree:
  """Returns the tree of the `num_nodes` cheapest candidates, cheapest first.

  Args:
    tokens: `[M]` int32 tokens of the candidates; the first is the root.
    parents: `[M]` int32 indices of their parents among the candidates, which
      stand before their children; -1 at the root.
    costs: `[M]` float32 costs `-log q` of the paths from the root in nats, 0 at
      the root and never falling along a path; `inf` where there is no
      candidate.
    num_nodes: size `N` of the tree, at most M.

  Returns:
    The tree; nodes that no candidate could fill are absent.
  """
  chosen = tree_lib.select_best(_without_sign(costs), num_nodes)
  place = jnp.zeros(tokens.shape[0], jnp.int32)
  place = place.at[chosen].set(jnp.arange(num_nodes, dtype=jnp.int32))
  is_present = jnp.isfinite(costs[chosen])
  old_parents = parents[chosen]
  is_root = old_parents < 0
  new_parents = jnp.where(is_root, tree_lib.NO_PARENT, place[old_parents])
  # Absent nodes hang on the root, so that every tree is well formed.
  new_parents = jnp.where(is_present, new_parents, tree_lib.ROOT)
  cost = jnp.where(is_present, costs[chosen], 0.0)
  edge = jnp.where(is_root | ~is_present, 0.0, cost - cost[new_parents])
  return tree_lib.Tree(
    tokens=jnp.where(is_present, tokens[chosen], 0),
    parents=new_parents,
    log_q=-edge,
    num_nodes=jnp.sum(is_present, dtype=jnp.int32),
  )


def _start(rule, root):
  """Only the root is known."""
  full = lambda value: jnp.full(rule.num_known, value)
  return Known(
    tokens=full(jnp.int32(0)).at[0].set(root),
    costs=full(jnp.float32(jnp.inf)).at[0].set(0.0),
    depths=full(jnp.int32(0)),
    slots=full(jnp.int32(NO_SLOT)),
    parent_slots=full(jnp.int32(NO_SLOT)),
    above=jnp.zeros((rule.num_slots, rule.num_slots), bool),
    gain=jnp.float32(0),
    num_passes=jnp.int32(0),
  )


def _choose(rule, known):
  """Gives slots to the candidates that are read next.

  Returns:
    known: with the slots taken.
    nodes: what to read, without the axis `B`.
    costs: `[W]`, inf for nodes that only fill the pass.
  """
  # Those wanted come first, the cheapest before others; where there are too
  # few, some follow that are not `chosen`.
  need, order = lax.top_k(rule.wants_fn(known).astype(jnp.int8), rule.width)
  chosen = need > 0
  every_slot = jnp.arange(rule.num_slots)
  is_used = jnp.any(known.slots[:, None] == every_slot, axis=0)
  free = lax.top_k((~is_used).astype(jnp.int8), rule.width)[1]
  slots = jnp.where(chosen, free, rule.num_slots)
  parent_slots = known.parent_slots[order]
  above = known.above[jnp.maximum(parent_slots, 0)]
  above &= (parent_slots != NO_SLOT)[:, None]
  nodes = Nodes(
    tokens=known.tokens[order],
    depths=known.depths[order],
    slots=slots,
    parent_slots=parent_slots,
    above=above,
  )
  known = known._replace(
    slots=known.slots.at[order].set(
      jnp.where(chosen, free, known.slots[order])
    ),
    above=known.above.at[slots].set(
      above | (slots[:, None] == every_slot), mode='drop'
    ),
  )
  return known, nodes, jnp.where(chosen, known.costs[order], jnp.inf)


def _merge(rule, known, nodes, costs, log_q):
  """Keeps the best of the known candidates and the children just found.

  Args:
    rule: of the tree.
    known: with the nodes just read in it.
    nodes: that were read, without the axis `B`.
    costs: `[W]` their costs.
    log_q: `[W, V]` laws after them.
  """
  log_q, tokens = lax.top_k(log_q, min(rule.branch, log_q.shape[-1]))
  spread = lambda x: jnp.broadcast_to(x[:, None], tokens.shape)
  children = (
    tokens,
    spread(costs) - log_q,
    spread(nodes.depths + 1),
    jnp.full_like(tokens, NO_SLOT),
    spread(nodes.slots),
  )
  both = [
    jnp.concatenate([old, new.reshape(-1)])
    for old, new in zip(known[:5], children, strict=True)
  ]
  best = tree_lib.select_best(_without_sign(both[1]), rule.num_known)
  kept = Known(*(x[best] for x in both), *known[5:])
  value = lambda costs: jnp.sum(jnp.exp(-costs[: rule.num_nodes]))
  return kept._replace(
    gain=value(kept.costs) - value(known.costs),
    num_passes=known.num_passes + 1,
  )


def _tree_of(rule, known):
  """The tree of the first `N` candidates."""
  first = jax.tree.map(lambda x: x[: rule.num_nodes], known[:5])
  tokens, costs, _, slots, parent_slots = first
  owner = jnp.argmax(slots[None] == parent_slots[:, None], axis=1)
  is_root = parent_slots == NO_SLOT
  parents = jnp.where(is_root, tree_lib.NO_PARENT, owner.astype(jnp.int32))
  return best_tree(tokens, parents, costs, rule.num_nodes)


def _without_sign(x):
  """Returns `|x|` by its bits.

  top_k tells -0 from 0, and where sums may be reordered either may come out.
  """
  bits = lax.bitcast_convert_type(x, jnp.dtype(f'int{8 * x.dtype.itemsize}'))
  return lax.bitcast_convert_type(bits & jnp.iinfo(bits.dtype).max, x.dtype)
