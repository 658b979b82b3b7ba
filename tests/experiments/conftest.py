"""Prompts and a model that the tests of experiments share."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import sampling as sampling_lib
from specjax import tokenizer
from specjax.checkpoint import orbax_store
from specjax.llama import model as llama_model

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


@pytest.fixture(scope='module')
def tiny_folder(tmp_path_factory, tiny):
  """A folder with a small model of bytes, to which prompts may be added."""
  folder = tmp_path_factory.mktemp('model') / 'tiny'
  config = dataclasses.replace(tiny.config, vocab_size=258)
  params = llama_model.init_params(jax.random.key(0), config, jnp.float32)
  orbax_store.save(folder, params, tokenizer.byte_level(), {})
  return folder
