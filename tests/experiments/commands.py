"""Runs experiments as commands, as launch/run.sh does."""

import atexit
import functools
import json
import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).parents[2]

# Runs an experiment for every command line that it reads, and says how it
# ended.  What most experiments import is imported once, so a short one costs a
# third; the experiments are not, for they define their flags as `__main__`.
_SERVER = """
import json, os, runpy, sys
import experiments.report

for line in sys.stdin:
  module, arguments, folder = json.loads(line)
  if os.fork() == 0:
    for number, name in [(0, os.devnull), (1, 'stdout'), (2, 'stderr')]:
      path = os.path.join(folder, name)
      os.dup2(os.open(path, os.O_CREAT | os.O_RDWR), number)
    sys.argv = ['', *arguments]
    runpy.run_module(module, run_name='__main__', alter_sys=True)
    sys.exit()
  print(os.waitstatus_to_exitcode(os.wait()[1]), flush=True)
"""


def run(experiment: str, *arguments: str, **flags: object):
  """Runs an experiment to its end.

  Args:
    experiment: its name, such as `plan`.
    *arguments: of its command line, as they are.
    **flags: more of them, passed as --name=value.

  Returns:
    The finished process, with its `returncode`, `stdout` and `stderr`.
  """
  server = _server()
  with tempfile.TemporaryDirectory() as name:
    folder = pathlib.Path(name)
    line = [_module(experiment), [*arguments, *words(flags)], name]
    server.stdin.write(f'{json.dumps(line)}\n')
    server.stdin.flush()
    code = int(server.stdout.readline())
    said = [
      (folder / stream).read_text('utf-8') for stream in ('stdout', 'stderr')
    ]
    return subprocess.CompletedProcess(line, code, *said)


def start(
  experiment: str,
  *arguments: str,
  xla_flags: str | None = None,
  **flags: object,
):
  """Starts an experiment, as `run` does, and gives its running process.

  Args:
    experiment: its name, such as `plan`.
    *arguments: of its command line, as they are.
    xla_flags: how it compiles its programs; as tests do if none.
    **flags: more of the command line, passed as --name=value.
  """
  env = environment()
  if xla_flags is not None:
    env['XLA_FLAGS'] = xla_flags
  return subprocess.Popen(
    [
      sys.executable,
      '-P',
      '-m',
      _module(experiment),
      *arguments,
      *words(flags),
    ],
    env=env,
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


@functools.cache
def _server() -> subprocess.Popen:
  """Gives the process that runs the commands; it ends with this one."""
  server = subprocess.Popen(
    [sys.executable, '-P', '-c', _SERVER],
    env=environment(),
    encoding='utf-8',
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
  )
  atexit.register(server.communicate)
  return server


def _module(experiment):
  return f'experiments.{experiment}'
