"""The draft tree, and the operations that theory and decoder share.

A node of a draft tree and a particle of a branching random walk are one thing:
a parent and an edge cost `-log q >= 0`.  `path_sum` turns edge costs into
positions of the walk, `select_best` keeps the nodes of smallest position,
`walk` follows sampled tokens from the root until they leave the tree.

Arrays of one tree are written `[N]`; `jax.vmap` makes a batch of them.  Parents
come before their children, so node 0 is the root.
"""

from collections.abc import Callable
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
from flax import struct
from jax import lax

NO_PARENT = -1
NO_CHILD = -1
ROOT = 0


@struct.dataclass
class Tree:
  """A draft tree of at most `N` nodes.

  Attributes:
    tokens: `[N]` int32; `tokens[0]` is the last committed token, which any pass
      has to run.
    parents: `[N]` int32; `parents[0] = -1` and `parents[i] < i`.
    log_q: `[N]` float32; log-probability in nats that the drafter gives a
      node's token after its parent, 0 at the root.
    num_nodes: `[]` int32; nodes at or past it are absent: never matched and
      never counted.
  """

  tokens: jax.Array
  parents: jax.Array
  log_q: jax.Array
  num_nodes: jax.Array


class Path(NamedTuple):
  """The way of sampled tokens through a batch of trees.

  Attributes:
    nodes: `[B, N]` int32 nodes visited, the root first; 0 past the end.
    tokens: `[B, N]` int32; `tokens[:, d]` was sampled after `nodes[:, d]`.
    extra: pytree of `[B, N, ...]`; what the sampler said beside each token.
    length: `[B]` int32 number of nodes visited, which is the number of tokens
      sampled: those on the path and the one that left the tree.
  """

  nodes: jax.Array
  tokens: jax.Array
  extra: chex.ArrayTree
  length: jax.Array


def present(tree: Tree) -> jax.Array:
  """Returns `[N]` bool: the nodes that take part."""
  return jnp.arange(tree.parents.shape[0]) < tree.num_nodes


def path_sum(parents: jax.Array, values: jax.Array) -> jax.Array:
  """Returns, for each node, the sum of `values` from the root to it.

  Pointer doubling: after step k a node holds the sum over its last 2^k
  ancestors, so `ceil(log2 N)` gathers serve any tree.

  Args:
    parents: `[N]` int32 with `parents[i] < i`, roots -1.
    values: `[N]` value of each node, its own included in its sum.

  Returns:
    `[N]` sums.
  """

  def double(_, carry):
    total, jump = carry
    stop = jump < 0
    total = total + jnp.where(stop, 0, total[jump])
    return total, jnp.where(stop, NO_PARENT, jump[jump])

  num_steps = max(parents.shape[0] - 1, 0).bit_length()
  total, _ = lax.fori_loop(0, num_steps, double, (values, parents))
  return total


def depth(parents: jax.Array) -> jax.Array:
  """Returns `[N]` int32: the number of edges between root and node."""
  return path_sum(parents, jnp.ones_like(parents)) - 1


def ancestors(parents: jax.Array) -> jax.Array:
  """Returns `[N, N]` bool: `[i, j]` says that j lies on the way from root to i.

  Every node counts as its own ancestor.  For the chain 0-1 with a second child
  2 of the root (parents -1, 0, 0) it is

      [[1, 0, 0],
       [1, 1, 0],
       [1, 0, 1]]

  As the mask of a verifier pass it lets a node attend to its own branch alone.
  """

  def double(_, carry):
    above, jump = carry
    stop = (jump < 0)[:, None]
    above = above | jnp.where(stop, False, above[jump])
    return above, jnp.where(jump < 0, NO_PARENT, jump[jump])

  size = parents.shape[0]
  num_steps = max(size - 1, 0).bit_length()
  above, _ = lax.fori_loop(
    0, num_steps, double, (jnp.eye(size, dtype=bool), parents)
  )
  return above


def select_best(costs: jax.Array, num_nodes: int) -> jax.Array:
  """Returns the indices of the `num_nodes` smallest costs, in rising order.

  Of equal costs the earlier index comes first.  When costs are path sums of
  edge costs `>= 0` and parents stand before their children, no node is selected
  without its parent: the result, in its order, is a tree again.

  Args:
    costs: `[M]` costs `>= 0`, `inf` for candidates that do not exist.
    num_nodes: how many to keep, at most M.

  Returns:
    `[num_nodes]` int32 indices into `costs`.
  """
  return lax.top_k(-costs, num_nodes)[1]


def child(tree: Tree, node: jax.Array, token: jax.Array) -> jax.Array:
  """Returns the child of `node` that carries `token`, -1 if none does."""
  match = (tree.parents == node) & (tree.tokens == token) & present(tree)
  found = jnp.where(jnp.any(match), jnp.argmax(match), NO_CHILD)
  return found.astype(jnp.int32)


def walk(
  trees: Tree,
  sample_fn: Callable[[jax.Array, jax.Array], tuple[jax.Array, chex.ArrayTree]],
  active: jax.Array,
) -> Path:
  """Follows sampled tokens through a batch of trees until they leave it.

  Works on the whole batch, so that `sample_fn` is called for the nodes that are
  visited and for no others, as often as the longest path asks.

  Args:
    trees: trees with a leading axis `[B]`.
    sample_fn: `(nodes [B], depth []) -> (tokens [B], extra [B, ...])`, the
      token sampled after each node.  Rows that have left their tree ask for
      node 0 and the answer is not used.
    active: `[B]` bool; other rows do not start, their length is 0.

  Returns:
    The paths.
  """
  batch, size = trees.parents.shape
  shapes = jax.eval_shape(sample_fn, jnp.zeros(batch, jnp.int32), jnp.int32(0))
  zeros = jax.tree.map(
    lambda x: jnp.zeros((batch, size, *x.shape[1:]), x.dtype), shapes
  )
  start = Path(
    nodes=jnp.zeros((batch, size), jnp.int32),
    tokens=zeros[0],
    extra=zeros[1],
    length=jnp.zeros(batch, jnp.int32),
  )

  def is_inside(carry):
    _, nodes, _ = carry
    return jnp.any(nodes != NO_CHILD)

  def step(carry):
    path, nodes, level = carry
    inside = nodes != NO_CHILD
    nodes = jnp.maximum(nodes, ROOT)
    tokens, extra = sample_fn(nodes, level)

    def put(column, value):
      keep = inside.reshape((batch,) + (1,) * (value.ndim - 1))
      return column.at[:, level].set(jnp.where(keep, value, column[:, level]))

    path = Path(
      nodes=put(path.nodes, nodes),
      tokens=put(path.tokens, tokens),
      extra=jax.tree.map(put, path.extra, extra),
      length=path.length + inside,
    )
    following = jax.vmap(child)(trees, nodes, tokens)
    return path, jnp.where(inside, following, NO_CHILD), level + 1

  roots = jnp.where(active, ROOT, NO_CHILD).astype(jnp.int32)
  path, _, _ = lax.while_loop(is_inside, step, (start, roots, jnp.int32(0)))
  return path
