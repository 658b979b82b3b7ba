"""Prompts that the tests of measurements share."""

from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import pytest

from specjax import sampling as sampling_lib

# Temperature, top-k, top-p and min-p by row.
_SETTINGS = (
  (1.0, 0, 1.0, 0.0),
  (0.7, 3, 1.0, 0.0),
  (0.0, 0, 1.0, 0.0),
  (1.0, 0, 0.6, 0.0),
  (0.5, 0, 1.0, 0.0),
)


class Task(NamedTuple):
  """Five prompts for the model `tiny` of 23 tokens, and how to decode them."""

  prompts: list
  sampling: sampling_lib.Sampling
  settings: tuple
  eos_ids: tuple


@pytest.fixture(scope='session')
def task():
  rng = np.random.default_rng(0)
  prompts = [rng.integers(0, 23, size).tolist() for size in (1, 9, 4, 6, 3)]
  columns = zip(*_SETTINGS, strict=True)
  sampling = sampling_lib.Sampling(*(jnp.asarray(c) for c in columns))
  return Task(prompts, sampling, _SETTINGS, eos_ids=(4, 22))
