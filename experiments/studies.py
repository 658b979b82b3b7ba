"""Studies as the shared flags ask for them."""

import pathlib
from collections.abc import Collection, Mapping, Sequence

from absl import flags

from experiments import common, drafters, records
from experiments import study as study_lib
from specjax import parallel
from specjax import sampling as sampling_lib
from specjax.checkpoint import resolve

FLAGS = flags.FLAGS


def open_study(
  model: resolve.Checkpoint,
  ids: Sequence[Sequence[int]],
  draftings: Mapping[str, drafters.Drafting],
  setting: tuple[float, int, float, float],
  folder: pathlib.Path,
  *,
  apart_from: Collection[str],
  capacities: Sequence[int] | None = None,
  layout: parallel.Layout | None = None,
) -> study_lib.Study:
  """Opens a study, whose stages depend on the flags and the prompts.

  Args:
    model: the verifier.
    ids: prompts as token ids.
    draftings: the drafters that may be run, by name.
    setting: temperature, top-k, top-p and min-p.
    folder: of the stages.
    apart_from: flags that stages do not depend on, or have in their names.
    capacities: the sizes of trees; those of the flags if None.
    layout: devices that share out the rows of a batch; None for one device.

  Raises:
    ValueError: stages that were begun with other flags.
  """
  keys = {**common.flag_values(), 'prompt_ids': records.digest(ids)}
  keys = {name: value for name, value in keys.items() if name not in apart_from}
  return study_lib.Study(
    model,
    ids,
    draftings,
    sampling_lib.make(len(ids), *setting),
    records.Stages(folder, keys),
    seed=FLAGS.seed,
    capacities=FLAGS.capacities if capacities is None else capacities,
    max_new_tokens=FLAGS.max_new_tokens,
    max_length=FLAGS.max_length,
    batch_size=FLAGS.batch_size,
    layout=layout,
  )


def open_at(
  model: resolve.Checkpoint,
  ids: Sequence[Sequence[int]],
  draftings: Mapping[str, drafters.Drafting],
  temperature: float,
  folder: pathlib.Path,
  *,
  apart_from: Collection[str],
  layout: parallel.Layout | None = None,
) -> study_lib.Study:
  """Opens the study of one of several temperatures, in a folder of its own.

  Args:
    model: the verifier.
    ids: prompts as token ids.
    draftings: the drafters that may be run, by name.
    temperature: of sampling, with the filters of the flags.
    folder: of the run.
    apart_from: as of `open_study`.
    layout: alike.

  Raises:
    ValueError: as `open_study` does.
  """
  return open_study(
    model,
    ids,
    draftings,
    (temperature, FLAGS.top_k, FLAGS.top_p, FLAGS.min_p),
    records.open_run(folder, 'texts', f'T={temperature:g}'),
    apart_from=apart_from,
    layout=layout,
  )
