"""Heads that come with the package: small, whole, fit for their verifier."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference_checkpoint
import reference_eagle

from specjax.checkpoint import eagle as eagle_files
from specjax.checkpoint import packaged
from specjax.llama import config as llama_config
from specjax.llama import eagle
from specjax.llama import model as llama_model


def head(tmp_path, is_tied=True):
  named = reference_eagle.tensors()
  if is_tied:
    del named['lm_head.weight']
  config = reference_eagle.CONFIG | {'tie_word_embeddings': is_tied}
  reference_checkpoint.write_folder(tmp_path, config, named)
  return eagle_files.load(tmp_path, reference_eagle.verifier(), jnp.float32)


def test_a_head_is_kept_in_two_bytes_a_number(tmp_path):
  params = head(tmp_path)
  packaged.save(tmp_path / 'ours', params, {'steps': 7})
  card = packaged.card(tmp_path / 'ours')
  assert card['steps'] == 7 and len(card['sha256']) == 64
  verifier = reference_eagle.verifier()
  again = eagle_files.load(tmp_path / 'ours', verifier, jnp.float32)
  assert again.config == params.config
  # 8 bits of significand are kept; the output matrix is not, so not rounded.
  for name, values in params.weights.items():
    rtol = 0 if name == 'head' else 2**-8
    np.testing.assert_allclose(again.weights[name], values, rtol=rtol)
  trained = {n: x for n, x in params.weights.items() if n != 'head'}
  num_numbers = sum(x.size for x in jax.tree.leaves(trained))
  kept = (tmp_path / 'ours' / 'model.safetensors').stat().st_size
  assert 2 * num_numbers < kept < 2 * num_numbers + 4096


def test_tensors_that_are_not_those_of_the_card_are_told(tmp_path):
  packaged.save(tmp_path / 'ours', head(tmp_path), {})
  path = tmp_path / 'ours' / 'model.safetensors'
  content = bytearray(path.read_bytes())
  content[-1] ^= 1
  path.write_bytes(content)
  with pytest.raises(ValueError, match='expected the tensors of the card'):
    packaged.card(tmp_path / 'ours')


def test_a_head_with_a_matrix_of_its_own_is_refused(tmp_path):
  with pytest.raises(ValueError, match='got one with a matrix of its own'):
    packaged.save(tmp_path / 'ours', head(tmp_path, is_tied=False), {})
  assert not (tmp_path / 'ours').exists()


def test_heads_go_by_the_names_of_their_verifiers(tmp_path, monkeypatch):
  monkeypatch.setattr(packaged, '_HEADS', tmp_path)
  packaged.save(tmp_path / 'small', head(tmp_path), {})
  assert packaged.find('small') == tmp_path / 'small'
  assert packaged.find('big') is None


SHIPPED = packaged._HEADS / 'smollm2-135m'


def test_the_head_that_comes_with_the_package():
  assert packaged.find('smollm2-135m') == SHIPPED
  assert sum(path.stat().st_size for path in SHIPPED.iterdir()) <= 12e6
  assert {'command', 'steps', 'hours', 'held_out'} <= packaged.card(
    SHIPPED
  ).keys()
  config = llama_config.PRESETS['smollm2-135m']
  embed = jnp.zeros((config.vocab_size, config.width), jnp.float16)
  verifier = llama_model.Params({'embed': embed}, config)
  head = eagle_files.load(SHIPPED, verifier, jnp.float16)
  assert head.config.features == eagle.published_features(config.num_layers)
