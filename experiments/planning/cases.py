"""What is planned for: a model on a machine, and how long its passes take."""

import functools
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from experiments.planning import groups, sources
from specjax.theory import hardware, pass_times


class Case(NamedTuple):
  """A model on a machine.

  Attributes:
    model: its name.
    machine: its name, and how many of them share the model.
    price_per_hour: of all chips, US dollars; None where nobody said.
    is_forecast: whether times come from data sheets and not from measuring.
    times_fn: from a batch to pass times, None where there is no room for it or
      it was not measured.
  """

  model: str
  machine: str
  price_per_hour: float | None
  is_forecast: bool
  times_fn: Callable[[int], pass_times.PassTimes | None]


def of_presets(
  models: Sequence[str],
  chips: Mapping[str, hardware.Hardware],
  capacities: Sequence[int],
  *,
  context: int,
  weight_bytes: float,
  num_chips: int | None,
  overhead: float,
) -> list[Case]:
  """Returns every model on every kind of chip, by data sheets.

  Args:
    models: names of `llama.config.PRESETS`.
    chips: by name.
    capacities: nodes of a row's pass.
    context: tokens of a row.
    weight_bytes: of one weight.
    num_chips: that share a model; as few as hold it with one row if None.
    overhead: seconds of a pass beside reading, computing and sending.

  Raises:
    ValueError: an unknown model, or one that no number of chips holds.
  """
  cases = []
  for model in models:
    for chip in chips.values():
      group = groups.make(
        model,
        chip,
        num_chips,
        context=context,
        weight_bytes=weight_bytes,
        overhead=overhead,
      )
      count = group.num_chips
      cases.append(
        Case(
          model,
          f'{count} x {chip.title}' if count > 1 else chip.title,
          count * chip.price,
          True,
          functools.partial(groups.times, group, capacities=capacities),
        )
      )
  return cases


def of_record(
  record: Mapping, context: int, price_per_hour: float | None
) -> Case:
  """Returns the model and machine of a record of `latency`.

  Args:
    record: of `latency`.
    context: tokens of a row.
    price_per_hour: of the machine, US dollars.

  Raises:
    ValueError: a context outside of what was measured.
  """
  grid = sources.grid_of(record)
  batches = grid.batches

  def times_fn(batch):
    if not batches[0] <= batch <= batches[-1]:
      return None
    return pass_times.across(grid, batch, context)

  times_fn(int(batches[0]))  # Refuses the context now.
  return Case(
    pathlib.Path(record['flags']['model']).name,
    record['device']['kind'],
    price_per_hour,
    False,
    times_fn,
  )
