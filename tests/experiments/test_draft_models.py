"""Tests of experiments.draft_models: models from flags, and what is refused."""

import dataclasses
import re
import types

import jax.numpy as jnp
import numpy as np
import pytest
import reference_checkpoint
import reference_decode
import reference_eagle

from experiments import draft_models, drafters, records
from specjax import sampling as sampling_lib
from specjax import tokenizer as tokenizer_lib
from specjax.checkpoint import orbax_store, resolve
from specjax.decode import generate
from specjax.draft import dulled
from specjax.draft import eagle as eagle_lib
from specjax.draft import reader as reader_lib

EOS = (4, 22)
# More than are asked for their answers.
PROMPTS = [[1, 2, i] for i in range(12)]
BYTES = tokenizer_lib.byte_level()


def checkpoint(params, tokenizer=None):
  tokenizer = tokenizer or types.SimpleNamespace(eos_ids=EOS)
  return resolve.Checkpoint(params, tokenizer, 'tiny')


def load(name, verifier, **options):
  found = draft_models.load(
    ['lookup', name], verifier, PROMPTS, jnp.float32, **options
  )
  assert list(found) == [name]
  return found[name]


@pytest.fixture
def head(tmp_path):
  folder = tmp_path / 'head'
  folder.mkdir()
  reference_checkpoint.write_folder(
    folder, reference_eagle.CONFIG, reference_eagle.tensors()
  )
  return folder


@pytest.fixture
def llama(tmp_path, tiny_bytes):
  orbax_store.save(tmp_path / 'llama', tiny_bytes, BYTES, {})
  return tmp_path / 'llama'


def test_a_head_is_that_of_its_folder(head):
  verifier = reference_eagle.verifier()
  found = load('eagle', checkpoint(verifier), eagle=str(head))
  assert found.reader is eagle_lib.reader(found.params.config, verifier.config)
  np.testing.assert_array_equal(
    found.params.weights['final_norm'], reference_eagle.tensors()['norm.weight']
  )
  assert found.content == records.digest_files(head)


def test_a_llama_is_that_of_its_folder(llama, tiny_bytes):
  verifier = checkpoint(tiny_bytes, BYTES)
  found = load('model', verifier, draft_model=str(llama))
  config = tiny_bytes.config
  assert found.reader is reader_lib.small_llama(config, config)
  np.testing.assert_array_equal(
    found.params.weights['embed'], tiny_bytes.weights['embed']
  )
  assert found.content == records.digest_files(llama)


def test_layers_are_left_out(tiny):
  assert draft_models.kept_layers(30, [3, 0, 29]) == tuple(
    i for i in range(30) if i not in (0, 3, 29)
  )
  assert draft_models.kept_layers(4, None) == (0, 2, 3)
  assert draft_models.kept_layers(2, []) == (0, 1)
  assert load('layer_skip', checkpoint(tiny), skipped_layers=[1]) == (
    drafters.DraftModel(reader_lib.layer_skip(tiny.config, (0,)))
  )


# Kinds: laws past the end of an answer, of the place next to the right one.
def test_the_dulled_verifier_is_as_dull_as_is_asked(tiny, capsys):
  asked = PROMPTS[::2]
  answers = generate.generate(tiny, asked, eos_ids=EOS, max_new_tokens=8)
  rows = []
  for prompt, answer in zip(asked, answers, strict=True):
    logits = reference_decode.logits_after(tiny, [*prompt, *answer.tokens])
    rows += list(logits[len(prompt) - 1 : -1])
  assert len(rows) < 8 * len(asked)
  log_p = np.asarray(
    sampling_lib.log_law(jnp.asarray(rows), sampling_lib.make(len(rows)))
  )
  found = load('dulled', checkpoint(tiny), dulled_kl=0.3)
  expected = dulled.sigma_for(log_p, 0.3)
  np.testing.assert_allclose(found.params, expected, rtol=1e-3)
  assert found.reader is dulled.reader()
  said = capsys.readouterr().out
  assert f'of 0.3 nats over {len(rows)} laws of answers; with' in said
  reached, error = re.findall(r'(0\.\d{3})', said)[-2:]
  assert 0 < float(error) < 0.05
  assert abs(float(reached) - 0.3) < 4 * float(error)


@pytest.mark.parametrize(
  ('name', 'options', 'message'),
  [
    ('eagle', {}, 'expected --eagle=FOLDER .*, got none'),
    ('eagle', {'eagle': '/none'}, '/none/config.json'),
    ('model', {}, 'expected --draft_model=PATH .*, got none'),
    ('model', {'draft_model': '/none'}, "expected a model: .*got '/none'"),
    ('dulled', {'dulled_kl': -1.0}, 'divergence >= 0, got -1.0'),
    ('layer_skip', {'skipped_layers': [1, 2]}, r'layers in \[0, 2\) .*got 2'),
    ('layer_skip', {'skipped_layers': [0, 1]}, 'expected rising layers'),
  ],
)
def test_what_cannot_be_loaded_is_told_in_a_line(tiny, name, options, message):
  with pytest.raises(ValueError, match=message):
    load(name, checkpoint(tiny), **options)


def test_a_model_that_does_not_fit_is_refused(tiny, head, llama, tiny_bytes):
  wide = reference_eagle.verifier()
  wide = wide.replace(config=dataclasses.replace(wide.config, width=32))
  with pytest.raises(ValueError, match='head with the width .* 32, got 16'):
    load('eagle', checkpoint(wide), eagle=str(head))
  with pytest.raises(ValueError, match='of 23 tokens, got 258'):
    load('model', checkpoint(tiny), draft_model=str(llama))
  others = types.SimpleNamespace(
    vocab_size=258, decode=lambda ids, skip_special: f'<{ids[0]}>'
  )
  with pytest.raises(ValueError, match='tokens of its verifier, got others'):
    load('model', checkpoint(tiny_bytes, others), draft_model=str(llama))
