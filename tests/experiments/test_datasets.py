"""Tests of experiments.datasets: every name leads to documents."""

import json

import numpy as np
import pytest

from experiments import datasets, prompts
from specjax import tokenizer
from specjax.train import continuations, data, sources

TOKENIZER = tokenizer.byte_level()


@pytest.fixture(scope='module')
def data_dir(tmp_path_factory):
  return str(tmp_path_factory.mktemp('tfds'))


def documents_of(name, split, **how):
  found = datasets.load(name, TOKENIZER, split, **how)
  return [found.document_fn(found.source[i]) for i in range(len(found.source))]


def texts_of(name, split, **how):
  return [
    TOKENIZER.decode(document.tokens)
    for document in documents_of(name, split, **how)
  ]


def test_our_own_prompts(data_dir):
  found = texts_of('prompts', 'all', data_dir=data_dir)
  assert sorted(found) == sorted(prompt.text for prompt in prompts.load())


def test_a_file_of_another_layout(tmp_path, data_dir):
  path = tmp_path / 'own.jsonl'
  entry = {'question_id': 8, 'category': 'writing', 'turns': ['Why?', 'Oh.']}
  path.write_text(json.dumps(entry))
  assert texts_of(str(path), 'all', data_dir=data_dir) == ['Why?']


def test_what_a_model_wrote(tmp_path):
  text = continuations.Continuation('a', 'chat', 'x', [1, 2], [3], 0.0, 7)
  continuations.write(continuations.shard_path(tmp_path, 0), [text])
  [document] = documents_of(str(tmp_path), 'all')
  assert document.tokens.tolist() == [1, 2, 3]
  assert document.is_target.tolist() == [False, False, True]


# Tokens past the end of a table of vectors would be read as its last.
def test_what_a_model_of_more_tokens_wrote(tmp_path):
  text = continuations.Continuation('a', 'chat', 'x', [1, 2], [258], 0.0, 7)
  continuations.write(continuations.shard_path(tmp_path, 0), [text])
  with pytest.raises(ValueError, match='tokens below 258, .*, got 258'):
    datasets.load(str(tmp_path), TOKENIZER, 'all')


def test_the_catalogue_with_named_fields(data_dir):
  texts = [sources.Text(f'{i}', 'two?', 'four') for i in range(9)]
  source = sources.Texts('catalogued', texts, data_dir)
  source.download_and_prepare()
  how = {'data_dir': data_dir, 'fields': ('kind', 'text')}
  name = f'texts/{source.builder_config.name}'
  documents = documents_of(name, 'train', **how)
  assert documents
  for document in documents:
    assert TOKENIZER.decode(document.tokens) == 'two?four'
    assert document.is_target.sum() == len('four') + 1  # And the end token.
  assert set(texts_of(name, 'all', data_dir=data_dir)) == {'four'}
  with pytest.raises(ValueError, match='one field or two'):
    documents_of(name, 'all', data_dir=data_dir, fields=('id', 'kind', 'text'))


def test_a_missing_dataset(data_dir):
  with pytest.raises(ValueError, match='the dataset gsm8k .* prepare it with'):
    datasets.load('gsm8k', TOKENIZER, 'train', data_dir=data_dir)


def test_the_library_fills_batches(data_dir):
  found = datasets.load('docstrings', TOKENIZER, 'test', data_dir=data_dir)
  batch = next(data.batches(*found, batch_size=2, length=256, seed=0))
  assert np.mean(batch.documents > 0) > 0.9
  texts = [record['text'] for record in found.source]
  for row, numbers in zip(batch.tokens, batch.documents, strict=True):
    piece = row[numbers == 1]
    written = bytes(piece[piece < 256].tolist())
    assert any(written in text for text in texts)
