"""Two records side by side: what is compared, and how sure it is."""

import json
import math

import commands
import numpy as np
import pytest

from experiments import compare, records
from experiments.comparison import differences, entries, shares

RECORD = {
  'schema': 1,
  'experiment': 'acceptance',
  'flags': {'seed': 0, 'temperature': 1.0},
  'seed': 0,
  'versions': {'jax': '1'},
  'device': {},
  'commit': 'one',
  'started': '',
  'finished': '',
}
TOKENS = np.array([12, 20, 9, 16])
STEPS = np.array([10, 10, 4, 10])


def row(d, low=None, high=None, **labels):
  return {'capacity': 4, 'curve': 'eagle', **labels, 'D': d} | (
    {} if low is None else {'low': low, 'high': high}
  )


def write_run(folder, table, num_tokens=TOKENS, prompts='same', **facts):
  """Writes a record, and stages of its run in two batches."""
  folder.mkdir()
  records.write_json(folder / 'record.json', RECORD | {'table': table} | facts)
  study = folder / 'texts' / 'T=1'
  study.mkdir(parents=True)
  stages = records.Stages(study, {'prompt_ids': prompts, 'max_new_tokens': 3})
  for batch, rows in enumerate([slice(0, 3), slice(3, 4)]):
    run = {'num_tokens': num_tokens[rows], 'num_steps': STEPS[rows]}
    stages.arrays(f'eagle-beam-0123456789abcdef-4-{batch}', lambda x=run: x)
    stages.arrays(f'plain-{batch}', lambda x=run: x)
  return folder


def key(section='table', quantity='D', **labels):
  return entries.key_of(section, labels, quantity)


def test_the_numbers_of_a_record_under_their_keys():
  found = entries.find(
    RECORD
    | {
      'table': [
        {'temperature': 0.0, **row(1.5, 1.4, 1.7), 'partings': 3, 'name': 'x'},
        {'temperature': 1.0, **row(None, 1.0, None)},
      ],
      'moments': {'mu': 2.0, 'mu2': {'value': 9, 'low': 8, 'high': 11}},
      'drifts': [{'setting': 'T=1', 'value': 0.1, 'low': 0.0, 'high': 0.2}],
      'nats_per_byte': [1.9, 1.8, 2.0],
      'num_open': [3, 1, 2],
      'doubling': {'value': 0.3, 'low': 0.2, 'high': 0.4},
      'speedup': 2,
      'best': 'eagle',
      'is_good': True,
      'checks': [row(0.1)],
    }
  )
  at = {'temperature': 0.0, 'curve': 'eagle', 'capacity': 4}
  assert found == {
    key(**at): (1.5, 1.4, 1.7),
    key(quantity='partings', **at): (3, None, None),
    key('moments', 'mu'): (2.0, None, None),
    key('moments', 'mu2'): (9, 8, 11),
    key('drifts', 'value', setting='T=1'): (0.1, 0.0, 0.2),
    key('nats_per_byte', 'value'): (1.9, 1.8, 2.0),
    key('doubling', 'value'): (0.3, 0.2, 0.4),
    key('speedup', 'value'): (2, None, None),
  }


def test_two_rows_of_one_key_are_refused():
  with pytest.raises(ValueError, match="two of D at {'curve': 'eagle', .* in"):
    entries.find(RECORD | {'table': [row(1.0), row(2.0)]})


def test_independent_intervals_add_up_as_squares():
  # Normal estimates: the variance of the difference is the sum of both.
  deviation = lambda mean, sigma: entries.Number(
    mean, mean - 1.96 * sigma, mean + 1.96 * sigma
  )
  change = differences.independent(deviation(2.0, 0.3), deviation(1.0, 0.4))
  np.testing.assert_allclose(change, (-1.0, -1.0 - 0.98, -1.0 + 0.98))
  # Each end has its own distances; exact values have none.
  skew = entries.Number(3.0, 2.9, 3.5)
  change = differences.independent(entries.Number(1.0, 1.0, 1.0), skew)
  np.testing.assert_allclose(change, (2.0, 1.9, 2.5))
  change = differences.independent(skew, entries.Number(1.0, 1.0, 1.0))
  np.testing.assert_allclose(change, (-2.0, -2.5, -1.9))
  change = differences.independent(skew, skew)
  assert math.isclose(change.high, -change.low)
  assert differences.independent(entries.Number(1.0), skew) == (2.0, None, None)


def test_paired_differences_know_that_prompts_are_shared():
  rng = np.random.default_rng(0)
  steps = np.full(40, 10)
  tokens = rng.integers(10, 60, 40)
  one = shares.Share('same', tokens, steps)
  change = differences.paired(one, one._replace(numerators=tokens + 5), 0)
  # Every prompt wins half a token a step: whichever are drawn, it is that.
  np.testing.assert_allclose(change, (0.5, 0.5, 0.5), rtol=1e-5)
  noisy = one._replace(numerators=tokens + rng.integers(0, 11, 40))
  change = differences.paired(one, noisy, 0)
  # Equal denominators: a mean of differences, with its standard error.
  each = (noisy.numerators - tokens) / 10
  error = 1.96 * each.std() / math.sqrt(40)
  np.testing.assert_allclose(change.value, each.mean(), rtol=1e-5)
  np.testing.assert_allclose(change.low, each.mean() - error, atol=0.03)
  np.testing.assert_allclose(change.high, each.mean() + error, atol=0.03)


def test_shares_are_found_in_stages(tmp_path):
  folder = write_run(tmp_path / 'a', [])
  [(found, share)] = shares.find(folder).items()
  assert found == key(temperature=1.0, curve='eagle-beam', capacity=4)
  assert share.prompts == 'same'
  np.testing.assert_array_equal(share.numerators, TOKENS)
  np.testing.assert_array_equal(share.denominators, STEPS)


def test_of_two_heads_under_one_name_neither_is_taken(tmp_path):
  folder = write_run(tmp_path / 'a', [])
  for path in (folder / 'texts' / 'T=1' / 'stages').glob('eagle*'):
    other = path.name.replace('0123456789abcdef', 'fedcba9876543210')
    path.with_name(other).write_bytes(path.read_bytes())
  assert shares.find(folder) == {}


def test_batches_are_joined_in_their_order(tmp_path):
  stages = records.Stages(tmp_path, {'prompt_ids': 'x', 'max_new_tokens': 9})
  for batch in range(12):
    run = {'num_tokens': np.array([batch]), 'num_steps': np.array([1])}
    stages.arrays(f'lookup-16-{batch}', lambda x=run: x)
  [(found, share)] = shares.find(tmp_path).items()
  assert found == key(curve='lookup', capacity=16)
  np.testing.assert_array_equal(share.numerators, np.arange(12))


@pytest.mark.parametrize('setting', [None, 'T=0.6,top_p=0.9'])
def test_moments_of_stages_are_pooled_over_tokens_of_runs(tmp_path, setting):
  study = tmp_path / 'texts' / setting if setting else tmp_path
  study.mkdir(parents=True, exist_ok=True)
  stages = records.Stages(study, {'prompt_ids': 'x', 'max_new_tokens': 3})
  rng = np.random.default_rng(0)
  laws = {'entropy': rng.random((2, 5)), 'second_moment': rng.random((2, 5))}
  plain = {'num_tokens': np.array([2, 5]), 'tokens': np.zeros((2, 5), int)}
  stages.arrays('laws-0', lambda: laws)
  stages.arrays('plain-0', lambda: plain)
  found = shares.find(tmp_path)
  for moment, name in (('mu', 'entropy'), ('mu2', 'second_moment')):
    where = key('moments', moment)
    if setting:
      labels = {'setting': setting, 'contexts': 'own', 'kind': None}
      where = key('moments', 'value', moment=moment, **labels)
    sums = [laws[name][0, :2].sum(), laws[name][1, :3].sum()]
    np.testing.assert_allclose(found[where].numerators, sums, rtol=1e-6)
    np.testing.assert_array_equal(found[where].denominators, [2, 3])


def test_a_number_without_an_interval_has_that_of_its_prompts():
  rng = np.random.default_rng(0)
  lengths = np.full(50, 8)
  one, other = (
    shares.Share(name, rng.normal(mean, 1.0, 50) * 8, lengths)
    for name, mean in (('monday', 2.0), ('tuesday', 3.0))
  )
  mu = key('moments', 'mu')
  means = [share.numerators.mean() / 8 for share in (one, other)]
  a, b = ({mu: entries.Number(mean)} for mean in means)
  found = differences.find(a, b, {mu: one}, {mu: other}, 0)[mu]
  assert not found.is_paired
  # Means of 50 texts: the standard error of each is known.
  errors = [share.numerators.std() / 8 / 50**0.5 for share in (one, other)]
  width = 1.96 * math.hypot(*errors)
  np.testing.assert_allclose(found.change.value, means[1] - means[0])
  np.testing.assert_allclose(
    [found.change.low, found.change.high],
    [found.change.value - width, found.change.value + width],
    atol=0.05,
  )
  np.testing.assert_allclose(
    found.a.high - means[0], 1.96 * errors[0], atol=0.05
  )
  # Nothing is made up where prompts are not known.
  assert differences.find(a, b, {mu: one}, {}, 0)[mu].change.low is None


def test_records_of_two_experiments_are_refused(tmp_path):
  a = RECORD | {'table': [row(1.0)]}
  with pytest.raises(
    ValueError, match='of one experiment, got acceptance in .* and plan in'
  ):
    compare.compare(a, a | {'experiment': 'plan'}, tmp_path, tmp_path, 0)


def test_records_without_a_common_number_are_refused(tmp_path):
  a, b = (RECORD | {'table': [row(1.0, curve=name)]} for name in 'ab')
  with pytest.raises(ValueError, match='have in common, got none'):
    compare.compare(a, b, tmp_path / 'a', tmp_path / 'b', 0)


def test_the_command_prints_and_writes(tmp_path):
  labels = {'temperature': 1.0}
  a = write_run(
    tmp_path / 'a',
    [row(1.676, 1.3, 2.0, curve='eagle-beam', **labels), row(1.0, 0.9, 1.1)],
    drifts=[{'setting': 'T=1', 'value': 3}],
  )
  b = write_run(
    tmp_path / 'b',
    [row(2.118, 1.7, 2.5, curve='eagle-beam', **labels), row(1.4, 1.2, 1.6)],
    num_tokens=TOKENS + np.array([5, 5, 0, 5]),
    drifts=[{'setting': 'T=1', 'value': 5}],
    commit='other',
    flags={'seed': 1, 'temperature': 1.0},
  )
  done = commands.run(
    'compare',
    str(a),
    str(b / 'record.json'),
    results_dir=tmp_path,
    run_name='c',
  )
  assert done.returncode == 0, done.stderr
  record = records.load_record(tmp_path / 'compare' / 'c' / 'record.json')
  assert record['of'] == 'acceptance'
  assert record['apart'] == {'--seed': [0, 1], 'commit': ['one', 'other']}
  first, second, third = record['table']
  assert first['is_paired']
  assert not second['is_paired']
  np.testing.assert_allclose(first['difference'], 15 / 34, rtol=1e-5)
  assert 0.2 < first['low'] < first['difference'] < first['high'] < 0.55
  np.testing.assert_allclose(
    [second['low'], second['difference'], second['high']],
    [0.4 - math.hypot(0.2, 0.1), 0.4, 0.4 + math.hypot(0.2, 0.1)],
  )
  assert (third['section'], third['difference'], third['low']) == (
    *('drifts', 2, None),
  )
  lines = done.stdout.splitlines()
  assert lines[0] == f'A is {a}/record.json, B is {b}/record.json.'
  assert lines[1:3] == ['--seed: 0 and 1', 'commit: one and other']
  [line] = [line for line in lines if 'eagle-beam' in line]
  assert line.split()[:3] == ['1.0', 'eagle-beam', '4']
  assert line.endswith(']*  paired')
  # Everything of a table starts in the column of its title.
  title = lines[lines.index(line) - 1]
  assert [title.index('A '), title.index('B ')] == [
    line.index('1.676'),
    line.index('2.118'),
  ]
  assert lines[-1].startswith('3 numbers in common, 2 of them with intervals')


@pytest.mark.parametrize(
  'arguments, error',
  [
    (['a'], "error: expected A B beside flags, got ['a']\n"),
    (['/no/a', '/no/b'], 'error: expected /no/a, got: No such file'),
  ],
)
def test_what_is_no_pair_of_records_is_an_error(arguments, error):
  done = commands.run('compare', *arguments)
  assert done.returncode == 2
  assert done.stderr.startswith(error)


def test_records_are_told_from_folders(tmp_path):
  path = tmp_path / 'record.json'
  path.write_text(json.dumps(RECORD))
  assert compare.find_record(str(tmp_path)) == path
  assert compare.find_record(str(path)) == path
