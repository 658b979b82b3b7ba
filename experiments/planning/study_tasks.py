"""Runs of the study on chips: copies of the model, and batches of prompts."""

from collections.abc import Mapping
from typing import NamedTuple

import jax.numpy as jnp

from experiments import study as study_lib
from experiments.planning import groups, sources, study_flags
from specjax.decode import prefill
from specjax.llama import config as llama_config
from specjax.theory import hardware, roofline


class Passes(NamedTuple):
  """Passes of one shape, each by all copies of a model at once.

  Attributes:
    kind: what they are for, of `study_passes.KINDS`.
    sizes: of the model that runs.
    number: how many of them.
    rows: `b`, of a copy.
    nodes: of a row.
    context: tokens of a row before them.
    logits: nodes of a row at which the head runs.
  """

  kind: str
  sizes: roofline.Sizes
  number: int
  rows: int
  nodes: int
  context: int
  logits: int


class Chips(NamedTuple):
  """What all runs are on, and of what length their prompts are.

  Attributes:
    chip: one of them.
    num_chips: how many.
    overhead: seconds of a pass beside reading, computing and sending.
    num_prompts: of a data set.
    context: tokens of a prompt.
  """

  chip: hardware.Hardware
  num_chips: int
  overhead: float
  num_prompts: int
  context: int


class Task(NamedTuple):
  """A run of the study, by its flags.

  Attributes:
    group: the chips that share out a copy of its verifier.
    copies: of the verifier.
    batches: prompts of each batch.
    max_new_tokens: `T`.
    context: tokens of a prompt.
  """

  group: groups.Group
  copies: int
  batches: tuple[int, ...]
  max_new_tokens: int
  context: int

  @property
  def rows(self) -> int:
    """Rows of a copy in each batch."""
    return prefill.round_up(self.batches[0], self.copies) // self.copies

  def passes(self, kind: str, number: int, **shape) -> Passes:
    """Returns passes of the verifier, over the rows of a batch.

    Args:
      kind: what they are for.
      number: how many of them.
      **shape: what else `Passes` holds, and what differs.
    """
    own = {
      'sizes': self.group.sizes,
      'rows': self.rows,
      'context': self.context,
    }
    return Passes(kind, number=number, **own | shape)


def task_of(flags: Mapping[str, str], chips: Chips) -> Task:
  """Makes the task of a run.

  Args:
    flags: of the run, its defaults among them; of a model that is a preset.
    chips: what it is on.

  Raises:
    ValueError: flags that are no numbers, or chips that groups do not fill.
  """
  num_bytes = jnp.dtype(flags['dtype']).itemsize
  size = int(flags['model_devices'])
  if size < 1 or chips.num_chips % size:
    raise ValueError(
      f'expected a divisor of {chips.num_chips} chips in --model_devices, got '
      f'{size}'
    )
  config = llama_config.PRESETS[study_flags.preset_of(flags['model'])]
  batches = prefill.batch_rows(chips.num_prompts, int(flags['batch_size']))
  return Task(
    groups.Group(
      sources.sizes_of(config, num_bytes, num_bytes),
      chips.chip,
      size,
      chips.context,
      chips.overhead,
    ),
    # Without --parallel one device works, and the others wait.
    1 if flags['parallel'] == 'none' else chips.num_chips // size,
    tuple(map(len, batches)),
    int(flags['max_new_tokens']),
    chips.context,
  )


def is_room(task: Task, max_length: int) -> bool:
  """Returns whether chips hold the model, all prompts and the texts as read.

  Args:
    task: the run.
    max_length: slots of a row: tokens of the longest prompt and its output.
  """
  num_batches = len(task.batches)
  held = num_batches + min(num_batches, study_lib.NUM_TEXTS_HELD)
  group = task.group._replace(context=max_length)
  return groups.is_room(group, held * task.rows)
