"""EAGLE-3 heads as files: what is read, what is written, what is refused."""

import dataclasses
import importlib.util
import json

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference_checkpoint
import reference_eagle

from specjax.checkpoint import eagle as eagle_files
from specjax.checkpoint import hf
from specjax.llama import config as llama_config
from specjax.llama import eagle

CONFIG = reference_eagle.CONFIG
NAMED = reference_eagle.tensors()
VERIFIER = reference_eagle.verifier()


def write(folder, changes=(), fields=()):
  """A head in which some tensors are others, or None for missing."""
  named = {n: t for n, t in (NAMED | dict(changes)).items() if t is not None}
  reference_checkpoint.write_folder(folder, CONFIG | dict(fields), named)
  return folder


def load(folder, verifier=VERIFIER, dtype=jnp.float32):
  return eagle_files.load(folder, verifier, dtype)


def test_tensors_arrive_where_they_belong(tmp_path):
  params = load(write(tmp_path))
  assert params.config.features == (2, 3, 4)
  np.testing.assert_array_equal(params.token_ids, reference_eagle.TOKEN_IDS)
  for ours, theirs in {
    'fuse': NAMED['fc.weight'].T,
    'embed_norm': NAMED['midlayer.input_layernorm.weight'],
    'state_norm': NAMED['midlayer.hidden_norm.weight'],
    'down': NAMED['midlayer.mlp.down_proj.weight'].T,
    'head': NAMED['lm_head.weight'],
  }.items():
    np.testing.assert_array_equal(params.weights[ours], theirs)


@pytest.mark.parametrize('dtype', [jnp.float32, jnp.bfloat16])
def test_what_is_saved_is_loaded(tmp_path, dtype):
  config = dataclasses.replace(
    load(write(tmp_path)).config, features=(0, 4, 5, 6)
  )
  params = eagle.init_params(
    jax.random.key(0), config, reference_eagle.TOKEN_IDS, dtype
  )
  eagle_files.save(tmp_path / 'ours', params)
  again = load(tmp_path / 'ours', dtype=dtype)
  assert again.config == config
  chex.assert_trees_all_equal(again, params)
  with pytest.raises(ValueError, match='new folder, got .*ours, which exists'):
    eagle_files.save(tmp_path / 'ours', params)


def test_a_tied_head_speaks_with_rows_of_the_verifier(tmp_path):
  fields = {'tie_word_embeddings': True}
  params = load(write(tmp_path, {'lm_head.weight': None}, fields))
  rows = VERIFIER.weights['head'][reference_eagle.TOKEN_IDS]
  np.testing.assert_array_equal(params.weights['head'], rows)
  eagle_files.save(tmp_path / 'ours', params)
  tensors = hf.tensors(tmp_path / 'ours')
  assert tensors.names == NAMED.keys() - {'lm_head.weight'}
  chex.assert_trees_all_equal(load(tmp_path / 'ours'), params)
  # One that brings its own matrix keeps it.
  own = load(write(tmp_path, fields=fields))
  np.testing.assert_array_equal(own.weights['head'], NAMED['lm_head.weight'])
  assert not own.config.layer.tie_embeddings
  # One that is not tied needs its own.
  with pytest.raises(ValueError, match='missing: lm_head.weight'):
    load(write(tmp_path, {'lm_head.weight': None}))


def test_the_file_of_torch_is_read(tmp_path):
  torch = pytest.importorskip('torch')
  expected = load(write(tmp_path))
  (tmp_path / 'model.safetensors').unlink()
  stored = {name: torch.from_numpy(values) for name, values in NAMED.items()}
  path = tmp_path / 'pytorch_model.bin'
  torch.save(stored, path)
  chex.assert_trees_all_equal(load(tmp_path), expected)
  path.write_bytes(path.read_bytes()[:-100])
  with pytest.raises(ValueError, match='torch saved in .*pytorch_model.bin'):
    load(tmp_path)


def test_without_torch_its_file_is_refused(tmp_path, monkeypatch):
  (write(tmp_path) / 'model.safetensors').rename(tmp_path / 'pytorch_model.bin')
  monkeypatch.setattr(importlib.util, 'find_spec', lambda name: None)
  with pytest.raises(ValueError, match='torch to read pytorch_model.bin'):
    load(tmp_path)


@pytest.mark.parametrize(
  ('changes', 'message'),
  [
    ({'norm.weight': None}, 'that are missing: norm.weight'),
    ({'t2d': None}, 'that are missing: t2d'),
    ({'fc.bias': np.zeros(16)}, 'no other tensors, got fc.bias'),
    (
      {'fc.weight': np.zeros((16, 32))},
      r'fc.weight of shape \(16, 48\), got \(16, 32\)',
    ),
    (
      {'midlayer.self_attn.q_proj.weight': np.zeros((32, 16))},
      r'q_proj.weight of shape \(32, 32\), got \(32, 16\)',
    ),
    ({'d2t': np.zeros(12, int)}, r'd2t of shape \(11,\), got \(12,\)'),
    # Ids that were not made differences, and twice the same token.
    ({'d2t': reference_eagle.TOKEN_IDS}, 'd2t to name the 11 tokens of t2d'),
    ({'d2t': NAMED['d2t'] - (np.arange(11) == 1) * -3}, 'the 11 tokens of t2d'),
  ],
)
def test_a_wrong_tensor_is_named(tmp_path, changes, message):
  with pytest.raises(ValueError, match=f'expected .*{message}'):
    load(write(tmp_path, changes))


@pytest.mark.parametrize(
  ('fields', 'message'),
  [
    ({'draft_vocab_size': 24}, r'draft_vocab_size in \[1, 23\], got 24'),
    ({'num_hidden_layers': 2}, 'one layer .* got 2'),
    ({'vocab_size': 29}, 'the vocab_size of its verifier, 23, got 29'),
    ({'hidden_size': 32}, 'the width of its verifier, 16, got 32'),
    (
      {'eagle_aux_hidden_state_layer_ids': [2, 3, 7]},
      r'layers 0 to 6, got \(2, 3, 7\)',
    ),
    (
      {'eagle_aux_hidden_state_layer_ids': [3, 2]},
      r'rising layers, got \(3, 2\)',
    ),
    (
      {'eagle_config': {'eagle_aux_hidden_state_layer_ids': [1, 2, 3]}},
      'outside of eagle_config',
    ),
  ],
)
def test_a_wrong_configuration_is_refused(tmp_path, fields, message):
  with pytest.raises(ValueError, match=f'expected .*{message}'):
    load(write(tmp_path, fields=fields))


def test_what_a_folder_lacks_is_named(tmp_path):
  write(tmp_path)
  fields = {n: v for n, v in CONFIG.items() if n != 'draft_vocab_size'}
  (tmp_path / 'config.json').write_text(json.dumps(fields))
  with pytest.raises(ValueError, match='draft_vocab_size in .*config.json'):
    load(tmp_path)
  write(tmp_path)
  (tmp_path / 'model.safetensors').unlink()
  with pytest.raises(ValueError, match='model.safetensors'):
    load(tmp_path)


def test_a_verifier_too_shallow_for_the_layout_is_refused(tmp_path):
  shallow = dataclasses.replace(VERIFIER.config, num_layers=6)
  with pytest.raises(ValueError, match='at least 7 layers.* got 6'):
    load(write(tmp_path), VERIFIER.replace(config=shallow))


@pytest.mark.parametrize(
  ('name', 'features'),
  [('llama-3.1-8b', (2, 16, 29)), ('llama-3.3-70b', (2, 40, 77))],
)
def test_heads_of_the_published_verifiers(name, features):
  """Their sizes; no weights are made."""
  preset = llama_config.PRESETS[name]
  assert eagle.published_features(preset.num_layers) == features
  config = eagle.EagleConfig(
    dataclasses.replace(preset, num_layers=1), 32000, features
  )
  eagle.check_fit(config, preset)
  made = jax.eval_shape(
    lambda: eagle.init_params(
      jax.random.key(0), config, jnp.arange(32000), jnp.float16
    )
  )
  width, ffn, kv = preset.width, preset.ffn_width, 8 * 128
  assert {name: x.shape for name, x in made.weights.items()} == {
    'fuse': (3 * width, width),
    'embed_norm': (width,),
    'state_norm': (width,),
    'q': (2 * width, width),
    'k': (2 * width, kv),
    'v': (2 * width, kv),
    'o': (width, width),
    'ffn_norm': (width,),
    'gate': (width, ffn),
    'up': (width, ffn),
    'down': (ffn, width),
    'final_norm': (width,),
    'head': (32000, width),
  }
