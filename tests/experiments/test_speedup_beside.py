"""Tests of experiments.speed.beside: other libraries on the same weights."""

import contextlib
import math
import sys
import types
from unittest import mock

import jax.numpy as jnp
import numpy as np
import pytest
import reference_checkpoint
import reference_decode

from experiments import identity, speed, ties
from experiments.speed import beside, engines, rounds, tables
from specjax import sampling, tokenizer
from specjax.checkpoint import gguf_file, hf, resolve, weights
from specjax.decode import generate

CONFIG = reference_checkpoint.CASES['llama2']
PROMPTS = [[1, 2, 3, 1, 2, 3, 1, 2], [5, 4]]
NUM_NEW = 9


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  """A Hugging Face folder of a small model."""
  place = tmp_path_factory.mktemp('model')
  named = reference_checkpoint.tensors(CONFIG)
  reference_checkpoint.write_folder(place, CONFIG, named)
  return place


@pytest.fixture(scope='module')
def params(folder):
  """The same, as we load it."""
  return weights.assemble(*hf.read(folder), jnp.float32)


def model_of(params, *eos_ids):
  ends = types.SimpleNamespace(eos_ids=eos_ids)
  return resolve.Checkpoint(params, ends, 'small')


def ways(name, path, model, dtype='float32', skipped_layers=(1,)):
  return beside.ways(
    [name],
    str(path),
    dtype,
    model,
    PROMPTS,
    skipped_layers=skipped_layers,
    max_new_tokens=NUM_NEW,
    max_length=64,
  )


@pytest.mark.parametrize(
  ('name', 'package', 'extra'),
  [
    (beside.TRANSFORMERS, 'torch', 'parity'),
    (beside.LLAMA_CPP, 'llama_cpp', 'llamacpp'),
  ],
)
def test_a_library_that_is_not_there_is_one_error(name, package, extra, params):
  with (
    imports_anew({package: None}),
    pytest.raises(ValueError, match=f'SPECJAX_EXTRAS={extra} launch/run.sh'),
  ):
    ways(name, 'a.gguf', model_of(params, 0))


def test_what_it_cannot_read_is_refused(tmp_path, folder, params):
  model = model_of(params, 0)
  with (
    imports_anew({'llama_cpp': types.ModuleType('llama_cpp')}),
    pytest.raises(ValueError, match='expected a .gguf file with'),
  ):
    ways(beside.LLAMA_CPP, folder, model)
  pytest.importorskip('torch')
  pytest.importorskip('transformers')
  with pytest.raises(ValueError, match='expected a .gguf file or a Hugging'):
    ways(beside.TRANSFORMERS, tmp_path, model)
  with pytest.raises(ValueError, match='expected float32'):
    ways(beside.TRANSFORMERS, folder, model, dtype='bfloat16')


def test_transformers_emits_our_greedy_texts(folder, params):
  pytest.importorskip('torch')
  pytest.importorskip('transformers')
  options = {'eos_ids': (), 'sampling': sampling.make(2, 0.0)}
  ours = generate.generate(params, PROMPTS, max_new_tokens=NUM_NEW, **options)
  texts = [result.tokens for result in ours]
  # The second text ends where it first repeats itself, or at its end.
  eos = texts[1][4]
  expected = [text[: (text + [eos]).index(eos) + 1][:NUM_NEW] for text in texts]
  assert len(expected[1]) > 2
  found = ways(beside.TRANSFORMERS, folder, model_of(params, eos))
  assert [way.capacity for way in found] == [1, 11, 21]
  for way in found:
    outputs = way.decode_fn(np.array([1, 0]), None)
    assert [output.tokens for output in outputs] == expected[::-1]
    assert way.is_whole and way.is_exact
    assert way.go_on_fn(2, 1, expected[1]) == expected[1][2:]


def test_its_assistant_has_some_layers_and_no_weights_of_its_own(
  folder, params
):
  torch = pytest.importorskip('torch')
  transformers = pytest.importorskip('transformers')
  from experiments.speed import beside_transformers

  model = transformers.AutoModelForCausalLM.from_pretrained(folder).eval()
  fewer = beside_transformers.with_layers(model, params.config, [1])
  places = {tensor.data_ptr() for tensor in model.parameters()}
  assert {tensor.data_ptr() for tensor in fewer.parameters()} < places
  tokens = torch.tensor(PROMPTS[:1])
  del model.model.layers[0]
  model.model.layers[0].self_attn.layer_idx = 0  # Its place in the cache.
  with torch.no_grad():
    logits = [x(tokens).logits for x in (fewer, model)]
  np.testing.assert_array_equal(*logits)


def test_llama_cpp_reads_every_prompt_anew(params):
  calls = []

  class Llama:
    """Counts on from the last token."""

    def __init__(self, path, **options):
      calls.append((path, options['n_ctx'], options['n_threads']))

    def reset(self):
      calls.append('reset')

    def generate(self, tokens, temp):
      assert temp == 0
      last = tokens[-1]
      while True:
        last += 1
        calls.append(last)
        yield last

  fake = types.ModuleType('llama_cpp')
  fake.Llama = Llama
  with imports_anew({'llama_cpp': fake}):
    [way] = ways(beside.LLAMA_CPP, 'a.gguf', model_of(params, 7))
  [(path, num_slots, num_threads)] = calls
  assert (path, num_slots) == ('a.gguf', 8 + NUM_NEW) and num_threads > 0
  assert (way.name, way.is_whole, way.is_exact) == ('llama.cpp', True, False)
  del calls[:]
  first, second = way.decode_fn(np.array([1, 0]), None)
  assert first.tokens == second.tokens[2:] == [5, 6, 7]
  # An end ends it, and nothing is computed behind.
  assert calls == ['reset', 5, 6, 7, 'reset', 3, 4, 5, 6, 7]
  assert way.go_on_fn(1, 0, [8]) == list(range(9, 9 + NUM_NEW - 1))


def test_llama_cpp_emits_the_known_answer():
  pytest.importorskip('llama_cpp')
  from experiments.speed import beside_llamacpp

  file = resolve.embedded_file()
  words = tokenizer.from_gguf(gguf_file.read(file).metadata)
  model = resolve.Checkpoint(None, words, 'smollm2')
  text = 'Explain why the sky is blue in a few sentences.'
  prompt = words.chat([{'role': 'user', 'content': text}])
  [engine] = beside_llamacpp.load(file, model, num_slots=64)
  tokens = engine.generate_fn(prompt, 12)
  assert words.decode(tokens).startswith('The sky is blue in a few sentences')
  assert engine.generate_fn(prompt + tokens[:2], 10) == tokens[2:]


def test_what_rounds_otherwise_may_part_anywhere(params):
  plain = np.array([[7, 8, 9, 10], [3, 4, 5, 6]])
  other = np.where([[0, 1, 0, 0], [0, 0, 0, 0]], 50, plain)
  samples = {
    'tokens': np.stack([plain, other])[None],
    'num_tokens': np.full((1, 2, 2), 4),
  }

  def go_on(place, row, text):
    assert (place, row) == (2, 0)
    return [text[2], 51]

  way = rounds.Way('b', 1, None, go_on, is_exact=False)

  def check(tie):
    limits = {'seed': 0, 'max_new_tokens': 4, 'max_length': 64}
    comparison = identity.Comparison(params, (), PROMPTS, tie=tie, **limits)
    return tables.check_row(comparison, samples, [None, way], 1, 0.0)

  gaps = []
  for size, token in ((1, 50), (3, 51)):
    text = [*PROMPTS[0], *plain[0, :size]]
    logits = reference_decode.logits_after(params, text)[-1]
    gaps.append(logits.max() - min(logits[token], logits[plain[0, size]]))
  row = check(math.inf)
  assert (row['tokens'], row['partings'], row['failures']) == (8, 2, 0)
  assert row['widest_gap'] == pytest.approx(max(gaps), rel=1e-3)
  assert not row['is_exact']
  assert check(ties.TIE)['failures'] == 1


def test_a_text_is_no_longer_than_ours():
  engine = engines.Engine('a', 1, lambda prompt, room: [9] * room)
  way = engines.way(engine, PROMPTS, max_new_tokens=5, max_length=10)
  outputs = way.decode_fn(np.array([0, 1]), None)
  assert [len(output.tokens) for output in outputs] == [2, 5]
  assert way.go_on_fn(1, 0, [3, 3]) == [9]
  assert way.go_on_fn(1, 1, [3, 3]) == [9] * 4


@contextlib.contextmanager
def imports_anew(packages):
  """Has some packages replaced, by None where they are to be absent."""
  # Both are put back as they were.
  files = mock.patch.dict(vars(speed))
  with mock.patch.dict(sys.modules, packages), files:
    for name in list(sys.modules):
      if name.startswith(f'{beside.__name__}_'):
        del sys.modules[name]
    yield
