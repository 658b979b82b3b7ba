import json

import chex
import jax.numpy as jnp
import pytest
import reference_checkpoint

from specjax import tokenizer as tokenizer_lib
from specjax.checkpoint import configs, orbax_store, resolve, weights

CONFIG = reference_checkpoint.CASES['qwen3'] | {'vocab_size': 300}
CARD = {'trained_on': 'nothing', 'steps': 0}


@pytest.fixture
def params():
  named = reference_checkpoint.tensors(CONFIG)
  source = weights.Source('hf', frozenset(named), named.get)
  return weights.assemble(configs.from_hf(CONFIG), source, jnp.float32)


@pytest.fixture
def folder(tmp_path, params):
  path = tmp_path / 'runs' / 'small'
  orbax_store.save(path, params, tokenizer_lib.byte_level(), CARD)
  return path


def test_round_trip_is_exact(folder, params):
  got = resolve.load(str(folder), jnp.float32)
  chex.assert_trees_all_equal(got.params, params)
  assert got.params.config == params.config
  assert got.name == 'small'
  assert got.tokenizer.encode('né') == list('né'.encode())
  assert json.loads((folder / 'card.json').read_text()) == CARD


def test_values_are_cast_on_load(folder, params):
  got = orbax_store.load(folder, jnp.bfloat16)
  as_bfloat16 = params.weights['embed'].astype(jnp.bfloat16)
  chex.assert_trees_all_equal(got.weights['embed'], as_bfloat16)
  assert got.weights['layers']['q_norm'].dtype == jnp.bfloat16


def test_nothing_is_written_over(folder, params):
  with pytest.raises(ValueError, match='new folder, got .*small'):
    orbax_store.save(folder, params, tokenizer_lib.byte_level(), CARD)


def test_a_failed_save_leaves_nothing(tmp_path, params):
  with pytest.raises(TypeError):
    orbax_store.save(
      tmp_path / 'm', params, tokenizer_lib.byte_level(), {'card': object()}
    )
  assert not list(tmp_path.iterdir())


def test_parameters_that_do_not_fit_the_config_are_named(folder):
  deeper = CONFIG | {'num_hidden_layers': 3}
  (folder / 'config.json').write_text(json.dumps(deeper))
  with pytest.raises(ValueError, match='parameters of config.json in .*small'):
    orbax_store.load(folder, jnp.float32)
