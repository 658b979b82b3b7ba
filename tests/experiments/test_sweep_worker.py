"""Workers: killed at random moments they publish every record once."""

import json
import multiprocessing
import pathlib
import random
import shlex
import shutil
import signal
import sys
import time
import uuid

import pytest

from experiments.sweeps import claims, grid, table
from experiments.sweeps import store as store_lib
from experiments.sweeps import worker as worker_lib

FAKE = pathlib.Path(__file__).parent / 'reference_run.py'
# Without what a Python sets up for its packages it starts in no time.
COMMAND = shlex.join([sys.executable, '-I', '-S', str(FAKE)])
LOST_AFTER = 0.6

RUNS = grid.parse(
  'seed = 0,1,2,3,4,5,6,7,8,9,10,11,12,13,14,15\n'
  'probe --seed={seed} --sleep=0.05\n'
  'sum --sleep=0.05 --seed={0,1,2,3,4,5,6,7} after=probe/{seed}\n'
)

# Forks workers from a process that has imported all they need.
PROCESSES = multiprocessing.get_context('forkserver')
PROCESSES.set_forkserver_preload(['experiments.sweeps.worker'])


def make_worker(root, place=None, retries=2):
  store = store_lib.open_store(place or str(root))
  worker = worker_lib.Worker(
    store, root / 'work', COMMAND, retries=retries, lost_after=LOST_AFTER
  )
  return store, worker


def work(root):
  _, worker = make_worker(root)
  worker.stop.install()
  worker.work(RUNS)


def start(root):
  process = PROCESSES.Process(target=work, args=(root,))
  process.start()
  return process


def published(root):
  """Contents of the published records, by run."""
  return {
    path.parent.relative_to(root / 'records').as_posix(): path.read_text()
    for path in (root / 'records').rglob('record.json')
  }


def results(root):
  """Published records without what differs from call to call."""
  return {
    path: json.loads(text) | {'started': ''}
    for path, text in published(root).items()
  }


def holders(root):
  """Process ids of workers that have a run."""
  found = [json.loads(x.read_text()) for x in root.glob('claims/*/*/*.json')]
  return {
    int(x['worker'].split(':')[-2]) for x in found if x['state'] == 'held'
  }


def num_calls(root, run):
  return len((root / 'work' / run.path / 'calls.txt').read_text().split())


def wait_for(condition_fn):
  end = time.monotonic() + 30
  while not condition_fn():
    assert time.monotonic() < end
    time.sleep(0.01)


@pytest.fixture(scope='module')
def undisturbed(tmp_path_factory):
  root = tmp_path_factory.mktemp('undisturbed')
  _, worker = make_worker(root)
  standings = worker.work(RUNS)
  assert {standing.state for standing in standings.values()} == {'done'}
  assert [num_calls(root, run) for run in RUNS] == [1] * len(RUNS)
  return results(root)


def test_an_undisturbed_sweep_has_every_record(undisturbed):
  assert set(undisturbed) == {run.path for run in RUNS}
  assert len(RUNS) == 24
  for run in RUNS:
    [seed] = [int(x[7:]) for x in run.flags if x.startswith('--seed=')]
    rows = [{'stage': i, 'value': 10 * seed + i} for i in range(3)]
    assert undisturbed[run.path]['table'] == rows


def test_workers_killed_at_random_publish_every_record_once(
  tmp_path, undisturbed
):
  rng = random.Random(0)
  killed = []
  processes = [start(tmp_path) for _ in range(3)]
  first = {}
  while any(process.is_alive() for process in processes):
    time.sleep(rng.uniform(0.05, 0.25))
    first = published(tmp_path) | first
    busy = [i for i in range(3) if processes[i].pid in holders(tmp_path)]
    place = rng.choice(busy or range(3))
    if len(killed) < 16 and processes[place].is_alive():
      number = rng.choice([signal.SIGTERM, signal.SIGKILL])
      killed.append(number)
      if number == signal.SIGTERM:
        processes[place].terminate()
      else:
        processes[place].kill()
      processes[place].join()
      processes[place] = start(tmp_path)
  assert set(killed) == {signal.SIGTERM, signal.SIGKILL}
  assert len(killed) > 6
  assert [process.exitcode for process in processes] == [0] * 3
  assert results(tmp_path) == undisturbed
  # What was published at first stands to the end.
  assert published(tmp_path) == published(tmp_path) | first
  assert sum(num_calls(tmp_path, run) for run in RUNS) > len(RUNS)
  last = [
    sorted((tmp_path / 'claims' / run.path).iterdir())[-1] for run in RUNS
  ]
  states = {json.loads(path.read_text())['state'] for path in last}
  assert states <= {'done', 'held'}  # Held, if killed after publishing.


def test_finished_runs_never_run_again(tmp_path, undisturbed):
  _, worker = make_worker(tmp_path)
  worker.work(RUNS[:3])
  before = published(tmp_path)
  _, again = make_worker(tmp_path)
  again.work(RUNS[:4])
  assert [num_calls(tmp_path, run) for run in RUNS[:4]] == [1] * 4
  after = published(tmp_path)
  assert after == after | before
  assert results(tmp_path)[RUNS[3].path] == undisturbed[RUNS[3].path]


def test_sigterm_gives_the_run_back_at_once(tmp_path):
  [run] = grid.parse('probe --seed=0 --sleep=30')
  process = PROCESSES.Process(target=_work_on, args=(tmp_path, [run]))
  process.start()
  calls = tmp_path / 'work' / run.path / 'calls.txt'
  wait_for(calls.exists)
  process.terminate()
  process.join(5)
  assert process.exitcode == 0
  store, _ = make_worker(tmp_path)
  queue = claims.Queue(store, retries=0, lost_after=60)
  standing = queue.standings([run])[run.path]
  assert (standing.state, standing.failures) == ('open', 0)
  assert standing.claim['state'] == 'released'


def _work_on(root, runs):
  _, worker = make_worker(root)
  worker.stop.install()
  worker.work(runs)


def test_without_its_store_a_worker_ends_and_so_does_its_run(
  tmp_path, monkeypatch
):
  folder = tmp_path / 'work' / 'probe' / 'run'

  def lost_connection(claim):
    wait_for((folder / 'calls.txt').exists)
    raise OSError('no answer')

  monkeypatch.setattr(claims.Claim, 'beat', lost_connection)
  monkeypatch.setattr(worker_lib, '_GRACE', 0.1)
  _, worker = make_worker(tmp_path)
  with pytest.raises(OSError, match='no answer'):
    worker.work(grid.parse('probe --seed=0 --sleep=0.5 --deaf=1'))
  time.sleep(0.7)
  assert {path.name for path in folder.iterdir()} == {
    *('calls.txt', 'log-0001.txt'),
  }


@pytest.mark.skipif(not shutil.which('setpriv'), reason='no setpriv')
def test_a_run_ends_with_its_killed_worker(tmp_path):
  [run] = grid.parse('probe --seed=0 --sleep=0.5')
  process = PROCESSES.Process(target=_work_on, args=(tmp_path, [run]))
  process.start()
  folder = tmp_path / 'work' / run.path
  wait_for((folder / 'calls.txt').exists)
  process.kill()
  process.join()
  before = {path.name for path in folder.iterdir()}
  time.sleep(0.8)
  assert {path.name for path in folder.iterdir()} == before
  # Silence is waited for; then another worker goes on.
  _, worker = make_worker(tmp_path)
  assert worker.work([run])[run.path].state == 'done'
  assert num_calls(tmp_path, run) == 2


def test_a_failed_run_is_tried_again_and_its_log_is_kept(tmp_path):
  runs = grid.parse(
    'probe --run_name=luckless --seed=0 --fails=9\n'
    'probe --run_name=mended --seed=1 --fails=1\n'
    'probe --run_name=halved --seed=2 --halves=1\n'
    'sum --run_name=below --seed=3 after=probe/luckless\n'
  )
  _, worker = make_worker(tmp_path, retries=2)
  standings = worker.work(runs)
  states = [standing.state for standing in standings.values()]
  assert states == ['failed', 'done', 'done', 'blocked']
  assert [num_calls(tmp_path, run) for run in runs[:3]] == [3, 2, 2]
  luckless, mended, halved, _ = standings.values()
  assert luckless.claim['log'] == 'call 3 of probe\nout of luck\n'
  assert luckless.claim['code'] == 1
  logs = sorted(tmp_path.glob('work/probe/luckless/log-*.txt'))
  assert [path.name for path in logs] == [f'log-000{i}.txt' for i in (1, 2, 3)]
  first = tmp_path / 'claims' / 'probe' / 'halved' / '0001.json'
  assert 'expected a whole record in' in json.loads(first.read_text())['log']
  assert set(results(tmp_path)) == {'probe/mended', 'probe/halved'}
  said = table.failures_text(standings)
  assert said == (
    'probe/luckless failed with exit code 1:\ncall 3 of probe\nout of luck'
  )
  assert table.sentence(standings) == (
    '4 runs: 0 waiting, 0 open, 0 running, 2 done, 1 failed, 1 blocked'
  )
  lines = table.table_text(runs, standings).splitlines()
  assert [line.split()[:4] for line in lines[1:]] == [
    ['probe/luckless', 'failed', '3', '3'],
    ['probe/mended', 'done', '2', '1'],
    ['probe/halved', 'done', '2', '1'],
    ['sum/below', 'blocked', '0', '0'],
  ]
  assert lines[1].endswith(' s ago')


def test_workers_that_share_a_bucket_alone_go_on_from_each_others_files(
  tmp_path,
):
  place = f'memory://{uuid.uuid4().hex}'
  runs = grid.parse('probe --seed=0 --fails=1\nsum --seed=1 after=probe/run\n')
  store, one = make_worker(tmp_path / 'one', place, retries=0)
  assert one.work(runs)[runs[0].path].state == 'failed'
  _, other = make_worker(tmp_path / 'other', place, retries=1)
  assert {x.state for x in other.work(runs).values()} == {'done'}
  assert num_calls(tmp_path / 'other', runs[0]) == 2
  assert not (tmp_path / 'one' / 'work' / runs[1].path).exists()
  names = store.names('records')
  assert names == [claims.record_name(run) for run in runs]


def test_the_command_line_of_a_run():
  [run] = grid.parse('plan --curves={results}/a/b/record.json --run_name=n')
  worker = worker_lib.Worker(
    store_lib.Folder('x'), pathlib.Path('w'), retries=0, lost_after=1
  )
  assert worker.argv(run) == [
    sys.executable,
    *('-P', '-m', 'experiments.plan', '--curves=w/a/b/record.json'),
    *('--run_name=n', '--results_dir=w'),
  ]
