"""What was measured -> rows of a record."""

from collections.abc import Mapping, Sequence

import numpy as np

from experiments.footprint import startup
from specjax.decode import latency

# What a run may take beside imports, weights and cache, in bytes.
ALLOWANCE = 800e6

STARTS = ('cold', 'warm')
TOTAL = 'total'


def start_rows(samples: Sequence[Mapping[str, np.ndarray]]) -> list[dict]:
  """Makes the rows of start-ups: seconds of each part, and of all.

  Args:
    samples: of each repetition, start of `STARTS` -> seconds up to each mark
      of `startup.MARKS`.

  Returns:
    Rows of `start`, `part`, the median `seconds`, and the least and the most,
    `low` and `high`.
  """
  rows = []
  for start in STARTS:
    marks = np.stack([sample[start] for sample in samples])
    parts = np.diff(marks, axis=1, prepend=0)
    columns = zip(startup.MARKS, parts.T, strict=True)
    rows += [
      {
        'start': start,
        'part': part,
        'seconds': float(np.median(seconds)),
        'low': float(seconds.min()),
        'high': float(seconds.max()),
      }
      for part, seconds in [*columns, (TOTAL, marks[:, -1])]
    ]
  return rows


def memory_row(weights: str, order: str, found: Mapping[str, int]) -> dict:
  """Makes the row of a run: bytes, those `beyond` all that has a name too.

  Args:
    weights: how matrices were kept, `values` or `blocks`.
    order: of `storage.ORDERS`.
    found: what `memory.measure` found.
  """
  found = {name: int(number) for name, number in found.items()}
  named = found['imports'] + found['weights'] + found['cache']
  return {
    'weights': weights,
    'order': order,
    **{f'{name}_bytes': number for name, number in found.items()},
    'beyond_bytes': found['peak'] - named,
  }


def step_rows(
  weights: str,
  order: str,
  points: Sequence[tuple[int, int]],
  samples: np.ndarray,
) -> list[dict]:
  """Makes the rows of iterations with the same tokens in caches of any size.

  Args:
    weights: how matrices were kept, `values` or `blocks`.
    order: of `storage.ORDERS`.
    points: `P` capacities with numbers of slots.
    samples: `[rounds, P]` seconds.

  Returns:
    Rows of `capacity`, `num_slots`, the median `seconds` with its interval,
    and `ratio`, of a round's times over those with the fewest slots, with its
    own.
  """
  of_least = {
    capacity: samples[:, points.index((capacity, min(slots)))]
    for capacity, slots in _by_capacity(points).items()
  }
  base = np.stack([of_least[capacity] for capacity, _ in points], axis=1)
  times = latency.summarise(samples)
  ratios = latency.summarise(samples / base)
  return [
    {
      'weights': weights,
      'order': order,
      'capacity': capacity,
      'num_slots': num_slots,
      'seconds': float(times.median[i]),
      'low': float(times.low[i]),
      'high': float(times.high[i]),
      'ratio': float(ratios.median[i]),
      'ratio_low': float(ratios.low[i]),
      'ratio_high': float(ratios.high[i]),
    }
    for i, (capacity, num_slots) in enumerate(points)
  ]


def _by_capacity(points):
  found = {}
  for capacity, num_slots in points:
    found.setdefault(capacity, []).append(num_slots)
  return found
