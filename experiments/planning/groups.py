"""Chips that share out a model, on paper: their room, work and pass times."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from experiments.planning import sources
from specjax.llama import config as llama_config
from specjax.theory import hardware, pass_times, roofline


class Group(NamedTuple):
  """Chips that share out one copy of a model.

  Attributes:
    sizes: of the whole model.
    chip: one of them.
    num_chips: that share it out.
    context: tokens of a row.
    overhead: seconds of a pass beside reading, computing and sending.
  """

  sizes: roofline.Sizes
  chip: hardware.Hardware
  num_chips: int
  context: int
  overhead: float


def make(
  model: str,
  chip: hardware.Hardware,
  num_chips: int | None,
  *,
  context: int,
  weight_bytes: float,
  overhead: float,
) -> Group:
  """Makes a group for a model.

  Args:
    model: a name of `llama.config.PRESETS`.
    chip: one of the group.
    num_chips: of the group; as few as hold the model with one row if None.
    context: tokens of a row.
    weight_bytes: of one weight.
    overhead: seconds of a pass beside reading, computing and sending.

  Raises:
    ValueError: an unknown model, or one that no number of chips holds.
  """
  if model not in llama_config.PRESETS:
    raise ValueError(
      f'expected models of {", ".join(llama_config.PRESETS)}, got {model!r}'
    )
  sizes = sources.sizes_of(llama_config.PRESETS[model], weight_bytes)
  of = lambda count: Group(sizes, chip, count, context, overhead)
  return of(
    num_chips
    or hardware.chips_needed(chip, lambda count: kept_bytes(of(count), 1))
  )


def kept_bytes(group: Group, batch: int) -> float:
  """Returns the bytes of weights, keys and values that each chip holds.

  Args:
    group: the chips.
    batch: rows that share a pass.
  """
  own = roofline.part(group.sizes, group.num_chips)
  return roofline.kept_bytes(own, batch, group.context)


def is_room(group: Group, batch: int) -> bool:
  """Returns whether each chip holds its part.

  Args:
    group: the chips.
    batch: rows that share a pass.
  """
  return hardware.is_room(group.chip, kept_bytes(group, batch))


def work(group: Group, batch: int, num_nodes: np.ndarray) -> roofline.Work:
  """Returns what a pass has to do on each chip.

  Args:
    group: the chips.
    batch: rows that share a pass.
    num_nodes: `[...]`, of a row.
  """
  return roofline.work(
    group.sizes,
    num_nodes,
    batch,
    group.context,
    num_nodes,  # Engines run the head at every node.
    group.num_chips,
  )


def machine(group: Group) -> roofline.Machine:
  """Returns one of the chips.

  Args:
    group: the chips.
  """
  return hardware.machine(group.chip, group.num_chips, group.overhead)


def times(
  group: Group, batch: int, capacities: Sequence[int]
) -> pass_times.PassTimes | None:
  """Returns how long passes take, None where there is no room for the batch.

  Args:
    group: the chips.
    batch: rows that share a pass.
    capacities: nodes of a row.
  """
  if not is_room(group, batch):
    return None
  num_nodes = sorted({1, *capacities})
  seconds = roofline.seconds(machine(group), work(group, batch, num_nodes))
  return pass_times.exact(num_nodes, seconds, batch)
