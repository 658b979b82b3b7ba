"""Runs experiments as commands, as launch/run.sh does."""

import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]


def run(experiment: str, *arguments: str, **flags: object):
  """Runs an experiment to its end.

  Args:
    experiment: its name, such as `plan`.
    *arguments: of its command line, as they are.
    **flags: more of them, passed as --name=value.

  Returns:
    The finished process, with its `returncode`, `stdout` and `stderr`.
  """
  process = start(experiment, *arguments, **flags)
  said = process.communicate()
  return subprocess.CompletedProcess(process.args, process.returncode, *said)


def start(experiment: str, *arguments: str, **flags: object):
  """Starts an experiment, as `run` does, and gives its running process."""
  module = f'experiments.{experiment}'
  return subprocess.Popen(
    [sys.executable, '-P', '-m', module, *arguments, *words(flags)],
    env=environment(),
    encoding='utf-8',
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
  )


def words(flags: dict[str, object]) -> list[str]:
  """Gives flags as a command line has them."""
  return [f'--{name}={value}' for name, value in flags.items()]


def environment() -> dict[str, str]:
  """Gives the variables that a command finds set."""
  return os.environ | {
    'PYTHONPATH': str(ROOT),
    'PYTHONIOENCODING': 'utf-8',
    # What one command compiled the next ones find.
    'JAX_COMPILATION_CACHE_DIR': os.environ['SPECJAX_TEST_PROGRAMS'],
    'JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS': '0',
  }
