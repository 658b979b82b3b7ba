"""How long a verifier pass takes: measured on a grid, read between its points.

A pass runs `N` nodes for each row of a batch, behind a context of committed
tokens.  Between measured points its time is taken as linear in each of the
three; outside of them nothing is said, for that takes a model: see `roofline`.
"""

from typing import NamedTuple

import numpy as np

from specjax.theory import resample


class PassTimes(NamedTuple):
  """Seconds of an iteration's pass against the nodes of a row, for one batch.

  Attributes:
    num_nodes: `[K]` rising, the first of them 1: plain decoding.
    seconds: `[K]` each, with an interval.  The pass, the choice of the first
      token and what an iteration costs besides drafting.
    batch: rows that share a pass.
    visit_seconds: `[K]`, or `[]` for all sizes, of every further token of an
      iteration: the choice at one more node, and the head there, unless it
      runs at all nodes at once.
  """

  num_nodes: np.ndarray
  seconds: resample.Interval
  batch: int = 1
  visit_seconds: np.ndarray | float = 0.0


class Grid(NamedTuple):
  """Measured times; `K`, `B` and `C` count nodes, batches and contexts.

  Attributes:
    num_nodes: `[K]` rising.
    batches: `[B]` rising.
    contexts: `[C]` rising.
    seconds: `[K, B, C]` each, with an interval.
    visit_seconds: `[K, B]`.
  """

  num_nodes: np.ndarray
  batches: np.ndarray
  contexts: np.ndarray
  seconds: resample.Interval
  visit_seconds: np.ndarray


def exact(
  num_nodes: np.ndarray, seconds: np.ndarray, batch: int = 1
) -> PassTimes:
  """Returns pass times that are taken as sure, such as those of a model.

  Args:
    num_nodes: `[K]` rising, the first of them 1.
    seconds: `[K]`.
    batch: rows that share a pass.
  """
  seconds = np.asarray(seconds, float)
  interval = resample.Interval(seconds, seconds, seconds)
  return PassTimes(np.asarray(num_nodes), interval, batch)


def across(grid: Grid, batch: int, context: int) -> PassTimes:
  """Returns the pass times of one batch and context, linear between points.

  Args:
    grid: what was measured.
    batch: rows that share a pass.
    context: committed tokens of a row.

  Raises:
    ValueError: a batch or a context outside of what was measured.
  """

  def read(values):
    of_batch = _between(
      grid.batches, np.moveaxis(np.asarray(values), 1, 0), batch, 'batch'
    )
    return _between(grid.contexts, of_batch.T, context, 'context')

  visits = _between(grid.batches, grid.visit_seconds.T, batch, 'batch')
  seconds = resample.Interval(*map(read, grid.seconds))
  return PassTimes(grid.num_nodes, seconds, batch, visits)


def at(
  times: PassTimes, num_nodes: np.ndarray
) -> tuple[resample.Interval, np.ndarray]:
  """Returns the seconds of passes of any size, linear between points.

  Args:
    times: of one batch.
    num_nodes: `[M]`.

  Returns:
    `[M]` each: of the passes, and of their further tokens.

  Raises:
    ValueError: a size outside of what is known.
  """
  points = np.asarray(times.num_nodes)
  num_nodes = np.asarray(num_nodes)
  outside = (num_nodes < points[0]) | (num_nodes > points[-1])
  if np.any(outside):
    raise ValueError(
      f'expected passes of {points[0]} to {points[-1]} nodes, whose times are '
      f'known, got {num_nodes[outside][0]}'
    )
  read = lambda values: np.interp(num_nodes, points, values)
  visits = np.broadcast_to(times.visit_seconds, points.shape)
  return resample.Interval(*map(read, times.seconds)), read(visits)


def _between(points, values, x, name):
  """Returns values `[P, ...]`, given at points `[P]`, at `x`: `[...]`."""
  points, values = np.asarray(points), np.asarray(values, float)
  if not points[0] <= x <= points[-1]:
    raise ValueError(
      f'expected a {name} of {points[0]} to {points[-1]}, as was measured, got '
      f'{x}'
    )
  above = int(np.searchsorted(points, x))
  if points[above] == x:
    return values[above]
  low, high = points[above - 1], points[above]
  share = (x - low) / (high - low)
  return (1 - share) * values[above - 1] + share * values[above]
