"""Decoding, models and estimators over eight devices that the host is given."""

import json
import os
import pathlib
import subprocess
import sys

import jax
import on_eight_devices
import pytest

from specjax import parallel

TESTS = pathlib.Path(__file__).parent


@pytest.fixture(scope='module')
def faults():
  """Check -> what went wrong with it; one process tries them all."""
  done = subprocess.run(
    [sys.executable, TESTS / 'on_eight_devices.py'],
    env={
      **os.environ,
      'PYTHONPATH': str(TESTS.parent),
      'JAX_PLATFORMS': 'cpu',
      'XLA_FLAGS': f'{os.environ["XLA_FLAGS"]} '
      '--xla_force_host_platform_device_count=8',
    },
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stderr
  return json.loads(done.stdout)


@pytest.mark.parametrize('check', on_eight_devices.CHECKS)
def test_on_eight_devices(faults, check):
  assert not faults[check], faults[check]


@pytest.mark.parametrize(
  'mode, num_parts, message',
  [
    ('jit', 1, "expected a mode of .*got 'jit'"),
    ('shard_map', 3, 'expected a divisor of 4 devices .*got 3'),
    ('shard_map', 0, 'expected a divisor of 4 devices .*got 0'),
    ('pmap', 2, 'expected shard_map for a model on 2 devices, got pmap'),
  ],
)
def test_groups_that_cannot_be_are_refused(mode, num_parts, message):
  with pytest.raises(ValueError, match=message):
    parallel.make_layout(mode, num_parts, jax.devices() * 4)
