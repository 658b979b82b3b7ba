"""Static shapes: which ranks of which nodes a draft tree holds, fixed
beforehand.

A shape says for every node who its parent is and which of the drafter's ranked
continuations of the parent it takes.  It knows no tokens; a drafter fills it.
"""

import heapq
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from specjax.trees import tree as tree_lib


class Shape(NamedTuple):
  """The shape of a draft tree.

  Attributes:
    parents: `[N]` int32; `parents[0] = -1` and `parents[i] < i`.
    ranks: `[N]` int32; node i is its parent's `ranks[i]`-th best continuation,
      counted from 0; 0 at the root.
  """

  parents: np.ndarray
  ranks: np.ndarray

  @property
  def depths(self) -> np.ndarray:
    """`[N]` int: number of edges between root and node."""
    depths = np.zeros(len(self.parents), int)
    for node in range(1, len(depths)):
      depths[node] = depths[self.parents[node]] + 1
    return depths


# Draws the shape of a given number of nodes.
ShapeFn = Callable[[int], Shape]


def chain(num_nodes: int) -> Shape:
  """Returns the chain of best continuations.

  Args:
    num_nodes: `N`, the root included.

  Returns:
    The shape, of depth `N - 1`.

  Raises:
    ValueError: a size below 1.
  """
  _check_size(num_nodes)
  return _shape(np.arange(num_nodes) - 1, np.zeros(num_nodes))


def k_ary(num_nodes: int, arity: int) -> Shape:
  """Returns the tree that is filled level by level.

  Args:
    num_nodes: `N`, the root included.
    arity: children a node; the last that has any may have fewer.

  Returns:
    The shape, with the best `arity` continuations of each inner node.

  Raises:
    ValueError: a size or an arity below 1.
  """
  _check_size(num_nodes)
  if arity < 1:
    raise ValueError(f'expected arity >= 1, got {arity}')
  nodes = np.arange(num_nodes)
  ranks = (nodes - 1) % arity
  ranks[0] = 0
  parents = (nodes - 1) // arity
  parents[0] = tree_lib.NO_PARENT
  return _shape(parents, ranks)


def best_first(num_nodes: int, rates: Sequence[float]) -> Shape:
  """Returns the tree of most expected tokens for given acceptance rates.

  If the r-th ranked child is the accepted one with probability `rates[r]`,
  independently at every node, a node is reached with the product of the rates
  on its path and a tree is worth the sum over its nodes.  The best tree takes
  the `num_nodes` largest products; ranks are taken in falling order of their
  rate.

  Args:
    num_nodes: `N`, the root included.
    rates: acceptance probability of each rank, in [0, 1], of sum at most 1.

  Returns:
    The shape, nodes by falling product.

  Raises:
    ValueError: a size below 1, rates that `ranked` refuses, or none that is
      positive.
  """
  _check_size(num_nodes)
  order = ranked(rates)
  if not len(order) and num_nodes > 1:
    raise ValueError('expected a positive acceptance rate, got none')
  # An entry is the next untaken child of a node: (-value, tie, parent, place of
  # its rank in `order`, value of the parent).  Ties go to the earlier entry.
  queue, parents, ranks = [], [], []

  def offer(parent, place, parent_value):
    if place < len(order):
      value = parent_value * rates[order[place]]
      entry = (-value, len(parents), place, parent, parent_value)
      heapq.heappush(queue, entry)

  parents.append(tree_lib.NO_PARENT)
  ranks.append(0)
  offer(0, 0, 1.0)
  while len(parents) < num_nodes:
    value, _, place, parent, parent_value = heapq.heappop(queue)
    node = len(parents)
    parents.append(parent)
    ranks.append(order[place])
    offer(parent, place + 1, parent_value)
    offer(node, 0, -value)
  return _shape(parents, ranks)


def ranked(rates: Sequence[float]) -> np.ndarray:
  """Returns the ranks that are ever accepted, by falling acceptance rate.

  Args:
    rates: acceptance probability of each rank, in [0, 1], of sum at most 1.

  Returns:
    `[K]` int32; of equal rates the earlier rank comes first.

  Raises:
    ValueError: a rate or their sum is out of range.
  """
  rates = np.asarray(rates, float)
  if rates.ndim != 1 or not np.all((rates >= 0) & (rates <= 1)):
    raise ValueError(f'expected acceptance rates in [0, 1], got {rates}')
  if rates.sum() > 1 + 1e-6:
    raise ValueError(f'expected rates of sum <= 1, got {rates.sum()}')
  order = np.argsort(-rates, kind='stable')
  return order[rates[order] > 0].astype(np.int32)


def expected_tokens(shape: Shape, rates: Sequence[float]) -> float:
  """Returns `D`, the expected tokens of an iteration, bonus included.

  `sum over nodes of the product of the rates on its path`; ranks past the end
  of `rates` are never accepted.

  Args:
    shape: of the tree.
    rates: acceptance probability of each rank.
  """
  rates = np.asarray(rates, float)
  values = np.ones(len(shape.parents))
  for node in range(1, len(values)):
    rank = shape.ranks[node]
    rate = rates[rank] if rank < len(rates) else 0.0
    values[node] = values[shape.parents[node]] * rate
  return float(values.sum())


def _shape(parents, ranks) -> Shape:
  return Shape(np.asarray(parents, np.int32), np.asarray(ranks, np.int32))


def _check_size(num_nodes: int):
  if num_nodes < 1:
    raise ValueError(f'expected a tree of at least 1 node, got {num_nodes}')
