"""Tests of experiments.speedup: a run on a small model, and its words."""

import json

import commands
import numpy as np
import pytest
import reference_measured as measured

from experiments import latency, records, speedup
from experiments.speed import entries, figure, ratios, report


@pytest.fixture(scope='module')
def model(tiny_folder):
  """A folder with a small model and prompts of two kinds, of one shape."""
  prompts = [
    {'id': f'{kind}-{i}', 'kind': kind, 'prompt': f'{i}{kind} ab ab'}
    for i in (1, 2)
    for kind in ('chat', 'long')
  ]
  lines = '\n'.join(map(json.dumps, prompts))
  (tiny_folder / 'prompts.jsonl').write_text(lines)
  return tiny_folder


def run(model, results, **flags):
  """Runs the job on flags beside those of a small run."""
  flags = {
    'model': model,
    'order': 'in_out',
    'prompts': model / 'prompts.jsonl',
    'results_dir': results,
    'run_name': 'a',
    'rounds': 2,
    'max_new_tokens': 6,
    'capacities': '1,4',
    'drafters': 'lookup',
    **flags,
  }
  return commands.run(speedup.NAME, **flags)


def write_pass_times(model, path):
  """Writes the record of a machine whose trees of 4 nodes cost half more."""
  rows = [
    {'capacity': n, 'batch': 1, 'context': c, 'seconds': s, 'low': s, 'high': s}
    for n, s in ((1, 0.010), (4, 0.015))
    for c in (32, 64)
  ]
  record = measured.record(latency.NAME, rows)
  record['flags'] = {
    'model': str(model),
    'dtype': 'float32',
    'weights': 'values',
    'order': 'in_out',
    'temperature': 0.0,
    'seed': 0,
  }
  record['visits'] = [
    {'capacity': n, 'batch': 1, 'seconds': 0.001} for n in (1, 4)
  ]
  records.write_json(path, record)


def test_a_run_is_timed_checked_and_goes_on(model, tmp_path):
  pass_times = tmp_path / 'latency.json'
  write_pass_times(model, pass_times)
  result = run(model, tmp_path, latency=pass_times)
  assert result.returncode == 0, result.stderr
  folder = tmp_path / speedup.NAME / 'a'
  record = records.load_record(folder / 'record.json')
  here = entries.at(record, 0.0)
  assert report.table_text(here) in result.stdout
  assert report.forecast_words(here) in result.stdout
  assert (folder / 'figure.png').exists()
  groups = ['chat', 'long', ratios.ALL]
  assert [row['kind'] for row in record['table']] == 3 * groups
  assert [row['name'] for row in record['table'][::3]] == [
    *('plain', 'lookup', 'lookup, adaptive')
  ]
  for row in record['table'][3:6]:
    predicted = row['D'] * 10 / (15 + row['D'] - 1)
    if row['kind'] != ratios.ALL:
      assert row['predicted'][0] == pytest.approx(predicted)
  assert [(row['name'], row['failures']) for row in record['checks']] == [
    *(('lookup', 0), ('lookup, adaptive', 0))
  ]
  check = record['checks'][0]
  with np.load(folder / 'stages' / 'T=0-0.npz') as file:
    samples = dict(file)
  # Of batch size 1, four prompts.
  assert samples['seconds'].shape == (3, 4) and samples['seconds'].min() > 0
  assert check['tokens'] == samples['num_tokens'][0].sum()

  # Goes on: rounds that are there stay, in one of which a text ends too soon.
  samples['num_tokens'][1, 2] -= 1
  records.write_npz(folder / 'stages' / 'T=0-0.npz', **samples)
  result = run(model, tmp_path, rounds=3)
  assert result.returncode == 1, result.stderr
  assert 'FAILURE: 1 texts part' in result.stdout
  with np.load(folder / 'stages' / 'T=0-0.npz') as file:
    assert (file['seconds'] == samples['seconds']).all()
  assert len(list(folder.glob('stages/*.npz'))) == 3


@pytest.mark.parametrize(
  ('flag', 'message'),
  [
    ({'capacities': 1}, 'expected --capacities above 1'),
    ({'temperatures': '0,1', 'latency': 'x'}, 'expected one of --temperatures'),
    ({'beside': 'transformers', 'batch_size': 2}, 'expected --batch_size=1'),
    ({'beside': 'moon'}, 'expected some of transformers, llama.cpp'),
  ],
)
def test_a_mistake_of_the_user_is_one_line(model, tmp_path, flag, message):
  result = run(model, tmp_path, **flag)
  assert result.returncode == 2
  assert message in result.stderr
  assert result.stderr.count('\n') == 1
  assert not list(tmp_path.iterdir())


def test_long_are_kinds_whose_prompts_are_long():
  lengths = [10, 200, 127, 300, 500, 30, 128]
  kinds = ['a', 'b', 'a', 'b', 'a', 'b', 'c']
  ids = [[1] * length for length in lengths]
  assert speedup.long_kinds(ids, kinds) == ['b', 'c']


def hand_made():
  """A record of two drafters on two kinds, with predictions for one."""
  groups = ['chat', 'sum', ratios.ALL, ratios.LONG]
  values = {
    ('plain', 1): [30.0, 20.0, 24.0, 20.0],
    ('lookup', 4): [0.9, 1.6, 1.2, 1.6],
    ('lookup', 8): [0.8, 1.8, 1.1, 1.8],
    ('eagle', 4): [1.1, 1.0, 1.05, 1.0],
    ('lookup, adaptive', 8): [0.99, 1.89, 1.3, 1.89],
  }
  predicted = {
    ('plain', 1): 1.0,
    ('lookup', 4): 1.26,
    ('lookup', 8): 1.32,
    ('eagle', 4): None,
    ('lookup, adaptive', 8): None,
  }
  spread = lambda x: [x, 0.9 * x, 1.1 * x]
  table = [
    {
      'temperature': 0.0,
      'name': name,
      'capacity': capacity,
      'is_adaptive': 'adaptive' in name,
      'kind': group,
      'rate': spread(x if name == 'plain' else 24 * x),
      'speedup': [1.0, 1.0, 1.0] if name == 'plain' else spread(x),
      'whole': spread(0.95 * x),
      'D': 1.5,
      'predicted': predicted[name, capacity]
      and spread(predicted[name, capacity]),
    }
    for (name, capacity), row in values.items()
    for group, x in zip(groups, row, strict=True)
  ]
  record = measured.record(speedup.NAME, table, device={'kind': 'cpu'})
  record['flags'] |= {'temperatures': [0.0], 'dtype': 'float32', 'rounds': 15}
  return record | {'long_kinds': ['sum'], 'beside': [], 'checks': checks()}


def checks(**changes):
  """A way whose texts are right but for two ties."""
  row = {'temperature': 0.0, 'name': 'lookup', 'capacity': 4, 'tokens': 100}
  row |= {'partings': 2, 'failures': 0, 'widest_gap': 2e-4, 'is_exact': True}
  return [row | changes]


def test_the_words():
  record = hand_made()
  assert report.sentence(record) == (
    'Over all 2 kinds of prompts lookup at N = 4 is fastest, '
    '1.20 [1.08, 1.32] times plain decoding; with long prompts (sum) lookup at '
    'N = 8 is fastest, 1.80 [1.62, 1.98] times plain decoding.'
  )
  slow = [
    row | {'speedup': [min(x, 1.0) for x in row['speedup']]}
    for row in record['table']
  ]
  assert report.sentence(record | {'table': slow}) == (
    'Over all 2 kinds of prompts nothing is faster than plain decoding; with '
    'long prompts (sum) nothing is faster than plain decoding.'
  )
  assert report.verdict(record) == (
    'All 100 tokens are those of plain decoding but at 2 ties, the widest of '
    '2.0e-04.'
  )
  failed = record | {'checks': checks(failures=1)}
  assert report.verdict(failed).startswith('FAILURE: 1 texts part')
  assert report.parting_words(record) == ''
  others = checks(name='b', partings=9, widest_gap=0.314, is_exact=False)
  beside = record | {'checks': checks() + others}
  assert report.verdict(beside) == report.verdict(record)
  assert report.parting_words(beside) == (
    'b, which rounds otherwise, emits another token at 9 of 100 places, where '
    'our scores lie up to 0.31 apart.'
  )
  # Predicted 1.26 for 1.20 and 1.32 for 1.10, which it prefers.
  assert report.forecast_words(record) == (
    'The planner is within 10% for 1 of 2 choices; it chooses lookup at N = 8, '
    'which reaches 91.7% of the fastest.'
  )
  # 0.99 of 1.1 and 1.89 of 1.8.
  assert report.adaptive_words(record) == (
    'lookup, adaptive: 1.30 [1.17, 1.43] times plain decoding over all kinds, '
    'for each kind at least 90.0% of the fastest fixed choice; the lowest end '
    'of its intervals is 0.891.'
  )
  head, plain, lookup, *_ = report.table_text(record).splitlines()
  assert head.split()[:4] == ['way', 'N', 'chat', 'sum']
  assert '30.0 [27.0, 33.0]' in plain
  assert lookup.split()[:5] == ['lookup', '4', '0.90', '[0.81,', '0.99]']
  assert lookup.endswith('1.14 [1.03, 1.25]')
  predicted = report.forecast_text(record).splitlines()
  assert len(predicted) == 1 + 2 * 2
  assert predicted[1].split()[-1] == '+5.0%'


def test_rows_beside_another_library_have_its_rate_and_our_ratio():
  record = hand_made()
  record['beside'] = [
    {
      'other': 'theirs',
      'name': row['name'],
      'capacity': row['capacity'],
      'kind': row['kind'],
      'rate': [12.0, 11.0, 13.0],
      'ratio': [value / 12 for value in row['rate']],
    }
    for row in record['table']
  ]
  lines = report.beside_text(record).splitlines()
  assert len(lines) == 1 + 1 + 5
  assert lines[1].count('12.0 [11.0, 13.0]') == 4
  assert '2.50 [2.25, 2.75]' in lines[2]


def test_the_figure_has_a_mark_a_way_and_a_line_at_1():
  [axes] = figure.draw(hand_made()).axes
  marks = {
    container.get_label(): container.lines[0] for container in axes.containers
  }
  looks = {(m.get_marker(), m.get_fillstyle()) for m in marks.values()}
  assert len(looks) == len(marks) == 4  # Told apart without colour.
  np.testing.assert_allclose(
    marks['lookup at N = 8'].get_ydata(), [0.8, 1.8, 1.1, 1.8]
  )
  assert any(list(line.get_ydata()) == [1, 1] for line in axes.lines)
