"""Rules by which trees grow: which nodes are worth another pass.

All of them value a node by the drafter's probability of its path.  A tree of
given nodes is worth `E[D] = sum of q(path)` if the drafter is right, so the
`N` most probable nodes are the tree to have; the rules differ in how much they
read to find them.
"""

import jax.numpy as jnp

from specjax.trees import grow


def best_first(num_nodes: int, width: int = 2) -> grow.Rule:
  """Returns the rule that reads on until the `N` best paths are found.

  The cheapest unread nodes are read, `width` at a time, as long as a child of
  theirs might be among the `N` best.  The result is exact for any width; wide
  passes are fewer, but read in vain where the text is nearly sure and the best
  tree is a chain.

  Args:
    num_nodes: size `N` of the tree.
    width: nodes read in one pass.

  Returns:
    The rule.

  Raises:
    ValueError: an argument below 1.
  """
  _check(num_nodes=num_nodes, width=width)

  def wants(known):
    can_improve = known.costs < known.costs[-1]
    return (known.slots == grow.NO_SLOT) & can_improve

  return _among_best(num_nodes, width, wants)


def beam(num_nodes: int, width: int, depth: int) -> grow.Rule:
  """Returns the rule of EAGLE-2 (Li et al. 2024, arXiv 2406.16858).

  At each depth the best `width` nodes are expanded by their best `width`
  children, down to `depth`; the `N` best of all that were met form the tree.

  Args:
    num_nodes: size `N` of the tree.
    width: nodes read at a depth, and children of each that are considered.
    depth: of the deepest nodes, which is the number of passes.

  Returns:
    The rule.

  Raises:
    ValueError: an argument below 1, or fewer candidates than nodes.
  """
  _check(num_nodes=num_nodes, width=width, depth=depth)
  num_known = 1 + width + (depth - 1) * width**2
  if num_nodes > num_known:
    raise ValueError(
      f'expected at most {num_known} nodes, which width {width} and depth '
      f'{depth} can fill, got {num_nodes}'
    )

  def wants(known):
    is_next = known.depths == known.num_passes
    is_candidate = jnp.isfinite(known.costs)
    return is_next & is_candidate & (known.num_passes < depth)

  return grow.Rule(
    num_nodes=num_nodes,
    num_known=num_known,
    num_slots=1 + (depth - 1) * width,
    width=width,
    branch=width,
    wants_fn=wants,
  )


def opt_tree(
  num_nodes: int, width: int, depth: int, threshold: float
) -> grow.Rule:
  """Returns the rule of OPT-Tree (Wang et al. 2024, arXiv 2406.17276).

  Level by level, the nodes of the new level that are among the `N` best so far
  are read, the cheapest `width` of them.  A row stops when its last level added
  less than `threshold` to the value of its tree.  With the threshold 0, a width
  of `N` and no end to the depth it finds the tree of `best_first`.

  Args:
    num_nodes: size `N` of the tree.
    width: most nodes read at a depth.
    depth: most passes, and so the depth of the deepest nodes.
    threshold: expected tokens that a pass has to win, about its time over that
      of the verifier's.

  Returns:
    The rule.

  Raises:
    ValueError: a size below 1 or a negative threshold.
  """
  _check(num_nodes=num_nodes, width=width, depth=depth)
  if not threshold >= 0:
    raise ValueError(f'expected a threshold >= 0, got {threshold}')

  def wants(known):
    is_first = known.num_passes == 0
    is_going_on = is_first | (known.gain >= threshold)
    is_next = known.depths == known.num_passes
    can_improve = known.costs < known.costs[-1]
    return is_next & can_improve & is_going_on & (known.num_passes < depth)

  return _among_best(num_nodes, width, wants)


def _among_best(num_nodes, width, wants_fn):
  """A rule that knows no more than the `N` best.

  Only they are read, so they need no more than `N` slots, and no more than
  `N - 1` children of one node can be among them.
  """
  return grow.Rule(
    num_nodes=num_nodes,
    num_known=num_nodes,
    num_slots=num_nodes,
    width=min(width, num_nodes),
    branch=num_nodes - 1,
    wants_fn=wants_fn,
  )


def _check(**sizes):
  for name, size in sizes.items():
    if size < 1:
      raise ValueError(f'expected {name} of at least 1, got {size}')
