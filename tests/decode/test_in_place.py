"""A loop writes into the cache that it was given, however large that is."""

import functools

import jax
import jax.numpy as jnp
import pytest

from specjax import sampling
from specjax.checkpoint import weights
from specjax.decode import adaptive, baseline, capacity, loop
from specjax.draft import base, lookup
from specjax.llama import config as llama_config
from specjax.llama import model as llama_model

NUM_SLOTS = 1024


def shapes_of_a_run():
  """Parameters and rows of a real model, without their values."""
  config = llama_config.PRESETS['smollm2-135m']
  verifier = weights.shapes(config, jnp.float32)

  def rows(verifier):
    ones = jnp.ones(1, jnp.int32)
    prefix = base.Prefix(
      tokens=jnp.zeros((1, NUM_SLOTS), jnp.int32),
      lengths=200 * ones,
      seeds=jnp.zeros(1, jnp.uint32),
      cache=llama_model.empty_cache(verifier, 1, NUM_SLOTS),
    )
    return loop.start(prefix, NUM_SLOTS * ones, (), max_steps=32)

  params = base.Params(verifier, (), sampling.make(1, 0.0))
  return params, jax.eval_shape(rows, verifier)


def lower_adaptive(params, state, max_steps):
  menu = capacity.make_menu((1, 4, 8), (1.0, 1.5, 2.0))
  params, state = adaptive.equip(params, state, menu)
  lower = functools.partial(adaptive.run.lower, eos_ids=())
  return lower(params, state, max_steps, drafter=lookup.make())


@pytest.mark.parametrize(
  'run',
  [
    functools.partial(baseline.run.lower, eos_ids=()),
    functools.partial(
      loop.run.lower, drafter=lookup.make(), num_nodes=8, eos_ids=()
    ),
    lower_adaptive,
  ],
  ids=['plain', 'by trees', 'adaptive'],
)
def test_a_loop_makes_no_copy_of_the_cache(run):
  params, state = shapes_of_a_run()
  cache = sum(x.size * 4 for x in (state.cache.keys, state.cache.values))
  memory = run(params, state, 9).compile().memory_analysis()
  assert memory.alias_size_in_bytes > cache
  # Less than a matrix of values and the keys of a layer.
  assert memory.temp_size_in_bytes < cache / 8
