"""What the planner predicts of the ways that are timed."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from experiments import drafters, recipes
from experiments.planning import sources
from specjax.theory import pass_times, planner, profiles, resample

# A way by name and capacity -> its predicted speed-up.
Speedups = Mapping[tuple[str, int], resample.Interval]


class Machine(NamedTuple):
  """What a record of `latency` says of the machine.

  Attributes:
    grid: pass times.
    costs: by drafter what a level of its trees costs, in plain passes.
  """

  grid: pass_times.Grid
  costs: Mapping[str, float]


def of_record(
  record: Mapping, flags: Mapping[str, object], costs: Mapping[str, float]
) -> Machine:
  """Reads the machine from a record of pass times.

  Args:
    record: of `latency`.
    flags: those that say which model is timed now, by name.
    costs: by drafter what a level of its trees costs, in plain passes.

  Raises:
    ValueError: times of another model, or a table that is no full grid.
  """
  for name, value in flags.items():
    if record['flags'].get(name) != value:
      raise ValueError(
        f'expected pass times of --{name}={value} in --latency, got '
        f'{record["flags"].get(name)}'
      )
  return Machine(sources.grid_of(record), costs)


def speedups(
  machine: Machine,
  found: Mapping[str, recipes.Recipe],
  won: Mapping[tuple[str, int], float],
  batch: int,
  context: float,
) -> Speedups:
  """Predicts by how much ways are faster than plain decoding.

  What they win is sure, for it was counted on the very texts: the intervals are
  those of pass times.

  Args:
    machine: with its pass times.
    found: the recipes by name.
    won: `D` of each way.
    batch: rows that share a pass.
    context: tokens of a row, in the mean.  Outside of the contexts that were
      measured the nearest one stands in: passes differ little there.

  Returns:
    The speed-up of each way whose pass times and whose cost of drafting are
    known, and of plain decoding.

  Raises:
    ValueError: a batch outside of what was measured.
  """
  contexts = machine.grid.contexts
  nearest = float(np.clip(context, contexts[0], contexts[-1]))
  times = pass_times.across(machine.grid, batch, nearest)
  plain_seconds = float(times.seconds.value[0])
  known = {
    way: tokens
    for way, tokens in won.items()
    if found[way[0]].drafter in (*sources.FREE, *machine.costs)
  }
  tokens = np.array(list(known.values()))
  seconds = [
    plain_seconds
    * machine.costs.get(found[name].drafter, 0.0)
    * drafters.num_levels(found[name].tree, capacity)
    for name, capacity in known
  ]
  profile = profiles.Profile(
    tuple(name for name, _ in known),
    np.array([capacity for _, capacity in known], int),
    resample.Interval(tokens, tokens, tokens),
    np.array(seconds),
  )
  plan = planner.plan(times, sources.within(profile, times))
  return {(c.name, c.num_nodes): c.speedup for c in plan.choices}


def geometric_mean(parts: Sequence[resample.Interval]) -> resample.Interval:
  """Returns the mean of predictions that are wrong together or not at all.

  They are made of the same pass times.

  Args:
    parts: of kinds.
  """
  return resample.Interval(*np.exp(np.mean(np.log(parts), axis=0)).tolist())
