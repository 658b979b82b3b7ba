"""Runs that are killed, and damaged, against runs that are not."""

import csv
import os
import pathlib
import re
import signal
import subprocess
import sys

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.train import fit as fit_lib
from specjax.train import optimizer as optimizer_lib
from specjax.train import step as step_lib

NUM_STEPS = 12
# Places drawn at random behind the first checkpoint.
KILLS = np.random.default_rng(0).choice(range(4, 12), 3, replace=False)
OPTIMIZER = optimizer_lib.adamw(optimizer_lib.schedule(0.1, NUM_STEPS, 3))


class Batches:
  """Random batches; one of them may be other than it should be."""

  def __init__(self, stop_at=None, act=None):
    self._number = 0
    self._stop_at, self._act = stop_at, act

  def __next__(self):
    self._number += 1
    x = np.random.default_rng(self._number).normal(size=(4, 3))
    if self._number == self._stop_at:
      x = self._act(x)
    return {'x': x.astype(np.float32)}

  def get_state(self):
    return {'number': self._number}

  def set_state(self, state):
    self._number = state['number']


class Killed(Exception):
  """What the process would die of."""


def die(_):
  raise Killed


def terminate(x):
  signal.raise_signal(signal.SIGTERM)
  return x


def loss_fn(params, frozen, batch):
  error = jnp.tanh(batch['x'] @ params['w']) - frozen
  return jnp.sum(error**2), error.size, {}


STEP = step_lib.make(loss_fn, OPTIMIZER, devices=jax.devices()[:1])


def new_state():
  params = {'w': jnp.linspace(-1, 1, 6).reshape(3, 2), 'norm': jnp.ones(2)}
  return step_lib.init(params, OPTIMIZER)


def train(folder, batches, **options):
  options = {'num_steps': NUM_STEPS, 'save_every': 3, 'log_every': 2, **options}
  return fit_lib.fit(
    STEP, new_state(), jnp.float32(0.5), batches, folder=folder, **options
  )


@pytest.fixture(scope='module')
def whole(tmp_path_factory):
  """A run that nobody disturbed, and its folder."""
  folder = tmp_path_factory.mktemp('whole')
  return train(folder, Batches()), folder


def read(path):
  with path.open(newline='') as file:
    return list(csv.DictReader(file))


def rows(folder):
  """All that does not depend on the clock."""
  found = read(folder / 'train.csv')
  return [{k: v for k, v in row.items() if k != 'seconds'} for row in found]


def steps(folder):
  names = (path.name for path in (folder / 'checkpoints').iterdir())
  return sorted(int(name) for name in names if name.isdecimal())


def test_a_run_takes_its_steps_and_leaves_what_it_says(whole):
  state, folder = whole
  twin, losses = new_state(), []
  batches = Batches()
  for _ in range(NUM_STEPS):
    twin, metrics = STEP(twin, jnp.float32(0.5), next(batches))
    losses.append(float(metrics['loss'][0] / metrics['loss'][1]))
  chex.assert_trees_all_equal(state, twin)
  assert steps(folder) == [9, 12]
  found = read(folder / 'train.csv')
  ends = [int(row['step']) for row in found]
  assert ends == [2, 3, 4, 6, 8, 9, 10, 12]
  # A row is the mean over the steps since the row before.
  means = [
    np.mean(losses[start:end])
    for start, end in zip([0, *ends[:-1]], ends, strict=True)
  ]
  said = [float(row['loss']) for row in found]
  np.testing.assert_allclose(said, means, rtol=1e-6)
  assert {float(row['targets']) for row in found} == {8.0}
  assert float(found[-1]['parameter_norm']) > 0
  assert list((folder / 'tensorboard').iterdir())


# Before the first checkpoint too.
@pytest.mark.parametrize('stop_at', [2, *KILLS])
def test_killed_and_resumed_is_as_never_killed(tmp_path, whole, stop_at):
  with pytest.raises(Killed):
    train(tmp_path, Batches(stop_at, die))
  state = train(tmp_path, Batches())
  chex.assert_trees_all_equal(state, whole[0])
  assert rows(tmp_path) == rows(whole[1])


def test_sigterm_saves_and_ends(tmp_path, whole):
  with pytest.raises(SystemExit) as error:
    train(tmp_path, Batches(5, terminate))
  assert error.value.code == 128 + signal.SIGTERM
  assert steps(tmp_path) == [3, 5]
  read_before = Batches()
  state = train(tmp_path, read_before)
  chex.assert_trees_all_equal(state, whole[0])
  assert read_before.get_state() == {'number': NUM_STEPS}
  assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


def test_a_finished_run_takes_no_step(whole):
  state = train(whole[1], Batches(1, die))
  chex.assert_trees_all_equal(state, whole[0])


def damage(folder, how):
  """Spoils the checkpoint of step 9."""
  files = [path for path in (folder / '9').rglob('*') if path.is_file()]
  if how == 'bit':
    path = max(files, key=lambda path: path.stat().st_size)
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
  elif how == 'short':
    path = max(files, key=lambda path: path.stat().st_size)
    path.write_bytes(path.read_bytes()[:-9])
  elif how == 'lost':
    (folder / '9' / '_CHECKPOINT_METADATA').unlink()
  else:
    (folder / '9').rename(folder / '9.orbax-checkpoint-tmp')


@pytest.mark.parametrize('how', ['bit', 'short', 'lost', 'unfinished'])
def test_a_damaged_checkpoint_is_skipped(tmp_path, whole, caplog, how):
  with pytest.raises(Killed):
    train(tmp_path, Batches(11, die))
  assert steps(tmp_path) == [6, 9]
  damage(tmp_path / 'checkpoints', how)
  with pytest.raises(Killed):
    train(tmp_path, Batches(8, die))
  said = [record.getMessage() for record in caplog.records]
  expected = 'never finished' if how == 'unfinished' else 'step 9 .* is skipped'
  assert any(re.search(expected, message) for message in said)
  assert steps(tmp_path) == [6]
  chex.assert_trees_all_equal(train(tmp_path, Batches()), whole[0])


def test_a_run_whose_checkpoints_are_all_damaged_is_an_error(tmp_path):
  with pytest.raises(Killed):
    train(tmp_path, Batches(11, die), keep=1)
  damage(tmp_path / 'checkpoints', 'bit')
  with pytest.raises(ValueError, match=r'unfit ones of the steps \[9\]'):
    train(tmp_path, Batches())
  assert steps(tmp_path) == [9]


def test_a_loss_that_is_no_number_ends_the_run(tmp_path):
  spoil = lambda x: np.full_like(x, np.nan)
  with pytest.raises(ValueError, match='finite loss at step 8, got nan'):
    train(tmp_path, Batches(8, spoil))
  assert steps(tmp_path) == [3, 6]
  last = train(tmp_path, Batches(), num_steps=6)
  chex.assert_trees_all_equal(
    last, train(tmp_path / 'b', Batches(), num_steps=6)
  )


def test_evaluations_make_a_curve(tmp_path, whole):
  seen = []

  def evaluate(params):
    seen.append(np.asarray(params['w']))
    return {'size': abs(seen[-1]).sum()}

  options = {'evaluate_fn': evaluate, 'eval_every': 5}
  with pytest.raises(Killed):
    train(tmp_path, Batches(9, die), **options)
  state = train(tmp_path, Batches(), **options)
  chex.assert_trees_all_equal(state, whole[0])
  found = read(tmp_path / 'evaluation.csv')
  assert [row['step'] for row in found] == ['0', '5', '10', '12']
  sizes = [float(row['size']) for row in found]
  np.testing.assert_allclose(sizes, [abs(w).sum() for w in seen], rtol=1e-6)


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ({'keep': 0}, 'at least 1 checkpoint, got 0'),
    ({'save_every': 0}, 'at least 1, got 0, 2 and None'),
    ({'eval_every': 2}, 'or neither, got None and 2'),
  ],
)
def test_arguments_that_do_not_fit_are_named(tmp_path, options, message):
  with pytest.raises(ValueError, match=message):
    train(tmp_path, Batches(), **options)


# Dies as by a power cut at the batch of its second argument.
_SCRIPT = """
import os
import signal
import sys
import test_fit

kill = lambda _: os.kill(os.getpid(), signal.SIGKILL)
test_fit.train(sys.argv[1], test_fit.Batches(int(sys.argv[2]), kill))
"""


def test_a_process_that_was_killed_goes_on(tmp_path, whole):
  done = subprocess.run(
    [sys.executable, '-c', _SCRIPT, str(tmp_path), '8'],
    env={**os.environ, 'PYTHONPATH': str(pathlib.Path(__file__).parent)},
    capture_output=True,
    text=True,
  )
  assert done.returncode == -signal.SIGKILL, done.stderr
  assert steps(tmp_path) == [3, 6]
  chex.assert_trees_all_equal(train(tmp_path, Batches()), whole[0])
  assert rows(tmp_path) == rows(whole[1])
