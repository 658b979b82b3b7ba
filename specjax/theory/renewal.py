"""The renewal process of surprisals, computed instead of bounded.

In i.i.d. environments `sum over nodes of depth n of p(w) f(-log p(w)) = E
f(S_n)`, where S_n sums independent surprisals of sampled tokens.  So the tree
of all nodes with `p(w) >= e^-t` has in the mean the value and the size

  U(t) = E #{n >= 0 : S_n <= t},      M(t) = E sum_{n >= 0, S_n <= t} e^(S_n),

and no rule of mean size M(t) does better.  The piecewise linear curve through
the points (M, U) is what can be won under a mean budget of nodes.

All is done on the host in float64, because M weighs the far end of U by e^t.
"""

from typing import NamedTuple

import numpy as np

from specjax.theory import laws

# How far a path's weight falls from end to end of the circular convolution.
_DAMPING = 23.0  # e^-23 = 1e-10


class Curve(NamedTuple):
  """U and M at rising thresholds.

  Attributes:
    t: `[K]` nats.
    value: `[K]` `U(t)`, tokens.
    size: `[K]` `M(t)`, nodes.
  """

  t: np.ndarray
  value: np.ndarray
  size: np.ndarray


def steps(env: laws.Regimes) -> tuple[np.ndarray, np.ndarray]:
  """Returns the law of one surprisal: its values in nats and their weights.

  Args:
    env: one law, or laws drawn independently at every node.

  Raises:
    ValueError: positions depend on each other, so there is no renewal.
  """
  is_iid = env.log_p.shape[0] == 1 or (
    env.switch is not None and env.switch.shape[0] == 1
  )
  if not is_iid:
    raise ValueError('expected independent positions, got regimes that last')
  share = np.diff(np.asarray(env.initial, np.float64), prepend=0.0)
  log_p = np.asarray(env.log_p, np.float64)
  weights = share[:, None] * np.exp(log_p)
  is_possible = weights > 0.0
  surprisals = np.maximum(-log_p[is_possible], 0.0)
  return surprisals, weights[is_possible] / weights.sum()


def on_grid(
  surprisals: np.ndarray, weights: np.ndarray, limit: float, step: float
) -> Curve:
  """Returns the curve at the multiples of `step` up to `limit`.

  `u = sum over n of f^(*n)` has the transform `1 / (1 - f^)`.  The weights
  `e^(-a k)` on cell k keep the transform off its pole and make what wraps
  around negligible.  A step between two cells is shared so that its mean is
  kept: exact on a lattice whose span is a multiple of `step`, and else wrong by
  `O(step^2)` beside the smearing of U's jumps over a cell.

  Args:
    surprisals: `[K]` nats, values of one step.
    weights: `[K]` their probabilities, of sum 1.
    limit: largest threshold, nats.
    step: distance of thresholds, nats.

  Raises:
    ValueError: the step or the limit is not positive, or no step moves.
  """
  if not 0.0 < step <= limit:
    raise ValueError(f'expected 0 < step <= limit, got {step} and {limit}')
  surprisals = np.asarray(surprisals, np.float64)
  weights = np.asarray(weights, np.float64)
  if not np.any(weights[surprisals > 0.0] > 0.0):
    raise ValueError('expected a law that is not sure, got surprisals of 0')
  num_cells = int(np.floor(limit / step + 1e-9)) + 1
  damping = np.exp(-_DAMPING * np.arange(2 * num_cells) / (2 * num_cells))
  # Rounding must not push a point of the lattice into the cell below it.
  place = np.round(surprisals / step, 9)
  below = np.floor(place).astype(int)
  cells = np.zeros(2 * num_cells)
  for cell, share in (
    (below, 1.0 - (place - below)),
    (below + 1, place - below),
  ):
    is_near = cell < 2 * num_cells
    np.add.at(cells, cell[is_near], (weights * share)[is_near])
  transform = np.fft.rfft(cells * damping)
  visits = np.fft.irfft(1.0 / (1.0 - transform), 2 * num_cells) / damping
  visits = np.maximum(visits[:num_cells], 0.0)
  t = step * np.arange(num_cells)
  return Curve(t=t, value=np.cumsum(visits), size=np.cumsum(visits * np.exp(t)))


def from_walks(surprisals: np.ndarray, thresholds: np.ndarray) -> Curve:
  """Returns the curve at thresholds, as means over sampled walks.

  Holds for every environment whose starts the walks sample, lattice or not.

  Args:
    surprisals: `[R, T]` nats, of the tokens of each walk.
    thresholds: `[K]` nats, not falling.

  Raises:
    ValueError: a walk ends before it has passed the largest threshold; to leave
      such walks out would keep the hard ones.
  """
  positions = np.cumsum(np.asarray(surprisals, np.float64), axis=1)
  num_open = np.sum(positions[:, -1] <= np.max(thresholds))
  if num_open:
    raise ValueError(
      f'expected walks past t = {np.max(thresholds)}, got {num_open} of'
      f' {len(positions)} that end before'
    )
  visited = np.sort(positions, axis=None)
  # Each walk starts at 0, which is a visit too.
  counts = np.searchsorted(visited, thresholds, side='right')
  sizes = np.concatenate([[0.0], np.cumsum(np.exp(visited))])
  return Curve(
    t=np.asarray(thresholds, np.float64),
    value=1.0 + counts / len(positions),
    size=1.0 + sizes[counts] / len(positions),
  )


def mean_budget(curve: Curve, capacities: np.ndarray) -> np.ndarray:
  """Returns the best `D`, in tokens, of rules of mean size `N`.

  Linear between the points (M, U): a mixture of two thresholds is optimal.  One
  fixed lattice law has no better tree of exactly `N` nodes either.

  Args:
    curve: thresholds from 0.
    capacities: `N >= 1`, any shape.

  Raises:
    ValueError: the curve ends below the largest capacity.
  """
  if np.max(capacities) > curve.size[-1]:
    raise ValueError(
      f'expected a curve up to {np.max(capacities)} nodes, got'
      f' {curve.size[-1]:.1f}; raise its limit'
    )
  return np.interp(
    capacities, np.append(0.0, curve.size), np.append(0.0, curve.value)
  )
