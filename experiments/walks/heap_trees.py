"""Best trees by a lazy heap, node by node: what `bench_theory` compares with.

Plain Python and NumPy, in float64.  The heap need not find a node's law again,
so it draws it from NumPy's own generator.
"""

import heapq
import itertools
from collections.abc import Callable

import numpy as np

# Gives the rising surprisals of a child's law from those of its parent.
DrawFn = Callable[[list[float] | None], list[float]]


def draws(
  rows: np.ndarray, concentration: np.ndarray, rng: np.random.Generator
) -> dict[str, DrawFn]:
  """Returns how laws are drawn, by the name of the environment.

  Args:
    rows: `[G, V]` laws of the fixed and independent environments.
    concentration: `[V]` of the Dirichlet environment.
    rng: draws.
  """
  surprisals = [np.sort(-np.log(row)).tolist() for row in rows]

  def fixed(parent):
    return surprisals[rng.integers(len(rows))] if parent is None else parent

  def independent(parent):
    del parent
    return surprisals[rng.integers(len(rows))]

  def dirichlet(parent):
    del parent
    law = rng.dirichlet(concentration)
    return np.sort(-np.log(np.maximum(law, 1e-300))).tolist()

  return {'fixed': fixed, 'independent': independent, 'dirichlet': dirichlet}


def value(draw_fn: DrawFn, num_nodes: int) -> float:
  """Returns `D`, in tokens, of a best tree that a lazy heap grows.

  Popping the r-th best child of a node offers the next one, and its own best.

  Args:
    draw_fn: draws a node's law.
    num_nodes: `N`.
  """
  law = draw_fn(None)
  costs, count = [0.0], itertools.count()
  heap = [(law[0], next(count), 0.0, 0, law)]
  while len(costs) < num_nodes:
    cost, _, above, rank, siblings = heap[0]
    costs.append(cost)
    following = rank + 1
    if following < len(siblings):
      entry = (above + siblings[following], next(count), above, following)
      heapq.heapreplace(heap, (*entry, siblings))
    else:
      heapq.heappop(heap)
    law = draw_fn(siblings)
    heapq.heappush(heap, (cost + law[0], next(count), cost, 0, law))
  return float(np.sum(np.exp(-np.array(costs))))
