"""Drafts of one text that agree at first and then part, merged into a tree."""

import jax
import jax.numpy as jnp
from jax import lax

from specjax.trees import grow
from specjax.trees import tree as tree_lib


def merge(
  root: jax.Array, drafts: jax.Array, values: jax.Array, num_nodes: int
) -> tree_lib.Tree:
  """Returns the tree of the most probable continuations that drafts state.

  A node is a beginning of one or more drafts, and its probability the sum of
  what each of them says of it:

      q(path to depth d) = sum over drafts m that begin so of values[m, d - 1]

  Args:
    root: `[]` int32 token that the drafts follow.
    drafts: `[M, depth]` int32 tokens; at least one draft, and `M depth >= N -
      1`.
    values: `[M, depth]` float32 probability that the text goes on as a draft
      does, up to each of its tokens: falling along a draft, of sum at most 1
      over drafts; 0 from where a draft ends.
    num_nodes: size `N` of the tree, the root included.

  Returns:
    The tree, nodes by falling probability; absent where drafts state too few.
  """
  num_drafts, depth = drafts.shape

  def level(agree, column):
    tokens, values = column
    agree &= tokens[:, None] == tokens
    # In full precision and always in one order: no sum exceeds its parent's.
    sums = jnp.sum(jnp.where(agree, values, 0.0), axis=1)
    return agree, (sums, jnp.argmax(agree, axis=1))

  # Drafts that begin alike are one node, which the first of them states.
  everywhere = jnp.ones((num_drafts, num_drafts), bool)
  _, (sums, owners) = lax.scan(level, everywhere, (drafts.T, values.T))
  is_stated = owners == jnp.arange(num_drafts)
  costs = jnp.where(is_stated, -jnp.log(sums), jnp.inf)
  # Candidate 0 is the root; draft m at depth d is 1 + (d - 1) M + m.
  first = 1 + num_drafts * jnp.arange(depth - 1)[:, None]
  parents = jnp.zeros((depth, num_drafts), jnp.int32)
  parents = parents.at[1:].set(first + owners[:-1])
  flat = lambda at_root, rest: jnp.append(
    jnp.asarray(at_root, rest.dtype), rest.reshape(-1)
  )
  return grow.best_tree(
    flat(root, drafts.T),
    flat(tree_lib.NO_PARENT, parents),
    flat(0.0, costs),
    num_nodes,
  )
