"""A worker: takes runs of a sweep until none is left to take."""

import contextlib
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence

from experiments.sweeps import claims, grid
from experiments.sweeps import store as store_lib

# Seconds between two looks at a run's process.
_TICK = 0.05

# Seconds that a run has to end when it is asked to.
_GRACE = 10.0

# So many heartbeats may fail to be seen before a claim is lost.
_BEATS = 6


class Stop:
  """Whether the worker was asked to end: SIGTERM is what pre-emption sends."""

  def __init__(self):
    self.is_asked = False

  def install(self) -> None:
    """Listens to SIGTERM and SIGINT."""
    for name in (signal.SIGTERM, signal.SIGINT):
      signal.signal(name, self._ask)

  def _ask(self, number, frame):
    del number, frame
    self.is_asked = True


class Worker:
  """Runs commands for the runs that it gets."""

  def __init__(
    self,
    store: store_lib.Store,
    work_dir: pathlib.Path,
    command: str | None = None,
    *,
    retries: int,
    lost_after: float,
    say_fn: Callable[[str], None] = print,
  ):
    """Binds a worker to its sweep.

    Args:
      store: that all workers share.
      work_dir: where runs write; of a store on a disk, the same for all.
      command: what EXPERIMENT and its flags are put behind; this Python if
        None.
      retries: how often a run that failed is tried again.
      lost_after: seconds after which a claim without heartbeats is lost.
      say_fn: is told what happens.
    """
    self.stop = Stop()
    self._store = store
    self._work_dir = work_dir
    self._command = command
    self._beat_every = lost_after / _BEATS
    self._say_fn = say_fn
    self._queue = claims.Queue(store, retries=retries, lost_after=lost_after)

  def work(self, runs: Sequence[grid.Run]) -> dict[str, claims.Standing]:
    """Takes runs until all are done, failed or blocked, or until it is stopped.

    Args:
      runs: in the order of the grid, with all that they come after.

    Returns:
      Standings by path.

    Raises:
      ValueError: a run that was begun with other flags.
    """
    while True:
      standings = self._queue.standings(runs)
      states = {standing.state for standing in standings.values()}
      if self.stop.is_asked or not states & {'waiting', 'open', 'running'}:
        return standings
      if claim := self._take(runs, standings):
        self._do(claim)
      else:
        self._pause()

  def argv(self, run: grid.Run) -> list[str]:
    """Returns the command line of a run.

    Args:
      run: which.
    """
    begin = [sys.executable, '-P', '-m', f'experiments.{run.experiment}']
    if self._command:
      begin = [*shlex.split(self._command), run.experiment]
    flags = [
      flag.replace(grid.RESULTS, str(self._work_dir)) for flag in run.flags
    ]
    own = [f'--run_name={run.name}', f'--results_dir={self._work_dir}']
    return [*begin, *flags, *own]

  def _take(self, runs, standings):
    """Claims an open run; those that failed come last."""
    found = [run for run in runs if standings[run.path].state == 'open']
    found.sort(key=lambda run: standings[run.path].failures)
    for run in found:
      if claim := self._queue.take(run, standings[run.path]):
        return claim
    return None

  def _do(self, claim):
    run = claim.run
    folder = self._work_dir / run.path
    if not self._store.is_local:  # What other machines know of it.
      for path in (*run.after, run.path):
        store_lib.get_folder(self._store, f'work/{path}', self._work_dir / path)
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / f'log-{claim.number:04d}.txt'
    self._say_fn(f'{run.path}: begins, {log}')
    code = self._execute(claim, log)
    if not self._store.is_local:
      store_lib.put_folder(self._store, folder, f'work/{run.path}')
    if code is None:
      claim.release()
      self._say_fn(f'{run.path}: stopped')
      return
    record = folder / 'record.json'
    content = record.read_bytes() if record.exists() else None
    if code == 0 and claims.is_record(content, run):
      is_first = claim.publish(content)
      self._say_fn(f'{run.path}: {"done" if is_first else "was done already"}')
      return
    said = log.read_text('utf-8', 'replace')
    if code == 0:
      said += f'\nexpected a whole record in {record}, got none'
    claim.fail(code, said)
    self._say_fn(f'{run.path}: failed with exit code {code}, {log}')

  def _execute(self, claim, log):
    """Runs a command; returns its exit code, None if it was ended by us."""
    with log.open('wb') as file:
      process = subprocess.Popen(
        [*_end_with_worker(), *self.argv(claim.run)],
        stdin=subprocess.DEVNULL,
        stdout=file,
        stderr=subprocess.STDOUT,
        start_new_session=True,
      )
    try:
      if not self._watch(claim, process):
        return None
    finally:  # Also when the store cannot be reached.
      _end(process)
    # Pre-emption may reach the run before it reaches us.
    is_ended = self.stop.is_asked or process.returncode == -signal.SIGTERM
    return None if is_ended and process.returncode else process.returncode

  def _watch(self, claim, process):
    """Keeps a claim while a process runs; False if it is lost or given up."""
    beaten = time.monotonic()
    while process.poll() is None:
      if self.stop.is_asked:
        return False
      if time.monotonic() - beaten > self._beat_every:
        beaten = time.monotonic()
        if not claim.beat():
          return False
      time.sleep(_TICK)
    return True

  def _pause(self):
    """Waits for what others do."""
    end = time.monotonic() + self._beat_every
    while time.monotonic() < end and not self.stop.is_asked:
      time.sleep(_TICK)


def _end_with_worker() -> list[str]:
  """What a command is put behind so that it ends when its worker is killed.

  Otherwise it would hold the accelerator that the next worker wants.
  """
  return ['setpriv', '--pdeathsig=KILL'] if shutil.which('setpriv') else []


def _end(process):
  """Ends a process, if it runs, and all that it has started."""
  for name in (signal.SIGTERM, signal.SIGKILL):
    if process.poll() is None:
      os.killpg(process.pid, name)
      with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(_GRACE)
