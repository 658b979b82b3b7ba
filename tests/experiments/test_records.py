"""Tests of experiments.records: files that appear whole, and resuming."""

import json
import os

import jax.numpy as jnp
import numpy as np
import pytest

from experiments import records

FLAGS = {'seed': 3, 'temperature': 0.7, 'capacities': [1, 2], 'prompts': None}
ROW = {'capacity': 2, 'curve': 'run', 'D': 1.5, 'low': 1.4, 'high': 1.6}


def files_in(folder):
  return sorted(path.name for path in folder.rglob('*') if path.is_file())


def test_open_run_makes_and_finds_a_folder(tmp_path):
  folder = records.open_run(tmp_path / 'results', 'claim', 'first')
  assert folder == tmp_path / 'results' / 'claim' / 'first'
  assert records.open_run(tmp_path / 'results', 'claim', 'first') == folder
  assert files_in(tmp_path) == []
  assert len(records.open_run(tmp_path, 'claim').name) == len('20260101-120000')


@pytest.mark.parametrize('name', ['a/b', '..', '.', '/a', '-x', 'two words'])
def test_a_run_name_is_no_path(tmp_path, name):
  with pytest.raises(ValueError, match='run name of letters'):
    records.open_run(tmp_path, 'claim', name)


def test_a_folder_that_cannot_be_written(tmp_path):
  (tmp_path / 'file').touch()
  with pytest.raises(ValueError, match='can be written, got .*Not a directory'):
    records.open_run(tmp_path / 'file', 'claim', 'first')


def test_json_keeps_array_values(tmp_path):
  path = tmp_path / 'a.json'
  content = {'a': np.float32(0.5), 'b': jnp.arange(2), 'c': np.int64(7)}
  records.write_json(path, content)
  assert json.loads(path.read_text()) == {'a': 0.5, 'b': [0, 1], 'c': 7}


def test_a_failed_write_leaves_the_old_file_alone(tmp_path, monkeypatch):
  path = tmp_path / 'a.json'
  records.write_json(path, 1)
  with pytest.raises(ValueError, match='JSON compliant'):
    records.write_json(path, float('nan'))

  def fail(*_, **__):
    raise OSError('disk full')

  monkeypatch.setattr(np, 'savez_compressed', fail)
  with pytest.raises(OSError, match='disk full'):
    records.write_npz(tmp_path / 'b.npz', x=np.zeros(3))
  monkeypatch.setattr(os, 'replace', fail)
  with pytest.raises(OSError, match='disk full'):
    records.write_json(path, 2)
  assert files_in(tmp_path) == ['a.json']
  assert path.read_text() == '1\n'


def test_a_record_comes_back(tmp_path):
  record = records.new_record('claim', FLAGS)
  records.finish_record(tmp_path, record, [ROW], sentence='near')
  loaded = records.load_record(tmp_path / 'record.json', columns=list(ROW))
  assert loaded['table'] == [ROW]
  assert loaded['sentence'] == 'near'
  assert loaded['flags'] == FLAGS
  assert loaded['seed'] == 3
  assert set(loaded['versions']) == {
    'specjax',
    'jax',
    'jaxlib',
    'flax',
    'numpy',
  }
  assert loaded['device']['count'] >= 1
  assert loaded['started'] <= loaded['finished']


@pytest.mark.parametrize(
  'change, match',
  [
    ({'schema': 2}, 'expected schema 1 in .*, got 2'),
    ({'schema': None}, 'expected schema 1'),
    ({'table': None}, "expected 'table' of type list"),
    ({'versions': 'x'}, "expected 'versions' of type dict in .*, got 'x'"),
    ({'table': [{'curve': 'a'}]}, r"row 0 without \['D'\]"),
  ],
)
def test_a_bad_record_is_refused(tmp_path, change, match):
  path = tmp_path / 'record.json'
  records.finish_record(tmp_path, records.new_record('claim', FLAGS), [ROW])
  records.write_json(path, json.loads(path.read_text()) | change)
  with pytest.raises(ValueError, match=match):
    records.load_record(path, columns=['curve', 'D'])


def test_a_record_that_is_none(tmp_path):
  path = tmp_path / 'record.json'
  with pytest.raises(ValueError, match='No such file'):
    records.load_record(path)
  path.write_text('{"schema"')
  with pytest.raises(ValueError, match='expected JSON'):
    records.load_record(path)
  path.write_text('[]')
  with pytest.raises(ValueError, match='got no record'):
    records.load_record(path)


def test_a_killed_run_goes_on_where_it_stopped(tmp_path):
  calls = []

  def compute(name, killed=False):
    def now():
      calls.append(name)
      if killed:
        raise KeyboardInterrupt
      return {'x': jnp.arange(3), 'y': np.ones((2, 0), np.float32)}

    return now

  stages = records.Stages(tmp_path, FLAGS)
  stages.arrays('baseline', compute('baseline'))
  with pytest.raises(KeyboardInterrupt):
    stages.arrays('oracle', compute('oracle', killed=True))

  stages = records.Stages(tmp_path, FLAGS | {'capacities': (1, 2)})
  baseline = stages.arrays('baseline', compute('baseline'))
  stages.arrays('oracle', compute('oracle'))
  assert calls == ['baseline', 'oracle', 'oracle']
  np.testing.assert_array_equal(baseline['x'], [0, 1, 2])
  assert baseline['y'].shape == (2, 0)
  assert baseline['y'].dtype == np.float32
  assert files_in(tmp_path) == ['baseline.npz', 'flags.json', 'oracle.npz']


def test_files_are_named_by_what_they_hold(tmp_path):
  path, folder = tmp_path / 'tree.json', tmp_path / 'head'
  found = []
  for text in ('[[0]]', '[[1]]', '[[0]]'):
    path.write_text(text)
    found.append(records.digest_files(path))
  assert found[0] == found[2] != found[1]

  def of_folder(**contents):
    for old in folder.rglob('*.bin'):
      old.unlink()
    for name, content in contents.items():
      (folder / 'deep').mkdir(parents=True, exist_ok=True)
      (folder / 'deep' / f'{name}.bin').write_bytes(content)
    return records.digest_files(folder)

  one = of_folder(a=b'1', b=b'2')
  assert of_folder(b=b'2', a=b'1') == one
  others = [of_folder(a=b'2', b=b'1'), of_folder(a=b'12'), of_folder(a=b'1')]
  assert len({one, *others}) == 4
  with pytest.raises(OSError, match='nothing'):
    records.digest_files(tmp_path / 'nothing')


def test_it_is_said_how_far_a_run_came(tmp_path):
  assert records.standing(tmp_path) is None
  stages = records.Stages(tmp_path, FLAGS)
  assert records.standing(tmp_path) is None
  for name in 'abc':
    stages.arrays(name, lambda: {'x': np.arange(2)})
  assert records.standing(tmp_path) == (
    f'{tmp_path} goes on where it stopped, with 3 stages done.'
  )
  records.finish_record(tmp_path, records.new_record('claim', FLAGS), [ROW])
  assert records.standing(tmp_path).startswith(f'{tmp_path} is finished; ')


@pytest.mark.parametrize('left', [0, 10, 300])
def test_a_stage_that_the_disk_lost_is_computed_again(tmp_path, left):
  stages = records.Stages(tmp_path, FLAGS)
  compute = lambda: {'x': np.arange(100)}
  stages.arrays('plain', compute)
  path = tmp_path / 'stages' / 'plain.npz'
  path.write_bytes(path.read_bytes()[:left])
  again = records.Stages(tmp_path, FLAGS).arrays('plain', compute)
  np.testing.assert_array_equal(again['x'], np.arange(100))
  np.testing.assert_array_equal(np.load(path)['x'], np.arange(100))


@pytest.mark.parametrize(
  'flags, match',
  [
    (FLAGS | {'temperature': 1.0}, r'--temperature=0.7 \(now 1.0\)'),
    (FLAGS | {'starts': 4}, r'--starts=None \(now 4\)'),
    ({'seed': 3}, r'--capacities=\[1, 2\] \(now None\), --temperature=0.7'),
  ],
)
def test_other_flags_under_the_same_name_are_refused(tmp_path, flags, match):
  records.Stages(tmp_path, FLAGS)
  with pytest.raises(ValueError, match=match):
    records.Stages(tmp_path, flags)


def test_stages_of_another_version_are_refused(tmp_path):
  records.Stages(tmp_path, {'seed': 1})
  path = tmp_path / 'flags.json'
  flags = json.loads(path.read_text())
  for change, got in (({}, 'older ones'), ({'stages': 7}, '7')):
    del flags['stages']
    flags |= change
    path.write_text(json.dumps(flags))
    with pytest.raises(ValueError, match=f'stages of version .*, got {got};'):
      records.Stages(tmp_path, {'seed': 1})
    flags.setdefault('stages', 0)
