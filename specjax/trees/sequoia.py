"""Sequoia's programme: the best static shape of limited depth and branching.

Chen et al. 2024 (arXiv 2402.12374) build the tree of most expected tokens by
dynamic programming over size and depth.  One run gives the value of every size
at every depth, which is what a choice by latency needs: a level costs a pass of
the drafter, a node costs a place in the verifier's.  Without limits the tree is
worth what `shapes.best_first` is.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.lib import stride_tricks

from specjax.trees import shapes
from specjax.trees import tree as tree_lib


class Programme(NamedTuple):
  """The best trees of all sizes and depths; `P` is the greatest depth.

  Attributes:
    values: `[P + 1, N + 1]` float64; `values[d, n]` is `D`, the expected tokens
      of an iteration with the best tree of n nodes no deeper than d, bonus
      included; `-inf` where the limits leave no such tree, and at n = 0.
    sizes: `[P + 1, K, N]` int32; if the first k + 1 children of the root of a
      tree no deeper than d share n nodes, `sizes[d, k, n]` of them are the k-th
      child's.
    ranks: `[K]` int32 rank of the k-th child, by falling acceptance rate.
  """

  values: np.ndarray
  sizes: np.ndarray
  ranks: np.ndarray


def solve(
  num_nodes: int,
  rates: Sequence[float],
  depth: int | None = None,
  branch: int | None = None,
) -> Programme:
  """Runs the programme for all sizes up to `num_nodes`.

  With the rates `r_0 >= r_1 >= ...` and `F_k(n)` for the best that `n` nodes
  give under the first `k` children of one node,

      F_k(n) = max over m of F_{k-1}(n - m) + r_{k-1} values[d - 1, m]
      values[d, n] = 1 + F_K(n - 1),

  where a child without nodes adds 0.

  Args:
    num_nodes: `N`, the root included.
    rates: acceptance probability of each rank, in [0, 1], of sum at most 1.
    depth: most edges between root and node; by default as many as win anything.
    branch: most children of a node; by default as many as there are rates.

  Returns:
    The programme.

  Raises:
    ValueError: a size or branch below 1, a negative depth, or rates that
      `shapes.ranked` refuses.
  """
  if num_nodes < 1:
    raise ValueError(f'expected a tree of at least 1 node, got {num_nodes}')
  if depth is not None and depth < 0:
    raise ValueError(f'expected a depth of at least 0, got {depth}')
  if branch is not None and branch < 1:
    raise ValueError(f'expected a branch of at least 1, got {branch}')
  ranks = shapes.ranked(rates)[:branch]
  falling = np.asarray(rates, float)[ranks]
  last = num_nodes - 1 if depth is None else min(depth, num_nodes - 1)
  root_alone = np.full(num_nodes + 1, -np.inf)
  root_alone[1] = 1.0
  values = [root_alone]
  sizes = [np.zeros((len(ranks), num_nodes), np.int32)]
  while len(values) <= last:
    deeper, shares = _deepen(values[-1], falling)
    if np.array_equal(deeper, values[-1]):
      break
    values.append(deeper)
    sizes.append(shares)
  return Programme(np.stack(values), np.stack(sizes), ranks)


def shape_of(
  programme: Programme, num_nodes: int, depth: int | None = None
) -> shapes.Shape:
  """Returns the best tree of a size and depth.

  Args:
    programme: of at least as many nodes.
    num_nodes: of the tree, the root included.
    depth: most edges between root and node; by default, and at most, the
      programme's.

  Returns:
    The shape; a node's descendants follow it before its next sibling.

  Raises:
    ValueError: a size or depth that the programme does not hold, or limits that
      the size exceeds.
  """
  deepest, most = (size - 1 for size in programme.values.shape)
  if not 1 <= num_nodes <= most:
    raise ValueError(f'expected a size in [1, {most}], got {num_nodes}')
  if depth is None:
    depth = deepest
  if not 0 <= depth <= deepest:
    raise ValueError(f'expected a depth in [0, {deepest}], got {depth}')
  if not np.isfinite(programme.values[depth, num_nodes]):
    fills = np.flatnonzero(np.isfinite(programme.values[depth])).max()
    raise ValueError(
      f'expected a size of at most {fills} within the limits, got {num_nodes}'
    )
  parents, ranks = [], []
  todo = [(tree_lib.NO_PARENT, 0, depth, num_nodes)]
  while todo:
    parent, rank, depth, size = todo.pop()
    node = len(parents)
    parents.append(parent)
    ranks.append(rank)
    left = size - 1
    for place in reversed(range(len(programme.ranks))):
      share = int(programme.sizes[depth, place, left])
      if share:
        todo.append((node, int(programme.ranks[place]), depth - 1, share))
      left -= share
  return shapes.Shape(np.array(parents, np.int32), np.array(ranks, np.int32))


def best(
  num_nodes: int,
  rates: Sequence[float],
  depth: int | None = None,
  branch: int | None = None,
) -> shapes.Shape:
  """Returns the tree of most expected tokens within limits.

  Args:
    num_nodes: `N`, the root included.
    rates: acceptance probability of each rank, in [0, 1], of sum at most 1.
    depth: most edges between root and node; by default any number.
    branch: most children of a node; by default any number.

  Returns:
    The shape.

  Raises:
    ValueError: what `solve` refuses, or limits that leave no such tree.
  """
  return shape_of(solve(num_nodes, rates, depth, branch), num_nodes)


def _deepen(values, rates):
  """The best trees that are one level deeper than those of `values`.

  Args:
    values: `[N + 1]` of the best trees by size.
    rates: `[K]`, falling.

  Returns:
    values: `[N + 1]` of the deeper trees.
    sizes: `[K, N]` the nodes of each child, as in `Programme`.
  """
  num_nodes = len(values) - 1
  subtree = np.where(np.arange(num_nodes) == 0, 0.0, values[:num_nodes])
  forest = np.full(num_nodes, -np.inf)
  forest[0] = 0.0
  sizes = np.zeros((len(rates), num_nodes), np.int32)
  for place, rate in enumerate(rates):
    # No child has more nodes than a likelier one, so it has its share at most.
    most = (num_nodes - 1) // (place + 1)
    padded = np.concatenate([np.full(most, -np.inf), forest])
    # `[n, m]`: what the earlier children make of n - m nodes.
    others = stride_tricks.sliding_window_view(padded, most + 1)[:, ::-1]
    sums = others + rate * subtree[: most + 1]
    sizes[place] = sums.argmax(axis=1)
    forest = sums.max(axis=1)
  return np.concatenate([[-np.inf], 1.0 + forest]), sizes
