import json

import chex
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
import reference_checkpoint

from specjax.checkpoint import hf, weights

CONFIG = reference_checkpoint.CASES['llama2']
NAMED = reference_checkpoint.tensors(CONFIG)


def load(folder, dtype=jnp.float32):
  return weights.assemble(*hf.read(folder), dtype)


@pytest.fixture
def whole(tmp_path):
  reference_checkpoint.write_folder(tmp_path, CONFIG, NAMED)
  return tmp_path


@pytest.fixture
def sharded(tmp_path):
  folder = tmp_path / 'sharded'
  folder.mkdir()
  reference_checkpoint.write_folder(folder, CONFIG, NAMED, num_shards=3)
  return folder


def test_shards_are_the_whole(whole, sharded):
  chex.assert_trees_all_equal(load(whole), load(sharded))


def test_bfloat16_files_are_read(tmp_path):
  narrow = {n: t.astype(ml_dtypes.bfloat16) for n, t in NAMED.items()}
  reference_checkpoint.write_folder(tmp_path, CONFIG, narrow)
  got = load(tmp_path).weights['embed']
  stored = narrow['model.embed_tokens.weight'].astype(np.float32)
  np.testing.assert_array_equal(got, stored)


def test_a_missing_shard_is_named(sharded):
  (sharded / 'model-00002-of-00003.safetensors').unlink()
  with pytest.raises(ValueError, match='model-00002-of-00003.safetensors'):
    load(sharded)


def test_a_tensor_that_its_shard_lacks_is_named(sharded):
  names = list(NAMED)[1::3]
  reference_checkpoint.safetensors.numpy.save_file(
    {name: NAMED[name] for name in names[1:]},
    sharded / 'model-00002-of-00003.safetensors',
  )
  with pytest.raises(ValueError, match=names[0]):
    load(sharded)


def test_a_truncated_file_is_named(whole):
  path = whole / 'model.safetensors'
  path.write_bytes(path.read_bytes()[:-100])
  with pytest.raises(ValueError, match='safetensors in .*model.safetensors'):
    load(whole)


def test_what_a_folder_lacks_is_named(whole):
  (whole / 'model.safetensors').unlink()
  with pytest.raises(ValueError, match='model.safetensors.index.json'):
    load(whole)
  (whole / 'model.safetensors.index.json').write_text('{}')
  with pytest.raises(ValueError, match='weight_map'):
    load(whole)
  (whole / 'config.json').unlink()
  with pytest.raises(ValueError, match='config.json'):
    load(whole)


@pytest.mark.parametrize('content', ['{"model_type":', '[]'])
def test_a_broken_config_is_named(whole, content):
  (whole / 'config.json').write_text(content)
  with pytest.raises(ValueError, match='JSON.*config.json'):
    load(whole)


def test_the_config_decides_what_is_expected(whole):
  deeper = CONFIG | {'num_hidden_layers': 3}
  (whole / 'config.json').write_text(json.dumps(deeper))
  with pytest.raises(ValueError, match='missing.*model.layers.2'):
    load(whole)
