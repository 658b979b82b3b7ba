"""Static shapes filled from a drafter's laws, level by level.

The nodes of a depth that have children are read in one pass, of the same width
at every depth; their children are drawn, and the next depth is read.  The root
is read even if it is alone.
"""

from collections.abc import Callable
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from specjax.trees import grow, shapes
from specjax.trees import tree as tree_lib


class Places(NamedTuple):
  """Nodes of one depth and where their children stand, the same in all rows.

  Attributes:
    nodes: `[W]` int32 nodes that were read; N for those that fill up.
    children: `[W, K]` int32 their child of each rank; N where there is none.
    depth: `[]` int32 of the nodes.
  """

  nodes: jax.Array
  children: jax.Array
  depth: jax.Array


# `(log_q [B, W, V], places) -> tokens [B, W, K]`: children by rank.
DrawFn = Callable[[jax.Array, Places], jax.Array]


def fill(
  shape: shapes.Shape,
  roots: jax.Array,
  read_fn: grow.ReadFn,
  draw_fn: DrawFn,
  memory: chex.ArrayTree,
) -> tuple[tree_lib.Tree, jax.Array, chex.ArrayTree]:
  """Fills a shape with tokens, for a batch of rows.

  Args:
    shape: of `N` nodes.
    roots: `[B]` int32 last token of each context.
    read_fn: gives the laws after nodes; there are N slots, one for each node.
    draw_fn: gives the children of nodes.
    memory: what `read_fn` starts from.

  Returns:
    tree: trees with a leading axis `[B]`, nodes in the order of the shape.
    slots: `[B, N]` int32 slot that holds what was read of a node, which is its
      own number; -1 for leaves, which are not read.
    memory: as the last pass left it.
  """
  batch, size = roots.shape[0], len(shape.parents)
  levels, children = _levels(shape), _children(shape)
  parents = jnp.asarray(shape.parents)
  above = tree_lib.ancestors(parents) & ~jnp.eye(size, dtype=bool)
  over_rows = lambda x: jnp.broadcast_to(x, (batch, *x.shape))

  def step(depth, carry):
    tokens, log_q, memory = carry
    places = Places(levels[depth], children[levels[depth]], depth)
    here = jnp.minimum(places.nodes, size - 1)
    nodes = grow.Nodes(
      tokens=tokens[:, here],
      depths=jnp.full((batch, len(here)), depth),
      slots=over_rows(places.nodes),
      parent_slots=over_rows(parents[here]),
      above=over_rows(above[here]),
    )
    laws, memory = read_fn(memory, nodes)
    drawn = draw_fn(laws, places)
    put = lambda old, new: old.at[:, places.children].set(new, mode='drop')
    drawn_log_q = jnp.take_along_axis(laws, drawn, axis=2)
    return put(tokens, drawn), put(log_q, drawn_log_q), memory

  tokens = jnp.zeros((batch, size), jnp.int32).at[:, 0].set(roots)
  start = (tokens, jnp.zeros((batch, size), jnp.float32), memory)
  tokens, log_q, memory = lax.fori_loop(
    jnp.int32(0), jnp.int32(len(levels)), step, start
  )
  tree = tree_lib.Tree(
    tokens=tokens,
    parents=over_rows(parents),
    log_q=log_q,
    num_nodes=jnp.full(batch, size, jnp.int32),
  )
  is_read = np.isin(np.arange(size), _inner(shape))
  slots = jnp.where(is_read, jnp.arange(size, dtype=jnp.int32), grow.NO_SLOT)
  return tree, over_rows(slots), memory


def _inner(shape):
  """Nodes that are read: those that have children, and the root."""
  return np.union1d([tree_lib.ROOT], shape.parents[1:])


def _levels(shape):
  """`[passes, W]`: the nodes of each depth that are read."""
  size, inner = len(shape.parents), _inner(shape)
  depths = shape.depths[inner]
  rows = [inner[depths == depth] for depth in range(depths.max() + 1)]
  width = max(map(len, rows))
  table = np.full((len(rows), width), size, np.int32)
  for row, nodes in zip(table, rows, strict=True):
    row[: len(nodes)] = nodes
  return jnp.asarray(table)


def _children(shape):
  """`[N + 1, K]`: the child of each node and rank, N where there is none."""
  size = len(shape.parents)
  table = np.full((size + 1, shape.ranks.max() + 1), size, np.int32)
  table[shape.parents[1:], shape.ranks[1:]] = np.arange(1, size)
  return jnp.asarray(table)
