import dataclasses

import pytest

from specjax.checkpoint import configs
from specjax.llama import config as llama_config

SMALL = {
  'model_type': 'llama',
  'num_hidden_layers': 2,
  'hidden_size': 64,
  'intermediate_size': 96,
  'num_attention_heads': 4,
  'num_key_value_heads': 2,
  'vocab_size': 100,
  'rms_norm_eps': 1e-5,
}
LLAMA3 = {
  'rope_type': 'llama3',
  'factor': 8.0,
  'low_freq_factor': 1.0,
  'high_freq_factor': 4.0,
  'original_max_position_embeddings': 64,
}


@pytest.mark.parametrize('name', llama_config.PRESETS)
def test_hf_round_trip(name):
  preset = llama_config.PRESETS[name]
  assert configs.from_hf(configs.to_hf(preset)) == preset


def test_linear_scaling_round_trip():
  config = dataclasses.replace(
    llama_config.PRESETS['llama-2-7b'],
    rope=llama_config.RopeConfig(kind='linear', factor=4.0),
  )
  assert configs.from_hf(configs.to_hf(config)) == config


@pytest.mark.parametrize(
  'scaling', [None, {'type': 'linear', 'factor': 2.0}, LLAMA3]
)
def test_both_spellings_of_rope_are_read(scaling):
  old = SMALL | {'rope_theta': 5e5, 'rope_scaling': scaling}
  new = SMALL | {'rope_parameters': {'rope_theta': 5e5} | (scaling or {})}
  config = configs.from_hf(old)
  assert config == configs.from_hf(new)
  assert config.rope.theta == 5e5
  assert config.head_dim == 16


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    ({'model_type': 'mamba'}, 'mamba'),
    ({'attention_bias': True}, 'attention_bias'),
    ({'mlp_bias': True}, 'mlp_bias'),
    ({'use_sliding_window': True}, 'use_sliding_window'),
    ({'layer_types': ['sliding_attention']}, 'sliding_attention'),
    ({'hidden_act': 'gelu'}, 'gelu'),
    ({'quantization_config': {'bits': 4}}, 'quantization_config'),
    ({'partial_rotary_factor': 0.5}, 'partial_rotary_factor'),
    ({'rope_scaling': {'type': 'yarn', 'factor': 4.0}}, 'yarn'),
    ({'rope_scaling': {'type': 'linear'}}, 'factor'),
    ({'hidden_size': None}, 'hidden_size'),
  ],
)
def test_what_is_not_supported_is_named(change, message):
  with pytest.raises(ValueError, match=message):
    configs.from_hf(SMALL | change)
