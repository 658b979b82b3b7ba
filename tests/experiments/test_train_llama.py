"""A small Llama, trained by the command, decodes as any other model."""

import re

import commands
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import records, train_llama
from specjax.checkpoint import resolve
from specjax.decode import generate
from specjax.llama import model as llama_model
from specjax.train import log, sources

WORDS = ('one', 'two', 'three')


@pytest.fixture(scope='module')
def finished(tmp_path_factory):
  """The folder of a run on texts that are all alike, and what it printed."""
  place = tmp_path_factory.mktemp('train_llama')
  rng = np.random.default_rng(0)
  texts = [
    sources.Text(f't{i}', 'count', ' '.join(np.roll([*WORDS] * 3, -shift)))
    for i, shift in enumerate(rng.integers(0, 3, size=80))
  ]
  sources.of_texts('count', texts, 'train', place / 'data')
  [dataset] = (place / 'data' / 'texts').iterdir()
  done = commands.run(
    train_llama.NAME,
    dataset=f'texts/{dataset.name}',
    tfds_data_dir=place / 'data',
    results_dir=place / 'results',
    run_name='a',
    rows=4,
    length=48,
    num_steps=60,
    layers=1,
    width=32,
    ffn_width=32,
    learning_rate=0.03,
    warmup_steps=4,
    eval_every=20,
    eval_batches=1,
  )
  assert done.returncode == 0, done.stderr
  return place / 'results' / 'train_llama' / 'a', done.stdout


def test_what_it_learns_it_knows_of_texts_it_has_not_seen(finished):
  folder, out = finished
  record = records.load_record(folder / 'record.json', ['step', 'loss'])
  assert record['table'] == log.read_table(folder / 'evaluation.csv')
  assert [row['step'] for row in record['table']] == [0, 20, 40, 60]
  losses = [row['loss'] for row in record['table']]
  assert losses[0] > np.log(258) - 0.5
  # Only which word comes first is not sure.
  assert losses[-1] < 0.4
  value, low, high = record['nats_per_byte']
  np.testing.assert_allclose(value, losses[-1], rtol=1e-6)
  assert low <= value <= high
  said = re.search(r'(\d+) parameters, .* spend ([\d.]+) \[', out)
  assert int(said[1]) == record['parameters']
  assert float(said[2]) == pytest.approx(value, abs=0.005)
  assert f'The model is in {folder / "model"}.' in out


def test_the_model_is_one_that_decodes(finished):
  folder, _ = finished
  model = resolve.load(str(folder / 'model'), jnp.float32)
  sizes = jax.tree.map(jnp.size, model.params.weights)
  record = records.load_record(folder / 'record.json')
  assert sum(jax.tree.leaves(sizes)) == record['parameters']
  [found] = generate.generate(
    model.params,
    [model.tokenizer.encode('two three one ', add_special=True)],
    eos_ids=model.tokenizer.eos_ids,
    max_new_tokens=10,
    tokenizer=model.tokenizer,
  )
  assert found.text == 'two three '


@pytest.mark.parametrize('preset', train_llama.PRESETS)
def test_presets_have_the_size_of_their_names(preset):
  config = train_llama.make_config(train_llama.PRESETS[preset], 258, 512)
  llama = jax.eval_shape(
    lambda key: llama_model.init_params(key, config, jnp.float32),
    jax.random.key(0),
  )
  count = sum(leaf.size for leaf in jax.tree.leaves(llama))
  size = float(preset[:-1]) * {'k': 1e3, 'm': 1e6}[preset[-1]]
  assert count == pytest.approx(size, rel=0.2)


def test_a_width_that_heads_cannot_share_is_named():
  with pytest.raises(ValueError, match='of --heads, got 30 and 4'):
    train_llama.make_config((1, 30, 8, 4, 2), 258, 64)
