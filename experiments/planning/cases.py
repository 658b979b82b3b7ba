"""What is planned for: a model on a machine, and how long its passes take."""

import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from experiments.planning import sources
from specjax.llama import config as llama_config
from specjax.theory import hardware, pass_times, roofline


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
    ValueError: an unknown model.
  """
  cases = []
  for model in models:
    if model not in llama_config.PRESETS:
      raise ValueError(
        f'expected models of {", ".join(llama_config.PRESETS)}, got {model!r}'
      )
    sizes = sources.sizes_of(llama_config.PRESETS[model], weight_bytes)
    for chip in chips.values():
      needed = roofline.kept_bytes(sizes, 1, context)
      count = num_chips or hardware.chips_needed(chip, needed)
      cases.append(
        Case(
          model,
          f'{count} x {chip.title}' if count > 1 else chip.title,
          count * chip.price,
          True,
          _forecast(sizes, chip, count, overhead, capacities, context),
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


def _forecast(sizes, chip, num_chips, overhead, capacities, context):
  machine = hardware.machine(chip, num_chips, overhead)
  num_nodes = sorted({1, *capacities})

  def times_fn(batch):
    kept = roofline.kept_bytes(sizes, batch, context)
    if not hardware.is_room(chip, num_chips, kept):
      return None
    # Engines run the head at every node.
    work = roofline.work(sizes, num_nodes, batch, context, num_nodes)
    seconds = roofline.seconds(machine, work)
    return pass_times.exact(num_nodes, seconds, batch)

  return times_fn
