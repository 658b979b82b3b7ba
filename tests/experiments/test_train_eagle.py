"""Tests of experiments.train_eagle: its rows, its choices, and a whole run."""

import dataclasses
import json

import commands
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference_eagle

from experiments import records, train_eagle
from experiments.heads import report
from specjax import tokenizer
from specjax.checkpoint import eagle as eagle_files
from specjax.checkpoint import orbax_store, packaged
from specjax.llama import model as llama_model
from specjax.train import continuations

LENGTH = 32


def text(number, num_prompt, num_answer):
  """A conversation whose tokens are found in no other."""
  ids = np.arange(num_prompt + num_answer) % 8 + 8 * number % 248
  return continuations.Continuation(
    id=str(number),
    kind='chat',
    prompt='',
    prompt_ids=ids[:num_prompt].tolist(),
    answer_ids=ids[num_prompt:].tolist(),
    temperature=0.0,
    seed=number,
  )


TEXTS = [text(i, 2 + 5 * i % 7, 3 + 11 * i % 13) for i in range(48)]


def test_the_most_frequent_tokens_can_be_drafted():
  counts = np.array([3, 0, 7, 1, 7, 2])
  ids = train_eagle.most_frequent(counts, 3)
  assert ids.tolist() == [0, 2, 4]
  assert train_eagle.covered(counts, ids) == pytest.approx(17 / 20)
  with pytest.raises(ValueError, match='--draft_vocab of at most 6, got 7'):
    train_eagle.most_frequent(counts, 7)


def test_the_curve_has_a_line_for_each_depth_and_says_the_last():
  names = [f'{n}_{k}' for n in ('loss', 'accepted', 'agreed') for k in (1, 2)]
  table = [
    {'step': 10.0 * row, **dict.fromkeys(names, 0.25 * row)} for row in range(3)
  ]
  figure = report.draw({'table': table})
  for axes in figure.axes:
    assert [len(line.get_xdata()) for line in axes.lines] == [3, 3]
  assert report.sentence({'table': table}) == (
    'After 20 steps, on held-out texts, by depth of the draft: best tokens '
    'agree at 0.500, 0.500; a drawn token stands with 0.500, 0.500.'
  )


@pytest.fixture(scope='module')
def model(tmp_path_factory):
  folder = tmp_path_factory.mktemp('model') / 'small'
  config = dataclasses.replace(
    reference_eagle.verifier().config, vocab_size=258
  )
  params = llama_model.init_params(jax.random.key(0), config, jnp.float32)
  orbax_store.save(folder, params, tokenizer.byte_level(), {})
  (folder / 'texts').mkdir()
  continuations.write(continuations.shard_path(folder / 'texts', 0), TEXTS * 2)
  return folder


def run(model, results):
  return commands.run(
    train_eagle.NAME,
    *('--unroll=1', '--unroll=0.5'),
    model=model,
    self_data=model / 'texts',
    results_dir=results,
    run_name='a',
    length=LENGTH,
    draft_vocab=200,
    num_steps=30,
    rows=2,
    warmup_steps=5,
    learning_rate=0.01,
    eval_every=15,
  )


def test_a_run_leaves_a_head_that_learnt_and_can_be_loaded(model, tmp_path):
  done = run(model, tmp_path)
  assert done.returncode == 0, done.stderr
  folder = tmp_path / 'train_eagle' / 'a'
  table = records.load_record(folder / 'record.json')['table']
  assert [row['step'] for row in table] == [0, 15, 30]
  assert table[-1]['loss'] < table[0]['loss']
  card = packaged.card(folder / 'head')
  assert card['held_out'] == table[-1]
  assert card['steps'] == 30 and card['coverage']['held_out'] > 0.5
  verifier = orbax_store.load(model, jnp.float32)
  head = eagle_files.load(folder / 'head', verifier, jnp.float32)
  assert head.weights['head'].shape == (200, reference_eagle.WIDTH)
  assert (folder / 'figure.png').exists()
  # Started again it finds all done and changes nothing.
  lessons = [*(folder / 'lessons').rglob('*.npy')]
  before = [path.stat().st_mtime_ns for path in lessons]
  assert len(lessons) > 2
  assert run(model, tmp_path).returncode == 0
  assert [path.stat().st_mtime_ns for path in lessons] == before
  assert json.loads((folder / 'head' / 'card.json').read_text()) == card
