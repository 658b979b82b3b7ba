"""Claims: one holder at a time, heartbeats, and records that are first."""

import json

import pytest

from experiments.sweeps import claims, grid
from experiments.sweeps import store as store_lib

RUNS = grid.parse(
  'train\nprobe --seed={0,1} after=train/run\nsum after=probe/seed=0'
)
TRAIN, FIRST, SECOND, SUM = RUNS


class Clock:
  """Seconds that pass when the test says so."""

  def __init__(self):
    self.seconds = 0.0

  def __call__(self):
    return self.seconds


@pytest.fixture
def store(tmp_path):
  return store_lib.Folder(tmp_path)


@pytest.fixture
def clock():
  return Clock()


def make_queue(store, clock, retries=1):
  return claims.Queue(store, retries=retries, lost_after=10, clock_fn=clock)


def states(queue, runs=RUNS):
  return [standing.state for standing in queue.standings(runs).values()]


def take(queue, run=TRAIN):
  return queue.take(run, queue.standings(RUNS)[run.path])


def record(run, **changes):
  fields = {
    'schema': 1,
    'experiment': run.experiment,
    'flags': {},
    'seed': 0,
    'versions': {},
    'device': {},
    'commit': 'none',
    'started': '',
    'finished': '',
    'table': [],
  }
  return json.dumps(fields | changes).encode()


def test_runs_go_through_their_states(store, clock):
  queue = make_queue(store, clock)
  assert states(queue) == ['open', 'waiting', 'waiting', 'waiting']
  claim = take(queue)
  assert states(queue) == ['running', 'waiting', 'waiting', 'waiting']
  assert claim.publish(record(TRAIN))
  assert states(queue) == ['done', 'open', 'open', 'waiting']
  for _ in range(2):
    take(queue, FIRST).fail(3, 'out of luck')
  assert states(queue) == ['done', 'failed', 'open', 'blocked']
  standing = queue.standings(RUNS)[FIRST.path]
  assert (standing.number, standing.failures) == (2, 2)
  assert standing.claim['code'] == 3
  assert standing.claim['log'] == 'out of luck'


def test_one_of_two_workers_has_a_run(store, clock):
  one, other = make_queue(store, clock), make_queue(store, clock)
  seen = other.standings(RUNS)[TRAIN.path]
  assert take(one) is not None
  assert other.take(TRAIN, seen) is None
  assert states(other)[0] == 'running'


def test_a_released_run_is_open_and_has_not_failed(store, clock):
  queue = make_queue(store, clock)
  for _ in range(3):
    take(queue).release()
  standing = queue.standings(RUNS)[TRAIN.path]
  assert (standing.state, standing.number, standing.failures) == ('open', 3, 0)


def test_failures_are_counted_past_claims_that_were_lost(store, clock):
  queue = make_queue(store, clock, retries=3)
  take(queue).fail(1, '')
  take(queue).release()
  take(queue).fail(1, '')
  standing = queue.standings(RUNS)[TRAIN.path]
  assert (standing.state, standing.failures) == ('open', 2)


def test_a_silent_holder_loses_its_run_and_its_record_comes_too_late(
  store, clock
):
  one, other = make_queue(store, clock), make_queue(store, clock)
  claim = take(one)
  assert states(other)[0] == 'running'
  for _ in range(5):  # Silence is counted from the last heartbeat.
    clock.seconds += 9
    assert claim.beat()
    assert states(other)[0] == 'running'
  clock.seconds += 11
  assert states(other)[0] == 'open'
  # Who has just begun to look knows of no silence.
  assert states(make_queue(store, clock))[0] == 'running'
  second = take(other)
  assert second.number == 2
  assert not claim.beat()
  assert second.beat()
  assert second.publish(record(TRAIN, started='second'))
  assert not claim.publish(record(TRAIN, started='first'))
  name = claims.record_name(TRAIN)
  assert json.loads(store.read(name))['started'] == 'second'
  assert states(one)[0] == 'done'


def test_what_a_lost_holder_publishes_first_stands(store, clock):
  one, other = make_queue(store, clock), make_queue(store, clock)
  claim = take(one)
  states(other)
  clock.seconds += 11
  second = take(other)
  assert claim.publish(record(TRAIN, started='first'))
  assert not second.publish(record(TRAIN, started='second'))
  assert states(other)[0] == 'done'


@pytest.mark.parametrize(
  'content',
  [
    record(TRAIN)[:100],
    b'',
    record(FIRST),
    record(TRAIN, schema=2),
    record(TRAIN, table=None),
  ],
)
def test_a_published_record_that_is_none_is_redone(store, clock, content):
  store.create(claims.record_name(TRAIN), content)
  queue = make_queue(store, clock)
  assert states(queue)[0] == 'open'
  claim = take(queue)
  assert store.read(claims.record_name(TRAIN)) is None
  assert claim.publish(record(TRAIN))
  assert states(queue)[0] == 'done'


def test_other_flags_under_the_same_name_are_refused(store, clock):
  queue = make_queue(store, clock)
  take(queue).release()
  changed = [TRAIN._replace(flags=('--steps=2',)), *RUNS[1:]]
  with pytest.raises(ValueError, match='flags with which train/run was begun'):
    queue.standings(changed)


def test_a_log_is_kept_by_its_end(store, clock):
  queue = make_queue(store, clock)
  take(queue).fail(1, 'begin ' + 'x' * 10_000 + ' end')
  log = queue.standings(RUNS)[TRAIN.path].claim['log']
  assert log.endswith('x end')
  assert len(log) < 5000
