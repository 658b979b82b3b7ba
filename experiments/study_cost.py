"""What a sweep of the study costs: hours and dollars of its grid, on paper.

Claim: what the study of the paper takes is known before it is run.

  launch/run.sh study_cost --grid=launch/sweeps/paper.txt --hardware=v5p \\
    --num_chips=4
  launch/run.sh study_cost --grid=FILE --context=2000 --prompts_per_set=200

Every run of speed_of_light, acceptance and entropy_profile is taken apart into
the passes that its flags ask for, see `planning.study_passes`, and each pass
takes the time that data sheets say: a FORECAST, which no program reaches.
Passes are counted at most, so the two errors oppose each other.

All runs are taken to be on the same chips, one after another; more workers take
less time for as many dollars.  Other experiments of the grid are small and left
out.  A model is told by the last part of --model; one that is no preset is
named, and nothing stands in for it.

Writes results/study_cost/<run>/record.json, with a row for every run.
"""

from absl import flags

from experiments import common, records
from experiments.planning import (
  options,
  study_flags,
  study_passes,
  study_tasks,
  study_words,
)
from experiments.sweeps import grid
from specjax.theory import hardware

FLAGS = flags.FLAGS

NAME = 'study_cost'


def main():
  """Counts the passes of every run, writes, and says what came out."""
  if FLAGS.grid is None:
    raise ValueError('expected --grid=FILE, got none')
  chip = hardware.PRESETS[FLAGS.hardware]
  chips = study_tasks.Chips(
    chip,
    FLAGS.num_chips,
    1e-3 * FLAGS.overhead_ms,
    FLAGS.prompts_per_set,
    FLAGS.context,
  )
  record = records.new_record(NAME, common.flag_values())
  table, unknown, left_out = [], [], []
  for run in grid.load(FLAGS.grid):
    if run.experiment not in study_flags.DEFAULTS:
      left_out.append(run.experiment)
    elif model := unknown_model(run):
      unknown.append({'run': run.path, 'model': model})
    else:
      table.append(row_of(run, chips))
  if not table:
    raise ValueError(
      f'expected runs of {", ".join(study_flags.DEFAULTS)} with models that '
      f'are presets in {FLAGS.grid}, got none'
    )
  folder = common.open_run(NAME)
  records.finish_record(
    folder,
    record,
    table,
    chip=chip.title,
    unknown=unknown,
    left_out=left_out,
  )
  record = records.load_record(folder / 'record.json')
  print(
    study_words.title(record),
    study_words.table_text(record),
    study_words.NOTES,
    study_words.sentence(record),
    sep='\n\n',
  )


def unknown_model(run: grid.Run) -> str | None:
  """Returns a model of a run that is no preset, None if there is none.

  Args:
    run: of an experiment of `study_flags.DEFAULTS`.
  """
  models = study_flags.models_of(study_flags.of_run(run))
  unknown = [m for m in models if study_flags.preset_of(m) is None]
  return unknown[0] if unknown else None


def row_of(run: grid.Run, chips: study_tasks.Chips) -> dict:
  """Makes the row of a run.

  Args:
    run: of an experiment of `study_flags.DEFAULTS`, with known models.
    chips: what it is on.

  Raises:
    ValueError: flags that its experiment refuses, or chips that its groups do
      not fill; names the run.
  """
  try:
    given = study_flags.of_run(run)
    task = study_tasks.task_of(given, chips)
    found = study_passes.count(run.experiment, given, task)
    is_room = study_tasks.is_room(task, int(given['max_length']))
  except (KeyError, TypeError, ValueError) as error:
    raise ValueError(
      f'expected what {run.experiment} takes in {run.path}, got: {error}'
    ) from error
  spent = study_passes.total(found, task.group)
  hours = sum(spent['seconds'].values()) / 3600
  return {
    'experiment': run.experiment,
    'run': run.name,
    'model': study_flags.model_name(given['model']),
    'is_forecast': True,
    'is_room': is_room,
    **spent,
    'hours': hours,
    'dollars': hours * chips.num_chips * chips.chip.price,
  }


def define() -> None:
  """Defines the flags, as flags of the main that runs."""
  with common.flags_of_main():
    flags.DEFINE_string('grid', None, 'File of the grid.')
    flags.DEFINE_enum(
      'hardware', 'v5p', list(hardware.PRESETS), 'The chips of a worker.'
    )
    flags.DEFINE_integer('num_chips', 4, 'How many.', lower_bound=1)
    flags.DEFINE_integer(
      'prompts_per_set', 80, 'Prompts that a run takes.', lower_bound=2
    )
    flags.DEFINE_integer(
      'context', 1024, 'Tokens of a prompt, in the mean.', lower_bound=1
    )
  options.define_overhead()


if __name__ == '__main__':
  define()
  common.run(main, shared=['seed'])
