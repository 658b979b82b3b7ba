"""Logits against `transformers`, live and from files that it wrote.

To write the files anew: python tests/checkpoint/test_parity.py
"""

import pathlib
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

sys.path.append(str(pathlib.Path(__file__).parents[1]))  # run as a script

import reference_checkpoint

from specjax.checkpoint import configs, hf, resolve, weights
from specjax.llama import cache as llama_cache
from specjax.llama import config as llama_config
from specjax.llama import model as llama_model

DATA = pathlib.Path(__file__).parents[1] / 'data'
SMALL = DATA / 'small_logits.npz'
SMOLLM2 = DATA / 'smollm2_logits.npz'
TEXT = 'The speed of light in vacuum is 299 792 458 m/s: nothing is faster.'
# Every seventh position and every 400th token keep the files small.
STRIDE, SMOLLM2_STRIDE = 7, 400


def our_logits(params, tokens):
  cache = llama_cache.init(params.config, 1, len(tokens), jnp.float32)

  @jax.jit
  def run(params, tokens, cache):
    lengths = jnp.array([tokens.shape[1]])
    hidden, _ = llama_model.prefill(params, tokens, lengths, cache)
    return llama_model.head(params, hidden)

  return np.asarray(run(params, jnp.asarray([tokens]), cache)[0])


def load_small(folder, case):
  config = reference_checkpoint.CASES[case]
  named = reference_checkpoint.tensors(config)
  reference_checkpoint.write_folder(folder, config, named)
  return weights.assemble(*hf.read(folder), jnp.float32)


def their_small_model(case):
  torch = pytest.importorskip('torch')
  config = reference_checkpoint.CASES[case]
  named = reference_checkpoint.tensors(config)
  tensors = {name: torch.from_numpy(tensor) for name, tensor in named.items()}
  return fill(their_model(config), tensors)


def their_smollm2_logits(tokens):
  """By the GGUF reader of `transformers`: its names, its order of rows."""
  reader = pytest.importorskip('transformers.modeling_gguf_pytorch_utils')
  preset = llama_config.PRESETS[resolve.EMBEDDED]
  read = reader.load_gguf_checkpoint(
    str(resolve.embedded_file()),
    return_tensors=True,
    model_to_load=their_model(configs.to_hf(preset)),
  )
  model = fill(their_model(read['config']), read['tensors'])
  return their_logits(model, tokens)


def their_model(config):
  """A model without weights: nothing is drawn that is replaced anyway."""
  torch = pytest.importorskip('torch')
  transformers = pytest.importorskip('transformers')
  config = transformers.AutoConfig.for_model(**config)
  with torch.device('meta'):
    model = transformers.AutoModelForCausalLM.from_config(config)
  rotary = model.model.rotary_emb  # its frequencies are no weights
  model.model.rotary_emb = type(rotary)(config)
  return model


def fill(model, tensors):
  model.load_state_dict(tensors, strict=False, assign=True)
  model.tie_weights()
  assert not [name for name, p in model.named_parameters() if p.is_meta]
  return model


def their_logits(model, tokens):
  torch = pytest.importorskip('torch')
  with torch.no_grad():
    return model(torch.tensor([list(map(int, tokens))])).logits[0].numpy()


@pytest.mark.parametrize('case', reference_checkpoint.CASES)
def test_small_logits_are_the_stored_ones(case, tmp_path):
  tokens = reference_checkpoint.tokens(reference_checkpoint.CASES[case])
  got = our_logits(load_small(tmp_path, case), tokens)
  np.testing.assert_allclose(got[::STRIDE], np.load(SMALL)[case], atol=1e-4)


def test_smollm2_logits_are_the_stored_ones(smollm2):
  stored = np.load(SMOLLM2)
  got = our_logits(smollm2.params, stored['tokens'])[:, ::SMOLLM2_STRIDE]
  np.testing.assert_allclose(got, stored['logits'], atol=2e-3)


@pytest.mark.parametrize('case', reference_checkpoint.CASES)
def test_small_logits_are_those_of_transformers(case, tmp_path):
  tokens = reference_checkpoint.tokens(reference_checkpoint.CASES[case])
  model = their_small_model(case)
  model.save_pretrained(tmp_path)
  params = weights.assemble(*hf.read(tmp_path), jnp.float32)
  expected, got = their_logits(model, tokens), our_logits(params, tokens)
  np.testing.assert_allclose(got, expected, rtol=0, atol=1e-4)


def test_smollm2_logits_are_those_of_transformers(smollm2):
  tokens = np.load(SMOLLM2)['tokens']
  expected = their_smollm2_logits(tokens)
  got = our_logits(smollm2.params, tokens)
  np.testing.assert_allclose(got, expected, rtol=0, atol=2e-3)


def write_files():
  small = {}
  for case, config in reference_checkpoint.CASES.items():
    tokens = reference_checkpoint.tokens(config)
    small[case] = their_logits(their_small_model(case), tokens)[::STRIDE]
  np.savez_compressed(SMALL, **small)
  tokenizer = resolve.load(resolve.EMBEDDED, jnp.float32).tokenizer
  tokens = np.array(tokenizer.encode(TEXT), np.int32)
  logits = their_smollm2_logits(tokens)[:, ::SMOLLM2_STRIDE]
  np.savez_compressed(SMOLLM2, tokens=tokens, logits=logits)


if __name__ == '__main__':
  write_files()
