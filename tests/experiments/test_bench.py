"""Tests of experiments.bench: start-ups, memory and larger caches."""

import itertools
import json

import commands
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference_measured as measured

from experiments import bench, figures, records
from experiments.footprint import memory, report, startup, tables
from specjax.checkpoint import resolve
from specjax.decode import latency


@pytest.fixture
def prompt_file(tmp_path):
  path = tmp_path / 'prompts.jsonl'
  lines = [{'id': f'{n}', 'prompt': 'why so? ' * n} for n in (1, 2, 3)]
  path.write_text('\n'.join(map(json.dumps, lines)))
  return path


def test_a_small_run(tiny_folder, prompt_file, tmp_path):
  result = commands.run(
    bench.NAME,
    '--quick',
    model=tiny_folder,
    prompts=prompt_file,
    context=8,
    slots='16,32',
    repeats=6,
    results_dir=tmp_path,
    run_name='a',
  )
  assert result.returncode == 0, result.stderr
  folder = tmp_path / bench.NAME / 'a'
  record = records.load_record(folder / 'record.json')
  assert report.sentence(record) in result.stdout
  for start in tables.STARTS:
    *parts, total = records.select(record['table'], start=start)
    assert [row['part'] for row in parts] == list(startup.MARKS)
    assert all(row['seconds'] > 0 for row in parts)
    assert sum(r['seconds'] for r in parts) == pytest.approx(total['seconds'])
  [row] = record['memory']
  params = resolve.load(str(tiny_folder), jnp.float32, order='both').params
  leaves = jax.tree.leaves(params.weights)
  assert row['weights_bytes'] == sum(leaf.nbytes for leaf in leaves)
  # What numpy and jax are, and what a small model cannot take.
  assert 50e6 < row['imports_bytes'] < row['peak_bytes'] < 2e9
  assert [row['num_slots'] for row in record['steps']] == [16, 32]
  assert record['num_slots'] == 128
  assert (folder / 'figure.png').exists()


def test_marks_are_read_as_they_come():
  pieces = [
    *(b'I1130 common.py] main beg', b'ins\nI1130 the model is lo', b'aded\n'),
    *(b'\r         plain:   0%|    | 0/186', b'the prompts are read\n'),
    *(b'\r         plain:   0%|    | 0/186', b'\r   plain:   9%| | 16/186'),
    b'\r         plain:  26%|##  | 48/186',
  ]
  clock = itertools.count(1)
  seen = []

  def come():
    for piece in pieces:
      seen.append(piece)
      yield piece

  found = startup.read_marks(come(), lambda: (next(clock), len(seen))[1])
  assert found == {'imports': 2, 'model': 3, 'prompts': 5, 'first_tokens': 7}


def test_an_experiment_that_ends_before_is_told():
  with pytest.raises(ValueError, match='got imports and (?s:.)*no such') as e:
    startup.read_marks([b'main begins\n', b'error: no such model'], float)
  assert 'first_tokens' in str(e.value)


def test_a_run_that_fails_is_told(monkeypatch, tmp_path):
  python = tmp_path / 'python'
  python.write_text('#!/bin/sh\necho error: no memory >&2; exit 1')
  python.chmod(0o755)
  monkeypatch.setattr(memory.sys, 'executable', str(python))
  with pytest.raises(ValueError, match="'order': 'both'}, got error: no mem"):
    memory.measure({'order': 'both'})


def test_the_peak_never_falls():
  held = np.ones(2**25)  # 256 MB.
  during = memory.peak()
  del held
  # The system counts in the processes of each core, and sums up now and then.
  assert memory.peak() > during - 2**22
  assert during > 2**28


def test_rows_of_starts_are_medians_of_parts():
  samples = [
    {start: factor * np.array([1.0, 3, 6, 10]) for start in tables.STARTS}
    for factor in (1, 2, 4)
  ]
  rows = tables.start_rows(samples)
  found = [row['seconds'] for row in records.select(rows, start='warm')]
  assert found == [2, 4, 6, 8, 20]
  expected = {'seconds': 4, 'low': 2, 'high': 8}
  assert rows[1] == {'start': 'cold', 'part': 'model', **expected}


def test_steps_are_compared_within_rounds():
  points = [(1, 16), (1, 64), (8, 16), (8, 64)]
  drift = np.linspace(1, 3, 9)[:, None]  # The machine slows down.
  samples = drift * np.array([1.0, 1.1, 2.0, 2.6])
  rows = tables.step_rows('values', 'both', points, samples)
  ratios = [
    [row[name] for name in ('ratio', 'ratio_low', 'ratio_high')] for row in rows
  ]
  expected = np.array([[1], [1.1], [1], [1.3]])
  np.testing.assert_allclose(ratios, np.broadcast_to(expected, (4, 3)))
  np.testing.assert_allclose(
    [row['seconds'] for row in rows], latency.summarise(samples).median
  )


def hand_made():
  """A record of round numbers."""
  starts = tables.start_rows(
    [{'cold': np.array([1, 3, 6, 20.0]), 'warm': np.array([1, 3, 5, 6.0])}]
  )
  taken = {'imports': 100e6, 'weights': 5e8, 'cache': 2e7, 'peak': 9e8}
  rows = [tables.memory_row('values', order, taken) for order in ('in_out',)]
  points = list(itertools.product([1, 8], [256, 512, 1024]))
  samples = np.ones((6, 1)) * np.array([1, 1.01, 1.05, 2, 2.1, 2.4]) / 100
  return measured.record(bench.NAME, starts) | {
    'device': {'kind': 'cpu', 'host_cores': 2},
    'memory': rows,
    'steps': tables.step_rows('values', 'both', points, samples),
    'num_slots': 256,
  }


def test_the_words():
  record = hand_made()
  record['flags'] |= {'context': 200, 'max_new_tokens': 32}
  assert report.sentence(record) == (
    'The first tokens come after 6.0 s, where 15 s are allowed, and after 20.0 '
    's where no program was compiled before. Beside imports, weights and cache '
    'a run takes 280 MB at most (values, in_out), where 800 are allowed. A '
    'prompt of 200 tokens with 32 to come is given a cache of 256 slots.'
  )
  assert 'warm   reading prompts         2.00 [2.00' in report.start_text(
    record
  )
  assert report.memory_text(record).split()[-1] == '280'
  assert '24.00 [ 24.00,  24.00]    1.200' in report.steps_text(record)


def test_the_figure_shows_what_is_allowed():
  figure = figures.FIGURES[bench.NAME](hand_made())
  starts, taken, steps = figure.axes
  tops = [bar.get_y() + bar.get_height() for bar in starts.patches[-2:]]
  assert tops == [20, 6]
  [allowed] = taken.collections[0].get_offsets()
  assert allowed[1] == pytest.approx(620 + 800)
  np.testing.assert_allclose(
    steps.containers[1].lines[0].get_ydata(), [1, 1.05, 1.2]
  )


@pytest.mark.parametrize(
  'context, new, slots', [(200, 32, 256), (200, 56, 256), (200, 57, 384)]
)
def test_the_bucket_is_the_least_that_holds_all(context, new, slots):
  assert bench.bucket(context, new, max_length=512) == slots
