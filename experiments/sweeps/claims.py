"""Who works at which run: claims with heartbeats, and records created once.

  claims/EXPERIMENT/RUN/0001.json      the first claim, then 0002.json, ...
  records/EXPERIMENT/RUN/record.json   what came out

A claim is created, so that one worker of several gets it, and written again by
its holder alone, whose heartbeats make it change.  The last claim of a run is
the one that counts.  One that has not changed for some time, by the clock of
who looks, is lost: the next one may be created, and the holder learns of it at
its next heartbeat.  What it brings after that may be too late, since a record
is created as well: work may be done twice, but one record is published.
"""

import datetime
import json
import os
import pathlib
import socket
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from experiments import records
from experiments.sweeps import grid
from experiments.sweeps import store as store_lib

# Where a run stands, in the order in which a run goes through them.
STATES = ('waiting', 'open', 'running', 'done', 'failed', 'blocked')

# Characters of a failed run's log that its claim keeps.
_LOG_TAIL = 4000


class Standing(NamedTuple):
  """Where a run stands.

  Attributes:
    state: one of `STATES`: `open` if it can be taken, `waiting` for others,
      `failed` as often as is allowed, `blocked` by one that failed.
    number: of its last claim, 0 without any.
    claim: what the last claim says; empty without any.
    broken: a published record that is none, None if there is none such.
  """

  state: str
  number: int = 0
  claim: Mapping[str, object] = {}
  broken: bytes | None = None

  @property
  def failures(self) -> int:
    """How often the run has failed."""
    is_failed = self.claim.get('state') == 'failed'
    return self.claim.get('failures', 0) + is_failed


class Claim:
  """A run that this worker has."""

  def __init__(self, store: store_lib.Store, run: grid.Run, number: int):
    """Binds a claim; `Queue.take` makes it.

    Args:
      store: where it is.
      run: what is claimed.
      number: of the claim.
    """
    self.run = run
    self.number = number
    self._store = store
    self._content: dict[str, object] = {}

  def begin(self, worker: str, failures: int) -> bool:
    """Creates the claim and returns whether it is ours.

    Args:
      worker: name, unique.
      failures: of claims before.
    """
    self._content = {
      'worker': worker,
      'flags': list(self.run.flags),
      'failures': failures,
      'state': 'held',
      'beat': 0,
      'changed': _now(),
    }
    return self._store.create(self._name(self.number), _json(self._content))

  def beat(self) -> bool:
    """Shows that the holder lives; returns False if the claim is lost."""
    if self._store.read(self._name(self.number + 1)) is not None:
      return False
    self._write(beat=self._content['beat'] + 1)
    return True

  def release(self) -> None:
    """Gives the run back."""
    self._write(state='released')

  def fail(self, code: int, log: str) -> None:
    """Says that the run failed.

    Args:
      code: its exit code.
      log: what it said; the end of it is kept.
    """
    self._write(state='failed', code=code, log=log[-_LOG_TAIL:])

  def publish(self, record: bytes) -> bool:
    """Publishes the record and returns whether it is the first.

    Args:
      record: content of its file.
    """
    is_first = self._store.create(record_name(self.run), record)
    self._write(state='done', is_published=is_first)
    return is_first

  def _write(self, **changes):
    self._content |= {**changes, 'changed': _now()}
    self._store.write(self._name(self.number), _json(self._content))

  def _name(self, number):
    return f'{_claims_of(self.run)}/{number:04d}.json'


class Queue:
  """The runs of a sweep as one worker sees them."""

  def __init__(
    self,
    store: store_lib.Store,
    *,
    retries: int,
    lost_after: float,
    clock_fn: Callable[[], float] = time.monotonic,
  ):
    """Binds a store.

    Args:
      store: that all workers share.
      retries: how often a run that failed is tried again.
      lost_after: seconds after which a claim without heartbeats is lost.
      clock_fn: seconds that have passed.
    """
    self.worker = f'{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}'
    self._store = store
    self._retries = retries
    self._lost_after = lost_after
    self._clock_fn = clock_fn
    self._seen: dict[str, tuple[object, float]] = {}
    self._done: dict[str, Standing] = {}

  def standings(self, runs: Sequence[grid.Run]) -> dict[str, Standing]:
    """Looks where runs stand.

    Args:
      runs: in the order of the grid, with all that they come after.

    Returns:
      Standings by path.

    Raises:
      ValueError: a run that was begun with other flags.
    """
    names = [*self._store.names('claims'), *self._store.names('records')]
    last = {name.rpartition('/')[0]: name for name in names}  # They are sorted.
    found: dict[str, Standing] = {}
    for run in runs:
      own = self._done.get(run.path) or self._look(run, last)
      if own.state == 'done':
        self._done[run.path] = own
      elif own.state == 'open':
        before = {found[path].state for path in run.after}
        if before & {'failed', 'blocked'}:
          own = own._replace(state='blocked')
        elif before - {'done'}:
          own = own._replace(state='waiting')
      found[run.path] = own
    return found

  def take(self, run: grid.Run, standing: Standing) -> Claim | None:
    """Claims a run; None if another was earlier.

    Args:
      run: what is wanted.
      standing: of the run, which is open.
    """
    claim = Claim(self._store, run, standing.number + 1)
    if not claim.begin(self.worker, standing.failures):
      return None
    if standing.broken is not None:
      self._store.remove(record_name(run), standing.broken)
    return claim

  def _look(self, run, last):
    """Standing of a run by itself."""
    name, content = last.get(_claims_of(run)), None
    number = int(pathlib.PurePath(name).stem) if name else 0
    claim = json.loads(self._store.read(name)) if name else {}
    if claim and claim['flags'] != list(run.flags):
      raise ValueError(
        f'expected the flags with which {run.path} was begun, '
        f'{" ".join(claim["flags"])}, got {" ".join(run.flags)}; choose another'
        ' --run_name for it or for the sweep'
      )
    if record := last.get(f'records/{run.path}'):
      content = self._store.read(record)
      if is_record(content, run):
        return Standing('done', number, claim)
    standing = Standing('open', number, claim, content)
    if claim.get('state') == 'held' and not self._is_lost(run, standing):
      return standing._replace(state='running')
    if standing.failures > self._retries:
      return standing._replace(state='failed')
    return standing

  def _is_lost(self, run, standing):
    beat, now = (standing.number, standing.claim['beat']), self._clock_fn()
    known, since = self._seen.get(run.path, (None, now))
    if known != beat:
      since = now
    self._seen[run.path] = (beat, since)
    return now - since > self._lost_after


def record_name(run: grid.Run) -> str:
  """Returns the name of a run's published record."""
  return f'records/{run.path}/record.json'


def is_record(content: bytes | None, run: grid.Run) -> bool:
  """Returns whether a file holds a whole record of a run's experiment."""
  try:
    record = records.parse_record(content or b'', run.path)
  except ValueError:
    return False
  return record['experiment'] == run.experiment


def _claims_of(run):
  return f'claims/{run.path}'


def _json(content):
  return json.dumps(content, indent=2).encode()


def _now():
  return datetime.datetime.now(datetime.UTC).isoformat(timespec='seconds')
