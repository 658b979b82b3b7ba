"""A machine's overhead, bandwidth and peak, inferred from measured times."""

from typing import NamedTuple

import numpy as np
from scipy import optimize

from specjax.theory import roofline


class Fit(NamedTuple):
  """A machine that was inferred from measured times.

  Attributes:
    machine: the better of both blends.
    errors: by blend the root of the mean square of `model / measured - 1`.
  """

  machine: roofline.Machine
  errors: dict[str, float]


def fit(done: roofline.Work, measured: np.ndarray) -> Fit:
  """Infers overhead, bandwidth and peak of one chip from measured times.

  Least squares of `model / measured - 1`, none of the three below 0.  In a
  'max' the passes that are bound by computing are those of most operations a
  byte, so that all splits by intensity are tried.  A rate that no pass is bound
  by is infinite.  All passes read the weights, which only the keys and values
  of many rows and long contexts tell from an overhead.

  Args:
    done: the work of the passes, `[P]`.
    measured: `[P]` seconds.

  Returns:
    The machine with the blend that fits better, and the errors of both.

  Raises:
    ValueError: fewer than 4 passes, for 3 numbers, or times that are not
      positive.
  """
  measured = np.asarray(measured, float)
  if measured.ndim != 1 or len(measured) < 4 or not np.all(measured > 0):
    raise ValueError(
      f'expected positive times of 4 passes or more, got {measured}'
    )
  order = np.argsort(np.argsort(done.flops / done.read, kind='stable'))
  every = np.ones(len(measured), bool)
  splits = [order < count for count in range(len(measured) + 1)]
  candidates = {
    'max': [_solve(done, measured, is_read, ~is_read) for is_read in splits],
    'sum': [_solve(done, measured, every, every)],
  }
  best = {}
  for blend, found in candidates.items():
    machines = [machine._replace(blend=blend) for machine in found]
    best[blend] = min(machines, key=lambda m: error(m, done, measured))
  errors = {name: error(m, done, measured) for name, m in best.items()}
  return Fit(best[min(roofline.BLENDS, key=errors.get)], errors)


def error(
  machine: roofline.Machine, done: roofline.Work, measured: np.ndarray
) -> float:
  """Returns the root of the mean square of `model / measured - 1`.

  Args:
    machine: the model.
    done: the work of the passes, `[P]`.
    measured: `[P]` seconds.
  """
  off = roofline.seconds(machine, done) / measured - 1
  return float(np.sqrt(np.mean(off**2)))


def _solve(done, measured, is_read, is_computed):
  """Least squares where it is known which passes read and which compute."""
  columns = np.stack(
    [np.ones_like(measured), done.read * is_read, done.flops * is_computed],
    axis=1,
  )
  scale = np.maximum(columns.max(axis=0), 1e-300)
  relative = columns / scale / measured[:, None]
  found = optimize.nnls(relative, np.ones_like(measured))[0] / scale
  overhead, a_byte, a_flop = found
  rate = lambda cost: 1 / cost if cost > 0 else np.inf
  return roofline.Machine(rate(a_byte), rate(a_flop), float(overhead))
