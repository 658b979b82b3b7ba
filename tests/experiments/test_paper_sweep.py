"""One command leads from a grid to figures and tables."""

import shlex
import sys

import commands
import pytest
import reference_paper

from experiments import records, sweep
from experiments.sweeps import store as store_lib

# Stands for an experiment: gives the record that was made for the run.
COPY = """
import pathlib, shutil, sys
experiment, *flags = sys.argv[1:]
given = dict(flag.removeprefix('--').split('=', 1) for flag in flags)
run = f'{experiment}/{given["run_name"]}'
folder = pathlib.Path(given['results_dir']) / run
folder.mkdir(parents=True, exist_ok=True)
shutil.copy(pathlib.Path(given['made']) / run / 'record.json', folder)
"""
GRID = """
model = wide,deep
acceptance --run_name={model}+chat --made=%s
speed_of_light --run_name={model}+chat --made=%s
"""


@pytest.fixture
def command(tmp_path):
  """Sweeps with --figures; of one cell the main job has no record."""
  made = reference_paper.write(tmp_path / 'made', ['speed_of_light/deep+chat'])
  place = made / 'records'
  (tmp_path / 'copy.py').write_text(COPY)
  grid = tmp_path / 'study.txt'
  grid.write_text(GRID % (place, place))
  copy = [sys.executable, '-I', '-S', str(tmp_path / 'copy.py')]

  def run(**flags):
    return commands.run(
      'sweep',
      '--figures',
      grid=grid,
      results_dir=tmp_path / 'results',
      command=shlex.join(copy),
      retries=0,
      **flags,
    )

  return run


def names(folder):
  return {path.name for path in folder.iterdir()}


def test_a_sweep_ends_with_its_figures(command, tmp_path):
  done = command(only='acceptance/*')
  assert done.returncode == 0, done.stderr
  root = tmp_path / 'results' / 'sweeps' / 'study'
  assert (root / 'grid.txt').read_text() == (tmp_path / 'study.txt').read_text()
  assert {'acceptance.png', 'acceptance.csv'} <= names(root / 'figures')
  assert names(root / 'figures' / 'study') == {
    f'{name}.{suffix}'
    for name in ('curves-wide', 'curves-deep', 'relation')
    for suffix in ('png', 'pdf', 'csv', 'tex')
  }
  assert 'speed_of_light/wide+chat: no record' in done.stdout.splitlines()


def test_what_failed_is_said_and_named(command, tmp_path):
  place = tmp_path / 'shared'
  done = command(only='speed_of_light/deep*', store=place)
  assert done.returncode == 1
  assert done.stderr.startswith(
    'speed_of_light/deep+chat failed with exit code'
  )
  assert 'speed_of_light/deep+chat: no record' in done.stdout.splitlines()
  assert names(place / 'figures') == {'shared'}


def test_of_a_bucket_records_and_grid_come_first(tmp_path):
  bucket = store_lib.open_store(f'memory://{tmp_path.name}')
  made = tmp_path / 'made' / 'train' / 'wide'
  made.mkdir(parents=True)
  records.write_json(made / 'record.json', reference_paper.train(0.5))
  store_lib.put_folder(bucket, tmp_path / 'made', 'records')
  bucket.write('grid.txt', reference_paper.GRID.encode())
  folder = tmp_path / 'here'
  sweep.draw(bucket, folder)
  assert 'train.csv' in names(folder / 'figures')
  assert (folder / 'grid.txt').read_text() == reference_paper.GRID


def test_what_could_not_be_drawn_is_an_error(command, tmp_path):
  (tmp_path / 'results' / 'sweeps' / 'study').mkdir(parents=True)
  (tmp_path / 'results' / 'sweeps' / 'study' / 'figures').write_text('a file')
  done = command(only='speed_of_light/wide*')
  assert done.returncode == 2
  assert done.stderr.splitlines()[-1].startswith('error: expected figures of ')
