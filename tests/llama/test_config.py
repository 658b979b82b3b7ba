import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.llama import config as llama_config
from specjax.llama import model as llama_model

# Parameters of the released models, by their model cards and tensor lists.
NUM_PARAMETERS = {
  'llama-2-7b': 6738415616,
  'llama-2-13b': 13015864320,
  'llama-3.1-8b': 8030261248,
  'llama-3.3-70b': 70553706496,
  'deepseek-r1-distill-llama-8b': 8030261248,
  'smollm2-135m': 134515008,
  'qwen3-8b': 8190735360,
}


@pytest.mark.parametrize('name', llama_config.PRESETS)
def test_presets_have_as_many_parameters_as_the_released_models(name):
  config = llama_config.PRESETS[name]
  params = jax.eval_shape(
    lambda: llama_model.init_params(jax.random.key(0), config, jnp.bfloat16)
  )
  sizes = [np.prod(w.shape, dtype=int) for w in jax.tree.leaves(params)]
  assert sum(sizes) == NUM_PARAMETERS[name]


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    ({'num_kv_heads': 5}, 'multiple of num_kv_heads, got 32 and 5'),
    ({'head_dim': 15}, 'even head_dim, got 15'),
    ({'vocab_size': 0}, 'vocab_size of at least 1, got 0'),
    ({'num_layers': 2.0}, 'num_layers of at least 1, got 2.0'),
  ],
)
def test_impossible_sizes_are_named(change, message):
  with pytest.raises(ValueError, match=message):
    dataclasses.replace(llama_config.PRESETS['llama-2-7b'], **change)


@pytest.mark.parametrize(
  ('rope', 'message'),
  [
    ({'kind': 'yarn'}, 'got yarn'),
    ({'theta': -1.0}, 'theta -1.0'),
    ({'factor': 0.0}, 'factor 0.0'),
    (
      {'kind': 'llama3', 'low_freq_factor': 4.0},
      'low_freq_factor < high_freq_factor, got 4.0 and 4.0',
    ),
  ],
)
def test_impossible_rope_is_named(rope, message):
  with pytest.raises(ValueError, match=message):
    llama_config.RopeConfig(**rope)


def test_a_configuration_is_static_to_jit():
  config = llama_config.PRESETS['qwen3-8b']
  assert hash(config) == hash(dataclasses.replace(config))
