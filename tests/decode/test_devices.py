"""Rows decoded on several devices, which the host is made to have."""

import os
import pathlib
import subprocess
import sys

TESTS = pathlib.Path(__file__).parents[1]

# Equal prompts, two to a device, say what they say on one device alone.
_SCRIPT = """
import conftest
import jax
import jax.numpy as jnp
import numpy as np
from specjax import sampling
from specjax.decode import baseline, loop, prefill
from specjax.draft import base, lookup

MAX_NEW, EOS = 12, (3,)
verifier = conftest.make_tiny(23)
drafter = lookup.make()


def start(seeds):
  [batch] = prefill.read_prompts(
    verifier, [[4, 7]] * len(seeds), max_new_tokens=MAX_NEW, seeds=seeds
  )
  params = base.Params(verifier, (), batch.sampling)
  state = loop.start(batch.prefix, batch.limits, (), MAX_NEW)
  return params, jax.tree.map(jnp.copy, state)  # `run` takes what it is given


def decode(params, state):
  return loop.run(
    params, state, MAX_NEW, drafter=drafter, num_nodes=4, eos_ids=EOS
  ).tokens


assert jax.local_device_count() == 3
parts = [start([i, i + 1]) for i in (0, 2, 4)]
params, states = jax.tree.map(lambda *x: jnp.stack(x), *parts)
found = np.asarray(jax.pmap(decode)(params, states)).reshape(6, -1)
alone = baseline.run(*start(range(6)), MAX_NEW, eos_ids=EOS).tokens
np.testing.assert_array_equal(found, alone)
assert len(np.unique(found, axis=0)) == 6
"""


# Kinds: streams on several devices that draw the same random numbers.
def test_devices_say_what_one_device_says():
  done = subprocess.run(
    [sys.executable, '-c', _SCRIPT],
    cwd=TESTS,
    env={
      **os.environ,
      'PYTHONPATH': str(TESTS.parent),
      'JAX_PLATFORMS': 'cpu',
      'XLA_FLAGS': os.environ['XLA_FLAGS']
      + ' --xla_force_host_platform_device_count=3',
    },
    capture_output=True,
    text=True,
  )
  assert done.returncode == 0, done.stderr
