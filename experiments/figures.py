"""Every figure and table again, from the records of results/ alone.

  launch/run.sh figures                             into results/figures/
  launch/run.sh figures --out=FOLDER --run_name=NAME
  launch/run.sh figures --results_dir=results/sweeps/NAME

Of each experiment the newest finished run counts, or the one of the given name:
its figure becomes FOLDER/<experiment>.png and .pdf, its table .csv.  An
experiment that has a figure but no such run is named.

Where --results_dir is the folder of a sweep, or holds some, FOLDER/<sweep>/ has
what its cells, each a model on a data set, say together:

  moments               mu and mu2
  curves-MODEL          D of drafters against capacity, and all bounds
  relation              bounds, and what the best drafter achieved
  plans                 what to run, and how much faster that is

Tables are .csv, and .tex for the package booktabs; those of curves and of the
relation are cut down to the largest trees there.  Runs without a record are
named, and nothing stands in for them.  The same records give the same bytes.
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
from experiments.footprint import report as footprint_report
from experiments.heads import report as heads_report
from experiments.logprobs import report as logprob_report
from experiments.paper import cells, files, tables
from experiments.planning import (
  latency_report,
  plan_report,
  scaling_report,
  sources,
)
from experiments.profile import figure as profile_figure
from experiments.speed import figure as speed_figure
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
  'bench': footprint_report.draw,
  'plan': plan_report.draw,
  'speedup': speed_figure.draw,
  'scaling': scaling_report.draw,
  'train_eagle': heads_report.draw,
  'evaluate_drafter': evaluation_figure.draw,
}

# What every row of a table has, where it is not of curves.
_COLUMNS = {
  'latency': sources.LATENCY_COLUMNS,
  'bench': ('start', 'part', 'seconds', 'low', 'high'),
  'plan': ('model', 'machine', 'batch', 'is_forecast'),
  'speedup': ('temperature', 'name', 'capacity', 'kind', 'speedup'),
  'scaling': ('model', 'chip', 'num_chips', 'hosts', 'batch', 'rate'),
  'train_eagle': ('step', 'loss'),
}


def main():
  """Draws what there is, and says what is missing."""
  results_dir = pathlib.Path(FLAGS.results_dir)
  out = pathlib.Path(_OUT.value or results_dir / 'figures')
  sweeps = cells.find(results_dir)
  is_sweep = results_dir in sweeps
  runs = find_runs(
    results_dir / cells.RECORDS if is_sweep else results_dir, FLAGS.run_name
  )
  if not runs and not sweeps:
    raise ValueError(f'expected a finished run in {results_dir}, got none')
  out.mkdir(parents=True, exist_ok=True)
  # What a sweep lacks is told by its grid.
  for name in runs if is_sweep else {**FIGURES, **runs}:
    if name not in runs:
      print(f'{name}: no finished run; launch/run.sh {name} makes one')
      continue
    folder, record = runs[name]
    write_run(name, record, out)
    print(f'{name}: {folder} -> {out / name}.*')
  for folder in sweeps:
    write_sweep(folder, out)


def find_runs(
  results_dir: pathlib.Path, run_name: str | None
) -> dict[str, tuple[pathlib.Path, dict]]:
  """Finds the newest finished run of every experiment.

  Args:
    results_dir: the folder of all results.
    run_name: only runs of this name count; all do if none.

  Returns:
    Experiment -> the run's folder and record, where there is one.

  Raises:
    ValueError: a record that is none.
  """
  runs: dict[str, tuple[pathlib.Path, dict]] = {}
  for path in sorted(results_dir.glob(f'*/{run_name or "*"}/record.json')):
    experiment = path.parents[1].name
    curves = cells.CURVES if experiment in FIGURES else ()
    record = records.load_record(path, _COLUMNS.get(experiment, curves))
    best = runs.get(experiment)
    if best is None or record['finished'] > best[1]['finished']:
      runs[experiment] = path.parent, record
  return runs


def write_run(experiment: str, record: Mapping, out: pathlib.Path) -> None:
  """Writes a run's table, and its figure if there is one.

  Args:
    experiment: whose name the files have.
    record: of the run.
    out: the folder of the files, which exists.
  """
  table = tables.csv_text(record['table'])
  (out / f'{experiment}.csv').write_text(table, 'utf-8')
  if draw := FIGURES.get(experiment):
    figure_files.save(draw(record), out / experiment)


def write_sweep(folder: pathlib.Path, out: pathlib.Path) -> None:
  """Writes what a sweep says of its models and data sets; says what is missing.

  Args:
    folder: of the sweep.
    out: where the folder of the figures is made.

  Raises:
    ValueError: a grid or a record that is none.
  """
  study = cells.read(folder)
  (out / study.name).mkdir(parents=True, exist_ok=True)
  files.write(study, out / study.name)
  print(
    f'{study.name}: {len(study.cells)} cells of {folder} -> {out / study.name}'
  )
  for run, reason in study.missing.items():
    print(f'{run}: {reason}')
  if 'no record' in study.missing.values():
    print(
      f'launch/sweep.py --grid={folder / cells.GRID} --run_name={study.name} '
      f'--store={folder} makes the records'
    )


if __name__ == '__main__':
  common.run(main, shared=[])
