"""Tests of experiments.evaluate_drafter: laws, tables, figure and stages."""

import functools
import json
import pathlib

import commands
import jax.numpy as jnp
import matplotlib.backends.backend_agg
import numpy as np
import pytest
import reference_checkpoint
import reference_decode
import reference_eagle

from experiments import curves, drafters, evaluate_drafter, measure, records
from experiments.evaluation import figure as figure_lib
from experiments.evaluation import laws as laws_lib
from experiments.evaluation import report, tables
from specjax import sampling as sampling_lib
from specjax.checkpoint import eagle as eagle_files
from specjax.checkpoint import packaged
from specjax.decode import acceptance, prefill, rows
from specjax.draft import eagle as eagle_lib
from specjax.draft import reader as reader_lib
from specjax.theory import entropy

SEED = 3
PROMPTS = [[4], [9, 3, 1], [1, 2, 3, 11, 0]]
TEMPERATURES = (0.0, 1.0, 0.7)
NUM_PLACES, TEXT_LENGTH = 6, 8
CONFIG = reference_checkpoint.CASES['tied'] | {'vocab_size': 258}
TEXTS = ['aaab aaab', 'one, two, three', 'x = x + 1; x = x + 1', 'Why?']


@pytest.fixture(scope='module')
def verifier():
  return reference_eagle.verifier()


@pytest.fixture(scope='module')
def models(verifier, tmp_path_factory):
  """Name -> a model that drafts, and its law after a text at temperature 1."""
  folder = tmp_path_factory.mktemp('head')
  named = reference_eagle.tensors()
  reference_checkpoint.write_folder(folder, reference_eagle.CONFIG, named)
  head = eagle_files.load(folder, verifier, jnp.float32)
  return {
    'eagle': (
      drafters.DraftModel(eagle_lib.reader(head.config, verifier.config), head),
      functools.partial(reference_eagle.log_law, named, verifier),
    ),
    'verifier': (
      drafters.DraftModel(reader_lib.verifier()),
      lambda text: reference_decode.logits_after(verifier, text)[-1],
    ),
  }


@pytest.fixture(scope='module')
def read(verifier):
  """The prompts in a batch that is filled up, and their plain texts."""
  sampling = sampling_lib.make(len(PROMPTS)).replace(
    temperature=jnp.asarray(TEMPERATURES)
  )
  [batch] = prefill.read_prompts(
    verifier,
    PROMPTS,
    max_new_tokens=TEXT_LENGTH,
    sampling=sampling,
    seeds=[5, 6, 7],
    batch_size=4,
    features=reference_eagle.FEATURES,
  )
  texts = measure.plain_texts(verifier, batch, (), TEXT_LENGTH, lambda _: None)
  # As if one had ended early.
  return batch, texts | {'num_tokens': np.array([8, 4, 8], np.int32)}


# Kinds: the law of the place before or behind, states in place of features, a
# memory that lacks the last token, filters or temperature of the other law.
@pytest.mark.parametrize('name', ['eagle', 'verifier'])
def test_laws_along_texts_are_those_of_slow_twins(verifier, models, read, name):
  model, law_fn = models[name]
  batch, texts = read
  found = laws_lib.along(verifier, model, batch, texts, NUM_PLACES)
  assert found['said'].shape[:2] == (len(PROMPTS), NUM_PLACES)
  num_missed = 0
  for row, prompt in enumerate(PROMPTS):
    temperature = TEMPERATURES[row]
    for place in range(min(NUM_PLACES, texts['num_tokens'][row])):
      output = texts['tokens'][row].tolist()
      text = [*prompt, *output[:place]]
      logits = reference_decode.logits_after(verifier, text)[-1]
      p = reference_decode.slow_law(logits, temperature, 0, 1.0, 0.0)
      said = np.asarray(law_fn(text), np.float64) / (temperature or 1.0)
      q = np.exp(said - np.max(said))
      q /= q.sum()
      got = {k: v[row, place] for k, v in found.items()}
      check(got, p, q, output[place])
      num_missed += got['missed'] > 0.01
  assert (num_missed > 0) == (name == 'eagle')
  if name == 'verifier':
    np.testing.assert_allclose(found['divergence'][2], 0, atol=1e-5)


def check(got, p, q, following):
  """Holds what is kept of a pair of laws against its definitions."""
  is_drafted = q > 0
  cost = np.where(is_drafted, -np.log(np.where(is_drafted, q, 1.0)), 0.0)
  both = is_drafted & (p > 0)
  expected = {
    'mean': p @ cost,
    'second': p @ cost**2,
    'drafter_entropy': q @ cost,
    'missed': p[~is_drafted].sum(),
    'divergence': np.sum(p[both] * np.log(p[both] / q[both])),
  }
  for key, value in expected.items():
    np.testing.assert_allclose(got[key], value, atol=2e-4, err_msg=key)
  best = np.argsort(-q, kind='stable')[: laws_lib.NUM_SAID]
  np.testing.assert_allclose(got['said'], q[best], atol=1e-5)
  # Tokens that are never drafted are in no order.
  if q[following] > 0:
    assert got['is_next'].sum() == (following in best)
    np.testing.assert_allclose(
      got['said'][got['is_next']], q[following], atol=1e-5
    )


def test_depths_are_those_of_the_decoder_s_counts():
  rng = np.random.default_rng(SEED)
  depth = rng.integers(0, 5, (6, 7))
  emitted = depth + 1
  emitted[:, -1] = rng.integers(1, 3, 6)  # Texts end inside accepted paths.
  is_step = np.arange(7) < np.array([7, 7, 3, 7, 1, 7])[:, None]
  run = {'depth': depth * is_step, 'emitted': emitted * is_step}
  steps = [
    rows.StepInfo(None, None, d, d + 1, d, e)
    for d, e in zip(run['depth'], run['emitted'], strict=True)
  ]
  counted = acceptance.by_depth(steps)
  found = tables.depths(run, SEED)
  accepted = [row['accepted'] for row in found]
  np.testing.assert_array_equal(accepted[:4], counted.accepted)
  np.testing.assert_array_equal(
    [row['tokens'] for row in found][:4], counted.reached
  )
  # Every token is counted at one depth.
  assert sum(row['tokens'] for row in found) == run['emitted'].sum()
  for row in found:
    assert row['value'] == pytest.approx(row['accepted'] / row['tokens'])


def test_the_oracle_s_depths_are_told_from_its_trees():
  lengths = np.array([[3, 1, 2, 5, 4]])
  run = {'place': np.array([[0, 3, 0, 0, 0]]), 'emitted': [[3, 2, 0, 0, 0]]}
  deep = tables.with_depth(run, lengths)['depth']
  np.testing.assert_array_equal(deep[:, :2], [[2, 4]])


def test_said_probabilities_are_counted_in_bins():
  rng = np.random.default_rng(SEED)
  said = rng.beta(0.3, 2.0, (5, 4, 3))
  said[0, 0] = (0.02, 0.0, 1.0)  # the ends of bins
  laws = {'said': said, 'is_next': rng.random(said.shape) < said}
  num_tokens = np.array([4, 4, 1, 2, 4])
  found = tables.reliability(laws, num_tokens, SEED)
  pairs = [
    (said[r, t, k], laws['is_next'][r, t, k])
    for r, count in enumerate(num_tokens)
    for t in range(count)
    for k in range(3)
  ]
  assert sum(row['count'] for row in found) == len(pairs)
  for row in found:
    here = [
      (q, hit)
      for q, hit in pairs
      if row['above'] < q <= row['up_to'] or q == row['above'] == 0
    ]
    assert row['count'] == len(here)
    mean_said, share = np.mean(here, axis=0)
    np.testing.assert_allclose(row['said'], mean_said, rtol=1e-6)
    np.testing.assert_allclose(row['value'], share, rtol=1e-6)
    assert row['low'] <= row['value'] <= row['high']


def some_laws(mean, missed=0.0):
  """Moments of five texts that are alike."""
  full = lambda value: np.full((5, 3), value)
  return {
    'mean': full(mean * (1 - missed)),
    'second': full(1.5 * mean**2),
    'drafter_entropy': full(mean),
    'missed': full(missed),
    'divergence': full(0.25),
  }


def test_the_predicted_slope_is_the_reciprocal_of_h_and_kl():
  capacities = [16, 64, 256]
  won = lambda n: 0.7 + 0.4 * np.log(n)
  runs = [
    {'num_tokens': np.full(5, won(n)), 'num_steps': np.ones(5)}
    for n in capacities
  ]
  slope = lambda *laws: tables.slopes(
    runs, some_laws(*laws), np.full(5, 3), capacities, SEED
  )
  found, curve = slope(2.0)
  value = {row['slope']: row['value'] for row in found}
  np.testing.assert_allclose(value['predicted'], 1 / 2.0, rtol=1e-5)
  np.testing.assert_allclose(value['measured'], 0.4, rtol=1e-5)
  np.testing.assert_allclose(value['difference'], -0.1, rtol=1e-4)
  steps = np.diff([row['D'] for row in curve])
  np.testing.assert_allclose(steps, np.log(4) / 2.0, rtol=1e-5)
  # What is missed ends the text for the drafter.
  missing = {row['slope']: row['value'] for row in slope(2.0, 0.2)[0]}
  assert missing['predicted'] < 0.5


def test_moments_are_means_over_tokens_and_the_verifier_is_perfect():
  log_p = jnp.log(
    jnp.asarray(np.random.default_rng(0).dirichlet(np.ones(4), 6))
  )
  laws = entropy.summarise(log_p.reshape(2, 3, 4), jnp.zeros((2, 3), int), 4)
  found = tables.moments(tables.perfect(laws), np.array([3, 1]), SEED)
  value = {row['moment']: row['value'] for row in found}
  used = np.asarray(laws.entropy)[[0, 0, 0, 1], [0, 1, 2, 0]]
  np.testing.assert_allclose(value['mean'], used.mean(), rtol=1e-5)
  np.testing.assert_allclose(value['drafter_entropy'], used.mean(), rtol=1e-5)
  assert value['divergence'] == value['missed'] == 0


def test_rates_are_of_all_prompts_and_of_each_kind():
  calls = np.array([1, 2, 4, 4, 2])
  run = {'num_tokens': np.full(5, 4), 'num_steps': calls}
  found = tables.rates({'x': [run]}, ['a', 'b', 'a', 'a', 'a'], [8], SEED)
  value = {row['kind']: row['D'] for row in found}
  np.testing.assert_allclose(
    [value[None], value['a'], value['b']], [20 / 13, 16 / 11, 2.0], rtol=1e-6
  )
  [alone] = records.select(found, kind='b')
  assert alone['low'] is alone['high'] is None


def test_the_drafter_is_the_head_that_comes_with_the_model(monkeypatch):
  find = evaluate_drafter.find_recipe
  monkeypatch.setattr(packaged, 'find', {'smol': pathlib.Path('x')}.get)
  assert find(None, None, 'smol') == ('eagle', 'best_paths', 'match')
  assert find(None, None, 'other') == ('bigram', 'best_first', 'match')
  assert find('suffix', None, 'other') == ('suffix', '', 'match')
  assert find('model', 'beam', 'smol') == ('model', 'beam', 'match')
  with pytest.raises(ValueError, match="expected a drafter of .*got 'gpt'"):
    find('gpt', None, 'smol')
  with pytest.raises(ValueError, match='expected no tree with lookup'):
    find('lookup', 'beam', 'smol')


@pytest.mark.parametrize('capacities', [[1, 4], [4]])
def test_a_slope_wants_two_capacities(capacities):
  with pytest.raises(ValueError, match='two or more --capacities above 1'):
    evaluate_drafter.check_capacities(capacities)


@pytest.fixture(scope='module')
def place(tmp_path_factory):
  """A folder with a model of ours and prompts."""
  folder = tmp_path_factory.mktemp('place')
  reference_checkpoint.save_model(folder / 'model', CONFIG)
  lines = [
    json.dumps({'id': text, 'prompt': text, 'kind': kind})
    for text, kind in zip(TEXTS, ['copy', 'chat', 'copy', 'chat'], strict=True)
  ]
  (folder / 'prompts.jsonl').write_text('\n'.join(lines))
  return folder


def run(place, **flags):
  """Runs the job on flags beside those of a small run."""
  flags = {
    'model': place / 'model',
    'prompts': place / 'prompts.jsonl',
    'results_dir': place / 'results',
    'run_name': 'a',
    # It shares the programs of the yardstick.
    'drafter': 'dulled',
    'dulled_kl': 0.1,
    'yardsticks': '0.3',
    # The laws of a small random model are flat without it.
    'top_k': 3,
    'capacities': '2,4',
    'max_new_tokens': 6,
    'max_length': 64,
    **flags,
  }
  return commands.run(evaluate_drafter.NAME, **flags)


@pytest.fixture(scope='module')
def finished(place):
  """A run's folder, and what it printed."""
  done = run(place)
  assert done.returncode == 0, done.stderr
  return place / 'results' / evaluate_drafter.NAME / 'a', done.stdout


def test_a_run_tells_everything_of_a_drafter_with_a_law(finished):
  folder, out = finished
  record = records.load_record(
    folder / 'record.json', ['capacity', 'curve', 'D', 'low', 'high']
  )
  own, dulled, oracle = 'dulled-best_paths', 'dulled_0.3', 'oracle_run'
  assert record['drafter'] == own and record['has_law']
  keys = [
    (r['temperature'], r['curve'], r['kind'], r['capacity'])
    for r in record['table']
  ]
  assert sorted(keys, key=str) == sorted(
    [
      (temperature, name, kind, n)
      for temperature in (0.0, 1.0)
      for name in ('lookup', own, dulled, oracle)
      for kind in (None, 'copy', 'chat')
      for n in (2, 4)
    ],
    key=str,
  )
  curves_of = lambda name: {
    (row['temperature'], row['curve']) for row in record[name]
  }
  both = {(t, name) for t in (0.0, 1.0) for name in (own, dulled)}
  assert curves_of('reliability') == both
  # Of greedy texts the oracle knows all, and no formula tells how much.
  for name in ('moments', 'slopes', 'predictions'):
    assert curves_of(name) == both | {(1.0, oracle)}
  assert curves_of('depths') == {
    (t, name) for t in (0.0, 1.0) for name in ('lookup', own, oracle)
  }
  assert report.text(record, 1.0) in out
  assert 'has no law' not in out
  assert (folder / 'figure.png').exists() and (folder / 'figure.pdf').exists()


def test_the_tables_are_of_the_stages(finished):
  folder, _ = finished
  record = records.load_record(folder / 'record.json')
  name = 'dulled-best_paths'
  at = lambda table, **wanted: records.select(
    record[table], temperature=1.0, curve=name, **wanted
  )
  stages = folder / 'texts' / 'T=1' / 'stages'
  with np.load(stages / f'{name}-4-0.npz') as file:
    ratio = file['emitted'].sum() / file['num_steps'].sum()
    drafts = (np.minimum(file['depth'], file['emitted']) >= 1).sum()
  found = curves.find(at('table', kind=None), name, 4)
  np.testing.assert_allclose(found['D'], ratio)
  assert at('depths', depth=1)[0]['accepted'] == drafts > 0
  with np.load(stages / 'plain-0.npz') as file:
    lengths = np.minimum(file['num_tokens'], 6)
  with np.load(stages / f'{name}-laws-0.npz') as file:
    mean = file['divergence'][np.arange(6) < lengths[:, None]].mean()
  [row] = at('moments', moment='divergence')
  np.testing.assert_allclose(row['value'], mean, rtol=1e-5)


def test_a_run_goes_on_with_what_is_new(place, finished):
  folder, _ = finished
  before = {p: p.stat().st_mtime_ns for p in folder.rglob('*.npz')}
  done = run(place, drafter='bigram', temperatures='1')
  assert done.returncode == 0, done.stderr
  after = {p: p.stat().st_mtime_ns for p in folder.rglob('*.npz')}
  assert {p: after[p] for p in before} == before
  assert {p.stem for p in after.keys() - before.keys()} == {
    f'bigram-best_first-{n}-0' for n in (2, 4)
  }
  assert 'bigram-best_first is no model and has no law' in done.stdout
  record = records.load_record(folder / 'record.json')
  assert not record['has_law']
  assert {row['curve'] for row in record['slopes']} == {
    'dulled_0.3',
    'oracle_run',
  }
  figure = figure_lib.draw(record)
  matplotlib.backends.backend_agg.FigureCanvasAgg(figure).draw()
