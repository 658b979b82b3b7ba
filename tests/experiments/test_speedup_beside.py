"""Tests of experiments.speed.beside: the other library on the same weights."""

import sys
import types

import jax.numpy as jnp
import numpy as np
import pytest
import reference_checkpoint

from experiments.speed import beside
from specjax import sampling
from specjax.checkpoint import hf, resolve, weights
from specjax.decode import generate

CONFIG = reference_checkpoint.CASES['llama2']


def test_a_library_that_is_not_there_is_one_error(monkeypatch, tmp_path):
  monkeypatch.setitem(sys.modules, 'torch', None)
  with pytest.raises(ValueError, match='SPECJAX_EXTRAS=parity launch/run.sh'):
    beside.Library(str(tmp_path / 'a.gguf'), 'float32', None)


def test_a_folder_that_it_cannot_read_is_refused(tmp_path):
  with pytest.raises(ValueError, match='expected a .gguf file or a Hugging'):
    beside.Library(str(tmp_path), 'float32', None)


def test_it_emits_our_greedy_texts(tmp_path):
  pytest.importorskip('torch')
  pytest.importorskip('transformers')
  named = reference_checkpoint.tensors(CONFIG)
  reference_checkpoint.write_folder(tmp_path, CONFIG, named)
  params = weights.assemble(*hf.read(tmp_path), jnp.float32)
  prompts = [[1, 2, 3, 1, 2, 3, 1, 2], [5, 4]]
  options = {'eos_ids': (), 'sampling': sampling.make(2, 0.0)}
  ours = generate.generate(params, prompts, max_new_tokens=9, **options)
  texts = [result.tokens for result in ours]
  # The second text ends where it first repeats itself, or at its end.
  eos = texts[1][4]
  expected = [text[: (text + [eos]).index(eos) + 1][:9] for text in texts]
  ends = types.SimpleNamespace(eos_ids=(eos,))
  model = resolve.Checkpoint(params, ends, 'small')
  library = beside.Library(str(tmp_path), 'float32', model)
  for way in library.ways(prompts, 9):
    outputs = way.decode_fn(np.array([1, 0]), None)
    assert [output.tokens for output in outputs] == expected[::-1]
    assert way.is_whole
    assert len(expected[1]) > 2
    assert way.go_on_fn(2, 1, expected[1]) == expected[1][2:]
