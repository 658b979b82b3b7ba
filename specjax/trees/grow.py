"""Growing rules: from candidate nodes with costs to the tree of the best."""

import jax
import jax.numpy as jnp

from specjax.trees import tree as tree_lib


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
  chosen = tree_lib.select_best(costs, num_nodes)
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
