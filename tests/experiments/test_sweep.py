"""The command line of a sweep."""

import json
import pathlib
import shlex
import sys

import commands
import pytest

from experiments import sweep

FAKE = pathlib.Path(__file__).parent / 'reference_run.py'

GRID = """
probe --seed={0,1,2}
sum --seed=3 --fails=1 after=probe/seed=0
"""
PATHS = ['probe/seed=0', 'probe/seed=1', 'probe/seed=2', 'sum/run']


@pytest.fixture
def command(tmp_path):
  """Runs the sweep of a small grid with flags."""
  grid = tmp_path / 'small.txt'
  grid.write_text(GRID)

  def run(*arguments, **flags):
    return commands.run(
      'sweep',
      *arguments,
      grid=grid,
      results_dir=tmp_path / 'results',
      command=shlex.join([sys.executable, '-I', '-S', str(FAKE)]),
      **flags,
    )

  return run


def published(tmp_path, name='small'):
  records = tmp_path / 'results' / 'sweeps' / name / 'records'
  return sorted(
    path.parent.relative_to(records).as_posix()
    for path in records.rglob('record.json')
  )


def test_a_dry_run_says_what_would_be_run_and_writes_nothing(command, tmp_path):
  done = command('--dry_run')
  assert done.returncode == 0, done.stderr
  work = tmp_path / 'results' / 'sweeps' / 'small' / 'work'
  assert [shlex.split(line) for line in done.stdout.splitlines()] == [
    [sys.executable, '-I', '-S', str(FAKE), *path.split('/')[:1], *flags]
    + [f'--run_name={path.split("/")[1]}', f'--results_dir={work}']
    for path, flags in zip(
      PATHS,
      [['--seed=0'], ['--seed=1'], ['--seed=2'], ['--seed=3', '--fails=1']],
      strict=True,
    )
  ]
  assert [path.name for path in tmp_path.iterdir()] == ['small.txt']


def test_what_failed_is_said_and_goes_on_when_it_is_asked_again(
  command, tmp_path
):
  failed = command(retries=0)
  assert failed.returncode == 1
  assert failed.stderr == (
    'sum/run failed with exit code 1:\ncall 1 of sum\nout of luck\n'
  )
  assert failed.stdout.splitlines()[-1] == (
    '4 runs: 0 waiting, 0 open, 0 running, 3 done, 1 failed, 0 blocked'
  )
  assert published(tmp_path) == PATHS[:3]
  done = command(retries=1)
  assert done.returncode == 0, done.stderr
  assert published(tmp_path) == PATHS
  status = command('--status', retries=1)
  assert [line.split()[:2] for line in status.stdout.splitlines()[1:-1]] == [
    [path, 'done'] for path in PATHS
  ]
  assert status.stdout.splitlines()[-1] == (
    '4 runs: 0 waiting, 0 open, 0 running, 4 done, 0 failed, 0 blocked'
  )


def test_shards_together_run_all(command, tmp_path):
  first = command(shard='1/2', run_name='half')
  assert first.returncode == 0, first.stderr
  assert published(tmp_path, 'half') == ['probe/seed=0', 'probe/seed=2']
  second = command(shard='2/2', run_name='half')
  assert second.returncode == 0, second.stderr
  assert published(tmp_path, 'half') == PATHS
  root = tmp_path / 'results' / 'sweeps' / 'half'
  claims = sorted(root.glob('claims/probe/*/*.json'))
  assert [path.name for path in claims] == ['0001.json'] * 3
  assert json.loads(claims[0].read_text())['is_published']


@pytest.mark.parametrize('text', ['', '1', 'a/b', '1/2/3', '-1/2'])
def test_a_shard_that_is_none(text):
  with pytest.raises(ValueError, match='expected --shard=I/N, got '):
    sweep.parse_shard(text)


def test_a_grid_has_to_be_named():
  done = commands.run('sweep')
  assert done.returncode == 2
  assert done.stderr == 'error: expected --grid=FILE, got none\n'
