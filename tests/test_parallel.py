"""Work on several devices, which the host is made to have."""

import os
import subprocess
import sys

# Three devices draw the curves that one would draw from each of their keys.
_SCRIPT = """
import jax
import numpy as np
from specjax.theory import brw, laws

assert jax.local_device_count() == 3
env = laws.independent(np.random.default_rng(0).dirichlet(np.ones(6), size=4))
key = jax.random.key(7)
found = np.asarray(brw.curves_on_devices(env, key, 8, 20))
each = [brw.curves(env, k, 3, 20) for k in jax.random.split(key, 3)]
np.testing.assert_array_equal(found, np.concatenate(each)[:8])
assert len(np.unique(found[:, -1])) == 8
"""


def test_replicas_are_shared_out_to_all_devices():
  done = subprocess.run(
    [sys.executable, '-c', _SCRIPT],
    env={
      **os.environ,
      'JAX_PLATFORMS': 'cpu',
      'XLA_FLAGS': os.environ['XLA_FLAGS']
      + ' --xla_force_host_platform_device_count=3',
    },
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stderr
