"""From timed rounds to the rows of a record."""

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from experiments import identity
from experiments.speed import forecast, ratios, rounds
from specjax.theory import resample


def groups_of(
  tasks: Sequence[rounds.Task], long_kinds: Sequence[str]
) -> dict[str, list[str]]:
  """Returns the groups that are told of: every kind, all, and the long ones.

  Args:
    tasks: what was decoded.
    long_kinds: kinds whose prompts are long.
  """
  kinds = list(dict.fromkeys(task.kind for task in tasks))
  groups = {kind: [kind] for kind in kinds} | {ratios.ALL: kinds}
  return groups | ({ratios.LONG: list(long_kinds)} if long_kinds else {})


def speed_rows(
  samples: rounds.Arrays,
  ways: Sequence[rounds.Way],
  tasks: Sequence[rounds.Task],
  groups: Mapping[str, Sequence[str]],
  seed: int,
) -> list[dict]:
  """Makes the rows of our own ways, the first of which is plain decoding.

  Args:
    samples: what `rounds.take` returned, `[R, ...]`: a round each.
    ways: that were timed.
    tasks: what they decoded.
    groups: of kinds, by name.
    seed: of the resamples.

  Returns:
    For each way and group `rate`, tokens a second, `speedup` over plain
    decoding, `whole`, the same with the reading of the prompt, and `D`;
    intervals are lists of a value and its ends.
  """
  found = ratios.speeds(samples, ways, tasks, list(groups.values()))
  rate = ratios.medians(found.decoding, seed)
  speedup = ratios.medians(found.decoding / found.decoding[:, :1], seed)
  whole = ratios.medians(found.whole / found.whole[:, :1], seed)
  return [
    {
      'name': way.name,
      'capacity': way.capacity,
      'is_adaptive': way.is_adaptive,
      'kind': group,
      'rate': _at(rate, w, k),
      'speedup': _at(speedup, w, k),
      'whole': _at(whole, w, k),
      'D': tokens_an_iteration(samples, w, tasks, kinds),
    }
    for w, way in enumerate(ways)
    if not way.is_whole
    for k, (group, kinds) in enumerate(groups.items())
  ]


def beside_rows(
  samples: rounds.Arrays,
  ways: Sequence[rounds.Way],
  tasks: Sequence[rounds.Task],
  groups: Mapping[str, Sequence[str]],
  seed: int,
) -> list[dict]:
  """Makes the rows of our ways beside those of another library.

  Args:
    samples: as of `speed_rows`, and so are the others.
    ways: those of the library read the prompts themselves.
    tasks: what they decoded.
    groups: of kinds, by name.
    seed: of the resamples.

  Returns:
    For each way of the library, `other`, each of ours and each group: `rate`
    of the other, tokens a second with the reading of the prompt, and `ratio`,
    ours over it.
  """
  whole = ratios.speeds(samples, ways, tasks, list(groups.values())).whole
  rate = ratios.medians(whole, seed)
  rows = []
  for o, other in enumerate(ways):
    if not other.is_whole:
      continue
    ratio = ratios.medians(whole / whole[:, o : o + 1], seed)
    rows += [
      {
        'other': other.name,
        'name': way.name,
        'capacity': way.capacity,
        'kind': group,
        'rate': _at(rate, o, k),
        'ratio': _at(ratio, w, k),
      }
      for w, way in enumerate(ways)
      if not way.is_whole
      for k, group in enumerate(groups)
    ]
  return rows


def predictions(
  samples: rounds.Arrays,
  ways: Sequence[rounds.Way],
  tasks: Sequence[rounds.Task],
  groups: Mapping[str, Sequence[str]],
  contexts: Mapping[str, float],
  speedups_fn: Callable[
    [Mapping[tuple[str, int], float], float], forecast.Speedups
  ],
) -> dict[str, forecast.Speedups]:
  """Predicts the speed-ups of our ways.

  Args:
    samples: as of `speed_rows`, and so are the others.
    ways: that were timed.
    tasks: what they decoded.
    groups: of kinds, by name.
    contexts: by kind, tokens of a row in the mean.
    speedups_fn: from `D` of the ways and a context to speed-ups; see
      `forecast.speedups`.

  Returns:
    Group -> what is predicted; of more than one kind the geometric mean.
  """
  of_kinds = {}
  for kind, context in contexts.items():
    won = {
      (way.name, way.capacity): tokens_an_iteration(samples, w, tasks, [kind])
      for w, way in enumerate(ways)
      if way.capacity > 1 and not way.is_whole and not way.is_adaptive
    }
    of_kinds[kind] = speedups_fn(won, context)
  return {
    group: {
      way: forecast.geometric_mean([of_kinds[kind][way] for kind in kinds])
      for way in of_kinds[kinds[0]]
    }
    for group, kinds in groups.items()
  }


def check_row(
  comparison: identity.Comparison,
  samples: rounds.Arrays,
  ways: Sequence[rounds.Way],
  number: int,
  temperature: float,
) -> dict:
  """Compares the texts of a way, of all rounds, with those of plain decoding.

  Args:
    comparison: of the same prompts.
    samples: as of `speed_rows`.
    ways: that were timed.
    number: of the way.
    temperature: of sampling.

  Returns:
    `name` and `capacity`, `tokens` compared, `partings` at ties, `failures`
    elsewhere, `widest_gap` of a tie, 0 without any, and `is_exact` of the way.
  """
  way = ways[number]
  of = lambda r, w: {k: samples[k][r, w] for k in ('tokens', 'num_tokens')}
  # Texts are the same in every round, unless something is wrong.
  distinct = {
    tuple(x.tobytes() for w in (0, number) for x in of(r, w).values()): r
    for r in range(len(samples['tokens']))
  }
  parts = [
    comparison.along(of(r, 0), of(r, number), temperature, way.go_on_fn)
    for r in distinct.values()
  ]
  joined = {k: np.concatenate([part[k] for part in parts]) for k in parts[0]}
  is_tie = joined['gap'] < joined['limit']
  return {
    'name': way.name,
    'capacity': way.capacity,
    'tokens': int(joined['num_compared'].sum()),
    'partings': int(is_tie.sum()),
    'failures': int((~is_tie).sum()),
    'widest_gap': float(joined['gap'][is_tie].max(initial=0.0)),
    'is_exact': way.is_exact,
  }


def tokens_an_iteration(
  samples: rounds.Arrays,
  number: int,
  tasks: Sequence[rounds.Task],
  kinds: Sequence[str],
) -> float:
  """Returns `D` of a way on some kinds.

  Args:
    samples: as of `speed_rows`.
    number: of the way.
    tasks: what was decoded.
    kinds: that count.
  """
  rows = np.concatenate([task.rows for task in tasks if task.kind in kinds])
  total = lambda name: samples[name][:, number, rows].sum()
  return float(total('num_tokens') / total('num_steps'))


def _at(interval: resample.Interval, *place: int) -> list[float]:
  return [float(values[place]) for values in interval]
