"""Tests of specjax.train.sources: what is built, found and missed."""

import collections
import json

import pytest

from specjax.train import continuations, sources, stdlib

TEXTS = [
  sources.Text(f'name-{i}', 'chat', f'text {i} \u00e9') for i in range(60)
]


@pytest.fixture(scope='module')
def data_dir(tmp_path_factory):
  return tmp_path_factory.mktemp('tfds')


def read(source):
  return [
    sources.Text(**{k: v.decode() for k, v in record.items()})
    for record in source
  ]


def test_texts_are_built_and_split_by_their_names(data_dir):
  parts = {
    split: read(sources.of_texts('own', TEXTS, split, data_dir))
    for split in ('train', 'validation', 'test', 'all')
  }
  assert sorted(parts['all']) == sorted(TEXTS)
  for split in ('train', 'validation', 'test'):
    expected = [t for t in TEXTS if sources.split_of(t.id) == split]
    assert expected and sorted(parts[split]) == sorted(expected)
  some = sources.of_texts('own', TEXTS, 'train[:50%]', data_dir)
  assert read(some) == parts['train'][: len(some)]


def test_texts_are_built_once_for_what_they_hold(data_dir):
  built = lambda: len(list((data_dir / 'texts').glob('once-*')))
  for _ in range(2):
    sources.of_texts('once', TEXTS, 'all', data_dir)
    assert built() == 1
  other = [*TEXTS[1:], TEXTS[0]._replace(text='another')]
  found = read(sources.of_texts('once', other, 'all', data_dir))
  assert built() == 2 and sorted(found) == sorted(other)


def test_a_split_without_texts(data_dir):
  [text] = [t for t in TEXTS if sources.split_of(t.id) == 'test'][:1]
  with pytest.raises(ValueError, match="'train'.*'test'"):
    sources.of_texts('few', [text], 'train', data_dir)


def test_splits_are_nine_tenths_and_two_twentieths():
  counts = collections.Counter(sources.split_of(str(i)) for i in range(4000))
  assert abs(counts['train'] - 3600) < 80  # Four standard deviations.
  assert abs(counts['validation'] - 200) < 60
  assert set(counts) == {'train', 'validation', 'test'}


@pytest.mark.parametrize('name', ['stdlib', 'docstrings'])
def test_the_library_is_a_dataset(data_dir, name):
  test = read(getattr(sources, name)('test', data_dir))
  modules = dict(stdlib.sources())
  assert 5 < len(test) < 0.1 * len(modules)
  for text in test:
    assert sources.split_of(text.id) == 'test'
    if name == 'stdlib':
      assert text.text == modules[text.id]


def test_a_prepared_dataset_is_found_by_its_name(data_dir):
  sources.of_texts('found', TEXTS, 'all', data_dir)
  [folder] = (data_dir / 'texts').glob('found-*')
  name = f'texts/{folder.name}'
  source = sources.catalogue(name, 'train', data_dir)
  assert len(source) == sum(sources.split_of(t.id) == 'train' for t in TEXTS)
  with pytest.raises(ValueError, match='nope'):
    sources.catalogue(name, 'nope', data_dir)
  [info] = folder.glob('*/dataset_info.json')
  content = json.loads(info.read_text()) | {'fileFormat': 'tfrecord'}
  info.write_text(json.dumps(content))
  with pytest.raises(ValueError, match='got files of the format tfrecord; pre'):
    sources.catalogue(name, 'train', data_dir)


def test_a_missing_dataset_says_what_to_run(tmp_path):
  with pytest.raises(ValueError, match='expected the dataset gsm8k') as error:
    sources.catalogue('gsm8k', 'train', tmp_path)
  _, command = str(error.value).split('prepare it with: ')
  start, program, end = command.split('"')
  assert (start, end) == ('python -c ', '')
  compile(program, '<command>', 'exec')
  assert f"tfds.builder('gsm8k', data_dir='{tmp_path}'" in program


def test_what_a_model_wrote_is_split_by_prompt(tmp_path):
  texts = [
    continuations.Continuation(f'chat-{i}', 'chat', 'x', [1], [2], 0.0, i)
    for i in range(60)
  ]
  continuations.write(continuations.shard_path(tmp_path, 0), texts)
  assert sources.written(tmp_path, 'all') == texts
  for split in ('train', 'validation', 'test'):
    expected = [t for t in texts if sources.split_of(t.id) == split]
    assert expected and sources.written(tmp_path, split) == expected
  with pytest.raises(ValueError, match="the split 'nope'"):
    sources.written(tmp_path, 'nope')
