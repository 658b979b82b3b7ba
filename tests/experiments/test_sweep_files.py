"""The grids that come with the project: every run is a command that exists."""

import collections
import json
import pathlib
import subprocess
import sys

import commands
import pytest

from experiments import prompts
from experiments.sweeps import grid

FOLDER = pathlib.Path(__file__).parents[2] / 'launch' / 'sweeps'

# Imports what experiments share once, then lets each check its flags in a fork.
CHECK = """
import json, os, runpy, sys
from experiments import draft_models, figures, parallel_flags, studies
for experiment, flags in json.load(sys.stdin):
  process = os.fork()
  if not process:
    sys.argv = [experiment, *flags, '--only_check_args']
    try:
      module = f'experiments.{experiment}'
      runpy.run_module(module, run_name='__main__', alter_sys=True)
    except SystemExit as end:
      os._exit(end.code or 0)
    os._exit(3)
  code = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
  if code:
    print(code, experiment, *flags)
"""


def flags_of(runs):
  """One run of each experiment and set of flags, which differ in values."""
  found = {}
  for run in runs:
    names = tuple(flag.split('=')[0] for flag in run.flags)
    found[run.experiment, names] = (run.experiment, run.flags)
  return list(found.values())


@pytest.mark.parametrize('name', ['paper', 'paper_smoke'])
def test_flags_are_those_of_the_experiments(name):
  asked = flags_of(grid.load(FOLDER / f'{name}.txt'))
  done = subprocess.run(
    [sys.executable, '-c', CHECK],
    input=json.dumps(asked),
    env=commands.environment(),
    capture_output=True,
    encoding='utf-8',
    check=True,
  )
  assert (done.stdout, done.stderr) == ('', '')


def test_a_flag_that_does_not_exist_is_found():
  done = subprocess.run(
    [sys.executable, '-c', CHECK],
    input=json.dumps([('latency', ['--prompts=x'])]),
    env=commands.environment(),
    capture_output=True,
    encoding='utf-8',
    check=True,
  )
  assert done.stdout == '2 latency --prompts=x\n'


def test_the_paper_has_every_model_with_every_data_set():
  runs = grid.load(FOLDER / 'paper.txt')
  counts = collections.Counter(run.experiment for run in runs)
  assert counts == {
    **dict.fromkeys(['speed_of_light', 'where_tokens_go'], 6 * 5),
    **dict.fromkeys(['acceptance', 'entropy_profile', 'plan'], 6 * 5),
    'latency': 5,
  }
  names = [
    {run.name for run in runs if run.experiment == experiment}
    for experiment in counts
    if experiment != 'latency'
  ]
  assert all(found == names[0] for found in names)


def test_the_small_study_has_every_kind_of_run_of_the_large_one():
  kinds = [
    {run.experiment for run in grid.load(FOLDER / f'{name}.txt')}
    for name in ('paper', 'paper_smoke')
  ]
  assert kinds[0] < kinds[1]


def test_the_small_prompts_are_in_the_layouts_of_the_large_ones():
  load = lambda name: prompts.load(FOLDER / 'smoke' / f'{name}.jsonl')
  assert {prompt.kind for prompt in load('humaneval')} == {'code'}
  assert len({prompt.kind for prompt in load('mt_bench')}) == 4
