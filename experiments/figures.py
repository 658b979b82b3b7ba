"""Every figure again, from the records of results/ alone.

  launch/run.sh figures                             into results/figures/
  launch/run.sh figures --out=FOLDER --run_name=NAME

Draws for each experiment its newest finished run, or the one of the given name,
as FOLDER/<experiment>.png and .pdf.  The same records give the same bytes.  An
experiment without such a run has no figure, and that is said.
"""

import pathlib
from collections.abc import Callable, Mapping

import matplotlib.figure
from absl import flags

from experiments import (
  acceptance_report,
  common,
  figure_files,
  records,
  report,
  waterfall,
)
from experiments.evaluation import figure as evaluation_figure
from experiments.heads import report as heads_report
from experiments.logprobs import report as logprob_report
from experiments.planning import latency_report, plan_report, sources
from experiments.profile import figure as profile_figure
from experiments.walks import report as brw_report

FLAGS = flags.FLAGS

_OUT = flags.DEFINE_string(
  'out', None, 'Folder for the figures; figures/ in --results_dir if none.'
)

# Experiment -> what draws the figure of its record.
FIGURES: Mapping[str, Callable[[Mapping], matplotlib.figure.Figure]] = {
  'speed_of_light': report.draw,
  'where_tokens_go': waterfall.draw,
  'bound_from_logprobs': logprob_report.draw,
  'brw_vs_bounds': brw_report.draw,
  'entropy_profile': profile_figure.draw,
  'acceptance': acceptance_report.draw,
  'latency': latency_report.draw,
  'plan': plan_report.draw,
  'train_eagle': heads_report.draw,
  'evaluate_drafter': evaluation_figure.draw,
}

# What every row of their tables has, where they are not curves.
_COLUMNS = {
  'latency': sources.LATENCY_COLUMNS,
  'plan': ('model', 'machine', 'batch', 'is_forecast'),
  'train_eagle': ('step', 'loss'),
}
_CURVES = ('capacity', 'curve', 'D', 'low', 'high')


def main():
  """Draws what there is, and says what is missing."""
  results_dir = pathlib.Path(FLAGS.results_dir)
  out = pathlib.Path(_OUT.value or results_dir / 'figures')
  runs = {name: find_run(results_dir, name, FLAGS.run_name) for name in FIGURES}
  if not any(runs.values()):
    raise ValueError(
      f'expected a finished run of {", ".join(FIGURES)} in {results_dir}, '
      'got none'
    )
  out.mkdir(parents=True, exist_ok=True)
  for name, draw in FIGURES.items():
    if runs[name] is None:
      print(f'{name}: no finished run; launch/run.sh {name} makes one')
      continue
    folder, record = runs[name]
    figure_files.save(draw(record), out / name)
    print(f'{name}: {folder} -> {out / name}.png')


def find_run(
  results_dir: pathlib.Path, experiment: str, run_name: str | None
) -> tuple[pathlib.Path, dict] | None:
  """Finds the newest finished run of an experiment.

  Args:
    results_dir: the folder of all results.
    experiment: its name.
    run_name: only the run of this name counts; all do if none.

  Returns:
    The run's folder and record; None where there is no finished run.

  Raises:
    ValueError: a record that is none.
  """
  paths = (results_dir / experiment).glob(f'{run_name or "*"}/record.json')
  columns = _COLUMNS.get(experiment, _CURVES)
  runs = [
    (path.parent, records.load_record(path, columns)) for path in sorted(paths)
  ]
  return max(runs, key=lambda run: run[1]['finished'], default=None)


if __name__ == '__main__':
  common.run(main)
