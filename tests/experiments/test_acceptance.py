"""Tests of experiments.acceptance: its curves, words, figure and stages."""

import json

import commands
import matplotlib.backends.backend_agg
import numpy as np
import pytest
import reference_checkpoint

from experiments import acceptance, acceptance_report, curves, records
from experiments import study as study_lib

CONFIG = reference_checkpoint.CASES['tied'] | {'vocab_size': 258}
TEXTS = ['aaab aaab', 'one, two, three', 'x = x + 1; x = x + 1', 'Why?']
MATCHED = ['lookup', 'bigram-best_first', 'dulled-chain', 'dulled-best_first']
DRAWN = ['dulled-chain-block']
BEHIND = ['oracle_run', 'run', 'run_context', 'run_priced']


@pytest.fixture(scope='module')
def place(tmp_path_factory):
  """A folder with a model of ours and prompts."""
  folder = tmp_path_factory.mktemp('place')
  reference_checkpoint.save_model(folder / 'model', CONFIG)
  lines = [json.dumps({'id': text, 'prompt': text}) for text in TEXTS]
  (folder / 'prompts.jsonl').write_text('\n'.join(lines))
  return folder


def run(place, **flags):
  """Runs the job on flags beside those of a small run."""
  flags = {
    'model': place / 'model',
    'prompts': place / 'prompts.jsonl',
    'prompts_per_kind': 4,
    'results_dir': place / 'results',
    'run_name': 'a',
    # The laws of a small random model are flat without it.
    'top_k': 3,
    'capacities': '1,4',
    'max_new_tokens': 6,
    'max_length': 64,
    'drafters': 'lookup,bigram,dulled',
    'trees': 'chain,best_first',
    'rules': 'match,block',
    'dulled_kl': 0.1,
    **flags,
  }
  return commands.run(acceptance.NAME, **flags)


@pytest.fixture(scope='module')
def finished(place):
  """A run without the chain of bigrams, which is measured later."""
  done = run(place)
  assert done.returncode == 0, done.stderr
  folder = place / 'results' / acceptance.NAME / 'a'
  return folder, done.stdout


def test_a_run_has_every_recipe_at_every_temperature(finished):
  folder, out = finished
  record = records.load_record(folder / 'record.json')
  found = [*MATCHED, 'bigram-chain', *DRAWN]
  assert sorted(record['recipes']) == sorted(found)
  keys = sorted(
    (r['temperature'], r['curve'], r['capacity']) for r in record['table']
  )
  # All rules are the same at temperature 0, and no limit says anything.
  matched = [*MATCHED, 'bigram-chain', 'oracle_run']
  assert keys == sorted(
    [(0.0, name, n) for name in matched for n in (1, 4)]
    + [(1.0, name, n) for name in [*found, *BEHIND] for n in (1, 4)]
  )
  for row in record['table']:
    assert 1 - 1e-4 <= row['low'] <= row['D'] <= row['high'] <= 4 + 1e-4
  oracle = curves.find(
    acceptance_report.at(record, 0.0), study_lib.ORACLE_RUN, 4
  )
  assert oracle['D'] > 2
  assert len(record['checks']) == 2 * 3 * len(matched)
  assert 'No bound lies below' in out
  for temperature in (0.0, 1.0):
    assert acceptance_report.sentence(record, temperature) in out
  assert (folder / 'figure.png').exists() and (folder / 'figure.pdf').exists()


def test_the_table_is_of_the_stages(finished):
  folder, _ = finished
  table = acceptance_report.at(records.load_record(folder / 'record.json'), 1.0)
  for name in ('lookup', 'dulled-chain-block'):
    path = folder / 'texts' / 'T=1' / 'stages' / f'{name}-4-0.npz'
    with np.load(path) as file:
      ratio = file['emitted'].sum() / file['num_steps'].sum()
    np.testing.assert_allclose(curves.find(table, name, 4)['D'], ratio)


def test_a_run_goes_on_with_what_is_new(place, finished):
  folder, _ = finished
  before = {p: p.stat().st_mtime_ns for p in folder.rglob('*.npz')}
  done = run(place, drafters='bigram', temperatures='1', rules='match')
  assert done.returncode == 0, done.stderr
  after = {p: p.stat().st_mtime_ns for p in folder.rglob('*.npz')}
  assert after == before
  record = records.load_record(folder / 'record.json')
  assert sorted(record['recipes']) == ['bigram-best_first', 'bigram-chain']
  done = run(place, dulled_kl=0.2)
  assert done.returncode == 2
  assert '--dulled_kl=0.1 (now 0.2)' in done.stderr


def row(temperature, curve, capacity, mean):
  return {
    'temperature': temperature,
    'curve': curve,
    'capacity': capacity,
    'D': mean,
    'low': mean - 0.1,
    'high': mean + 0.1,
  }


def recipe(drafter, tree='', rule='match'):
  return {'drafter': drafter, 'tree': tree, 'rule': rule}


@pytest.fixture
def record():
  """Lookup wins at 4, layer_skip with a beam at 16, dulled everywhere."""
  values = {
    'lookup': (1.5, 1.6),
    'layer_skip-beam': (1.4, 2.0),
    'layer_skip-chain': (1.3, 1.35),
    'layer_skip-chain-block': (1.31, 1.4),
    'dulled-beam': (1.9, 2.5),
    'oracle_run': (2.0, 3.0),
    'run_context': (2.2, 3.4),
    'run_priced': (2.1, 3.2),
  }
  rows = lambda temperature, names: [
    row(temperature, name, n, mean)
    for name in names
    for n, mean in zip((4, 16), values[name], strict=True)
  ]
  at_0 = [name for name in values if not name.startswith('run_')]
  at_0.remove('layer_skip-chain-block')
  return {
    'flags': {
      'model': 'some/model',
      'capacities': [4, 16],
      'temperatures': [0.0, 1.0],
    },
    'recipes': {
      'lookup': recipe('lookup'),
      'layer_skip-beam': recipe('layer_skip', 'beam'),
      'layer_skip-chain': recipe('layer_skip', 'chain'),
      'layer_skip-chain-block': recipe('layer_skip', 'chain', 'block'),
      'dulled-beam': recipe('dulled', 'beam'),
    },
    'table': [*rows(0.0, at_0), *rows(1.0, values)],
    'checks': [],
  }


def test_the_sentence_says_who_wins_and_how_far_he_gets(record):
  assert acceptance_report.sentence(record, 1.0) == (
    'Temperature 1: at N = 4 lookup wins most, 1.50 [1.40, 1.60] tokens an '
    'iteration, where the oracle wins 2.00 [1.90, 2.10]: 50% of what that wins '
    'over plain decoding; at N = 16 layer_skip-beam wins most, 2.00 [1.90, '
    '2.10] tokens an iteration, where the oracle wins 3.00 [2.90, 3.10]: 50% '
    'of what that wins over plain decoding.'
  )
  only = {'dulled-beam': record['recipes']['dulled-beam']}
  assert acceptance_report.sentence(record | {'recipes': only}, 1.0) == (
    'No drafter was run but those that are there to measure with.'
  )


def test_the_figure_has_the_best_above_and_the_choice_below(record):
  figure = acceptance_report.draw(record)
  matplotlib.backends.backend_agg.FigureCanvasAgg(figure).draw()
  labels = [
    [text.get_text() for text in axes.get_legend().get_texts()]
    for axes in figure.axes
  ]
  best = ['lookup', 'layer_skip-beam', 'dulled-beam']
  trees = ['layer_skip-beam', 'layer_skip-chain']
  assert labels == [
    best,
    [
      *best,
      "the oracle's own run",
      'limit of runs, from whole laws',
      'limit of runs, from best trees',
    ],
    trees,
    ['layer_skip-beam', 'layer_skip-chain-block', 'layer_skip-chain'],
  ]
  tops = [axes.get_ylim()[1] for axes in figure.axes]
  np.testing.assert_allclose(tops, [1.1 * x for x in (2.5, 3.4, 2.0, 2.0)])
  lines = {
    line.get_label(): (line.get_linestyle(), line.get_marker())
    for line in figure.axes[1].get_lines()
  }
  assert len(set(lines.values())) == len(lines)
