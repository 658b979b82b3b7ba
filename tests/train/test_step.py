"""One step against the gradient of the whole batch, by hand."""

import os
import pathlib
import subprocess
import sys

import chex
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from specjax.train import optimizer as optimizer_lib
from specjax.train import step as step_lib

RATE = 0.1
DEVICE = jax.devices()[:1]


def squares(params, frozen, batch):
  """Least squares: targets are those of the rows that count."""
  error = batch['x'] @ params['w'] - frozen['y'][batch['row']]
  loss = jnp.sum(jnp.where(batch['counts'], error**2, 0))
  num_targets = jnp.sum(batch['counts'])
  return loss, num_targets, {'size': (jnp.sum(abs(error)), num_targets)}


def make_problem():
  """Parameters, what is frozen, and six rows of which parts count unequally."""
  rng = np.random.default_rng(0)
  batch = {
    'x': rng.normal(size=(6, 3)).astype(np.float32),
    'row': np.arange(6),
    'counts': np.array([True, False, False, True, True, True]),
  }
  frozen = {'y': jnp.asarray(rng.normal(size=6), jnp.float32)}
  return {'w': jnp.ones(3)}, frozen, batch


def by_hand(params, frozen, batch):
  """Mean loss and gradient over the rows that count, in NumPy."""
  x, y = batch['x'][batch['counts']], np.asarray(frozen['y'])[batch['counts']]
  error = x @ np.asarray(params['w']) - y
  return np.mean(error**2), 2 * x.T @ error / len(y)


@pytest.mark.parametrize('num_accumulate', [1, 2, 3])
def test_a_batch_in_parts_is_the_whole_batch(num_accumulate):
  params, frozen, batch = make_problem()
  loss, gradient = by_hand(params, frozen, batch)
  sgd = optax.sgd(RATE)
  step = step_lib.make(
    squares, sgd, num_accumulate=num_accumulate, devices=DEVICE
  )
  state, metrics = step(step_lib.init(params, sgd), frozen, batch)
  np.testing.assert_allclose(state.params['w'], 1 - RATE * gradient, rtol=1e-5)
  assert state.step == 1
  total, weight = metrics['loss']
  np.testing.assert_allclose(total / weight, loss, rtol=1e-6)
  assert weight == metrics['size'][1] == metrics['targets'][0] == 4
  norm, _ = metrics['gradient_norm']
  np.testing.assert_allclose(norm, np.linalg.norm(gradient), rtol=1e-5)
  norm, _ = metrics['parameter_norm']
  np.testing.assert_allclose(norm, np.linalg.norm(state.params['w']), rtol=1e-6)


def test_evaluations_of_unequal_batches_are_those_of_the_whole():
  params, frozen, batch = make_problem()
  loss, _ = by_hand(params, frozen, batch)
  evaluate = step_lib.make_evaluation(squares, DEVICE)
  metrics = [
    evaluate(params, frozen, {k: x[3 * i :][:3] for k, x in batch.items()})
    for i in range(2)
  ]
  assert [found['loss'][1] for found in metrics] == [1, 3]
  found = step_lib.means(metrics)
  np.testing.assert_allclose(found['loss'], loss, rtol=1e-6)
  assert found['size'] > 0
  nothing = {'loss': (jnp.float32(0), jnp.int32(0))}
  assert np.isnan(step_lib.means([nothing])['loss'])


def test_what_is_frozen_and_what_was_given_stay():
  params, frozen, batch = make_problem()
  before = jax.tree.map(np.array, (params, frozen))
  adam = optimizer_lib.adamw(RATE)
  step = step_lib.make(squares, adam, devices=DEVICE)
  state = step_lib.init(params, adam)
  for _ in range(3):
    state, _ = step(state, frozen, batch)
  chex.assert_trees_all_equal((params, frozen), before)
  assert not np.any(np.isclose(state.params['w'], params['w']))


def test_a_batch_without_targets_is_no_error():
  params, frozen, batch = make_problem()
  sgd = optax.sgd(RATE)
  step = step_lib.make(squares, sgd, devices=DEVICE)
  batch = {**batch, 'counts': np.zeros(6, bool)}
  state, _ = step(step_lib.init(params, sgd), frozen, batch)
  chex.assert_trees_all_equal(state.params, params)


# Kind: a number of targets below 1 that is taken for 1.
def test_weights_that_all_targets_share_change_no_step():
  params, frozen, batch = make_problem()

  def lightly(*args):
    loss, num_targets, _ = squares(*args)
    return loss / 64, num_targets / 64, {}

  found = []
  for loss_fn in (squares, lightly):
    sgd = optax.sgd(RATE)
    step = step_lib.make(loss_fn, sgd, devices=DEVICE)
    state, _ = step(step_lib.init(params, sgd), frozen, batch)
    found.append(state.params)
  chex.assert_trees_all_close(*found, rtol=1e-6)


def test_rows_that_cannot_be_shared_are_named():
  params, frozen, batch = make_problem()
  sgd = optax.sgd(RATE)
  with pytest.raises(ValueError, match='at least 1, got 0'):
    step_lib.make(squares, sgd, num_accumulate=0)
  step = step_lib.make(squares, sgd, num_accumulate=4, devices=DEVICE)
  with pytest.raises(ValueError, match='of 1 devices x 4 parts rows, got 6'):
    step(step_lib.init(params, sgd), frozen, batch)


# Two devices, one of which finds no target, and parts take the steps of one.
_SCRIPT = """
import jax
import numpy as np
import optax
import test_step
from specjax.train import step as step_lib

assert jax.device_count() == 2
params, frozen, batch = test_step.make_problem()
batch = {name: x[[0, 3, 1, 2]] for name, x in batch.items()}
assert batch['counts'].tolist() == [True, True, False, False]
sgd = optax.sgd(test_step.RATE)
found = []
for num_devices, num_accumulate in ((1, 1), (2, 1), (2, 2)):
  step = step_lib.make(
    test_step.squares,
    sgd,
    num_accumulate=num_accumulate,
    devices=jax.devices()[:num_devices],
  )
  state = step_lib.init(params, sgd)
  for _ in range(2):
    state, metrics = step(state, frozen, batch)
  assert metrics['loss'][1] == 2
  found.append((state.params['w'], metrics['loss'][0]))
for other in found[1:]:
  jax.tree.map(lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-6),
    found[0], other)
"""


def test_two_devices_are_as_good_as_one():
  done = subprocess.run(
    [sys.executable, '-c', _SCRIPT],
    env={
      **os.environ,
      'JAX_PLATFORMS': 'cpu',
      'PYTHONPATH': str(pathlib.Path(__file__).parent),
      'XLA_FLAGS': os.environ['XLA_FLAGS']
      + ' --xla_force_host_platform_device_count=2',
    },
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stderr
