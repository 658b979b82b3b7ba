"""Figures and tables come from records alone, and none is made up."""

import csv

import commands
import pytest
import reference_measured as measured
import reference_paper

from experiments import (
  acceptance,
  bench,
  bound_from_logprobs,
  brw_vs_bounds,
  curves,
  entropy_profile,
  evaluate_drafter,
  figures,
  latency,
  plan,
  records,
  scaling,
  speed_of_light,
  speedup,
  train_eagle,
  where_tokens_go,
)
from experiments.sweeps import grid

NAMES = [
  'lookup',
  'oracle_run',
  'won_at(lookup)',
  'oracle_at(lookup)',
  *curves.BOUNDS,
]
MAIN_JOB = speed_of_light.NAME


def write(results, experiment, run_name, **facts):
  """Writes the record of a run; its folder has nothing else."""
  folder = results / experiment / run_name
  folder.mkdir(parents=True)
  record = measured.record(experiment, measured.rows(NAMES), **facts)
  records.write_json(folder / 'record.json', record)
  return folder


@pytest.fixture
def results(tmp_path):
  write(tmp_path, MAIN_JOB, 'b', finished='2026-01-02T00:00:00+00:00')
  write(tmp_path, MAIN_JOB, 'a', finished='2026-01-03T00:00:00+00:00')
  write(tmp_path, bound_from_logprobs.NAME, 'b')
  write(tmp_path, 'lossless', 'c')
  (tmp_path / MAIN_JOB / 'begun').mkdir()
  return tmp_path


def test_figures_go_by_the_names_of_their_experiments():
  assert set(figures.FIGURES) == {
    MAIN_JOB,
    where_tokens_go.NAME,
    bound_from_logprobs.NAME,
    brw_vs_bounds.NAME,
    entropy_profile.NAME,
    acceptance.NAME,
    latency.NAME,
    bench.NAME,
    plan.NAME,
    scaling.NAME,
    speedup.NAME,
    train_eagle.NAME,
    evaluate_drafter.NAME,
  }


def test_the_newest_run_counts_or_the_one_that_is_named(results):
  names = lambda *run: {
    experiment: folder.name
    for experiment, (folder, _) in figures.find_runs(results, *run).items()
  }
  logprobs = bound_from_logprobs.NAME
  assert names(None) == {MAIN_JOB: 'a', logprobs: 'b', 'lossless': 'c'}
  assert names('b') == {MAIN_JOB: 'b', logprobs: 'b'}
  assert names('begun') == {}


def test_a_record_that_is_none_is_no_missing_run(results):
  write(results, MAIN_JOB, 'old', schema=0)
  with pytest.raises(ValueError, match='expected schema 1 in .*old'):
    figures.find_runs(results, None)


def test_a_figure_wants_the_columns_of_its_experiment(results):
  write(results, latency.NAME, 'd')
  with pytest.raises(ValueError, match=r"got row 0 without \['batch'"):
    figures.find_runs(results, None)


def test_what_is_there_is_drawn_and_what_is_missing_is_said(results):
  before = {path.name for path in results.iterdir()}
  done = commands.run('figures', results_dir=results)
  assert done.returncode == 0, done.stderr
  out = results / 'figures'
  assert {path.name for path in results.iterdir()} == {*before, 'figures'}
  assert {path.name for path in out.iterdir()} == {
    'lossless.csv',
    *(
      f'{name}.{suffix}'
      for name in (MAIN_JOB, bound_from_logprobs.NAME)
      for suffix in ('png', 'pdf', 'csv')
    ),
  }
  with (out / f'{MAIN_JOB}.csv').open() as file:
    found = [float(row['D']) for row in csv.DictReader(file)]
  assert found == [row['D'] for row in measured.rows(NAMES)]
  said = done.stdout.splitlines()
  assert len(said) == len(figures.FIGURES) + 1
  missing = [line.split(':')[0] for line in said if 'no finished run' in line]
  assert missing == [
    name
    for name in figures.FIGURES
    if name not in (MAIN_JOB, bound_from_logprobs.NAME)
  ]
  # Again, elsewhere: the same bytes.
  elsewhere = results / 'new' / 'place'
  again = commands.run('figures', results_dir=results, out=elsewhere)
  assert again.returncode == 0, again.stderr
  for path in out.iterdir():
    assert (elsewhere / path.name).read_bytes() == path.read_bytes()


def test_a_sweep_is_drawn_and_its_missing_cells_are_named(tmp_path):
  drawn = ('speed_of_light', 'acceptance')
  missing = ['acceptance/deep+chat', 'speed_of_light/wide+code']
  folder = reference_paper.write(
    tmp_path / 'sweeps' / 'small', missing, experiments=drawn
  )
  done = commands.run('figures', results_dir=folder)
  assert done.returncode == 0, done.stderr
  lines = done.stdout.splitlines()
  assert [line for line in lines if 'no record' in line] == [
    f'{run.path}: no record'
    for run in grid.load(folder / 'grid.txt')
    if run.path in missing or run.experiment not in drawn
  ]
  assert (
    f'--grid={folder}/grid.txt --run_name=small --store={folder} ' in lines[-1]
  )
  out = folder / 'figures'
  assert {path.stem for path in out.glob('*.png')} == set(drawn)
  assert {path.name for path in (out / 'small').glob('*.tex')} == {
    'curves-deep.tex',
    'curves-wide.tex',
    'relation.tex',
  }


def test_sweeps_that_a_folder_holds_have_folders_of_their_own(tmp_path):
  for name in ('a', 'b'):
    reference_paper.write(tmp_path / 'sweeps' / name, experiments=[])
  done = commands.run('figures', results_dir=tmp_path)
  assert done.returncode == 0, done.stderr
  lines = done.stdout.splitlines()
  assert lines.count('plan/deep+code: no record') == 2
  # Of no record nothing is made.
  made = [path.relative_to(tmp_path) for path in tmp_path.glob('figures/**/*')]
  assert sorted(map(str, made)) == ['figures/a', 'figures/b']


def test_nothing_to_draw_is_an_error_and_leaves_nothing(tmp_path):
  done = commands.run('figures', results_dir=tmp_path, out=tmp_path / 'out')
  assert done.returncode == 2
  assert done.stderr.startswith('error: expected a finished run in ')
  assert list(tmp_path.iterdir()) == []
