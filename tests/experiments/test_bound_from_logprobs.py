"""The limits of any engine: from logs of our own decoder, and by command."""

import gzip
import json
import math
import re

import commands
import jax.numpy as jnp
import numpy as np
import pytest
import reference_logprobs

from experiments import (
  bound_from_logprobs,
  curves,
  records,
  report,
)
from experiments.logprobs import bounds as logprob_bounds
from experiments.logprobs import files as logprob_files
from experiments.logprobs import report as logprob_report
from specjax.decode import generate
from specjax.theory import iid_bounds, resample, run_bounds, sampled_starts

CAPACITIES = [1, 2, 5, 9]
VOCAB, SEED, LIMIT = 23, 3, 24


@pytest.fixture(scope='module')
def generations(tiny):
  rng = np.random.default_rng(0)
  prompts = [rng.integers(0, VOCAB, size).tolist() for size in [3, 5, 9, 4] * 4]
  return generate.generate(
    tiny, prompts, eos_ids=(4, 22), max_new_tokens=LIMIT, batch_size=16
  )


def write_log(path, generations, name):
  samples = [
    reference_logprobs.Sample(
      g.log_probs,
      None,
      g.finish_reason
      if name == 'plain'
      else 'stop'
      if g.finish_reason == 'eos'
      else 'length',
    )
    for g in generations
  ]
  reference_logprobs.write(
    path,
    [
      reference_logprobs.FORMATS[name](str(i), [s])
      for i, s in enumerate(samples)
    ],
  )


def read(path, num_starts=1000):
  stream = bound_from_logprobs.Stream(
    CAPACITIES, 'e', VOCAB, num_starts, None, SEED
  )
  stream.read([str(path)])
  stream.check()
  return stream


@pytest.fixture(scope='module')
def streams(generations, tmp_path_factory):
  """What is kept of the log in each format."""
  folder = tmp_path_factory.mktemp('logs')
  for name in reference_logprobs.FORMATS:
    write_log(folder / name, generations, name)
  return {name: read(folder / name) for name in reference_logprobs.FORMATS}


@pytest.fixture(scope='module')
def made(streams):
  """The table and the facts of the log."""
  return streams['chat'].tabulate()


def padded(generations):
  lengths = np.array([len(g.tokens) for g in generations])
  surprisals = np.zeros((len(lengths), LIMIT))
  for row, generation in zip(surprisals, generations, strict=True):
    row[: len(generation.tokens)] = -generation.log_probs
  return surprisals, lengths


def check_rows(table, name, interval):
  for i, capacity in enumerate(CAPACITIES):
    row = curves.find(table, name, capacity)
    found = [row['D'], row['low'], row['high']]
    np.testing.assert_allclose(found, [x[i] for x in interval], rtol=1e-5)


def test_all_formats_say_the_same(streams, generations):
  assert {g.finish_reason for g in generations} == {'eos', 'length'}
  num_cut = sum(g.finish_reason == 'length' for g in generations)
  facts = {
    name: {**stream.facts(), 'first_lacking': None}
    for name, stream in streams.items()
  }
  for name, stream in streams.items():
    assert facts[name] == facts['plain']
    assert stream.facts()['first_lacking'].endswith(f'/{name}:1')
    assert stream.num_texts == len(generations)
    assert stream.num_cut == num_cut
    for name, array in streams['plain'].arrays().items():
      np.testing.assert_array_equal(stream.arrays()[name], array)


def test_every_curve_has_a_row_at_every_capacity(made):
  table, _ = made
  names = {'run', 'dual', 'counting', *curves.IID}
  keys = [(row['curve'], row['capacity']) for row in table]
  assert sorted(keys) == sorted((n, c) for n in names for c in CAPACITIES)


def test_run_is_that_of_the_arrays(made, generations):
  table, facts = made
  surprisals, lengths = padded(generations)
  sizes = np.array(CAPACITIES)
  calls = [
    run_bounds.run(surprisals, lengths, n, VOCAB, SEED)
    for n in (sizes, 2 * sizes)
  ]
  check_rows(table, 'run', run_bounds.rate(calls[0], lengths, sizes, SEED))
  limit = lambda calls, n, counts: jnp.minimum(
    lengths @ counts / (calls @ counts), n[:, None]
  )
  gain = resample.bootstrap(
    lambda counts: (
      limit(calls[1], 2 * sizes, counts) - limit(calls[0], sizes, counts)
    ),
    len(lengths),
    SEED,
  )
  check_rows(facts['doubling_run'], logprob_bounds.DOUBLING, gain)


def test_iid_bounds_are_those_of_the_moments(made, generations):
  table, facts = made
  s = np.concatenate([-g.log_probs for g in generations])
  mu, mu2 = s.mean(), (s**2).mean()
  for name in curves.IID:
    bound = getattr(iid_bounds, name)(mu, mu2, np.array(CAPACITIES))
    found = [curves.find(table, name, n)['D'] for n in CAPACITIES]
    np.testing.assert_allclose(found, bound, rtol=1e-5)
  values = [facts['moments'][name]['value'] for name in ('mu', 'mu2')]
  np.testing.assert_allclose(values, [mu, mu2], rtol=1e-5)
  assert facts['doubling_iid']['value'] == pytest.approx(math.log(2) / mu)
  for fact in (*facts['moments'].values(), facts['doubling_iid']):
    assert fact['low'] < fact['value'] < fact['high']


def test_start_bounds_are_those_of_all_starts(made, generations):
  table, facts = made
  starts = [
    (row, -g.log_probs[i:], g.finish_reason == 'eos')
    for row, g in enumerate(generations)
    for i in range(len(g.tokens))
  ]
  rows, surprisals, has_ended = zip(*starts, strict=True)
  walks = sampled_starts.of_surprisals(surprisals, has_ended)
  for i, n in enumerate(CAPACITIES):
    fitted = sampled_starts.cross_fitted(walks, np.array(rows), n, SEED)
    for name in ('dual', 'counting'):
      bound = getattr(sampled_starts, name)(walks, n, fitted)
      interval = resample.mean(bound.values, np.array(rows), SEED)
      row = curves.find(table, name, n)
      np.testing.assert_allclose(
        [row['D'], row['low'], row['high']], np.minimum(interval, n), rtol=1e-5
      )
    assert facts['num_open'][i] == int(
      sampled_starts.dual(walks, n, fitted).num_open
    )


def test_texts_of_one_prompt_are_one_row(tmp_path):
  lines = [
    {'prompt_id': f'p{i % 3}', 'logprobs': [-1.0, -0.5], 'finish_reason': 'eos'}
    for i in range(12)
  ]
  reference_logprobs.write(tmp_path / 'log', lines)
  stream = read(tmp_path / 'log')
  np.testing.assert_array_equal(stream.rows.num_tokens, [8, 8, 8])


def test_a_hundred_thousand_tokens_stream(tmp_path):
  # A fixed law, whose optimum is known: uniform on 8 tokens.
  path = tmp_path / 'log.gz'
  line = {'logprobs': [-math.log(8)] * 100, 'finish_reason': 'length'}
  with gzip.open(path, 'wt', compresslevel=1) as file:
    for i in range(1100):
      file.write(json.dumps({'prompt_id': i, **line}) + '\n')
  stream = read(path, num_starts=300)
  table, facts = stream.tabulate()
  found = stream.facts()
  assert found['num_tokens'] == 110_000
  assert found['num_texts'] == found['num_cut'] == 1100
  assert found['num_rows'] == 1024
  assert facts['moments']['mu']['value'] == pytest.approx(math.log(8), 1e-5)
  # Complete trees: 9 nodes win 2 tokens, and `dual` knows it.
  assert curves.find(table, 'dual', 9)['D'] == pytest.approx(2.0, abs=0.02)
  assert curves.find(table, 'run', 9)['D'] >= 2.0


def stream_of(tmp_path, lines, base='e'):
  reference_logprobs.write(tmp_path / 'log', lines)
  stream = bound_from_logprobs.Stream(CAPACITIES, base, VOCAB, 100, None, SEED)
  stream.read([str(tmp_path / 'log')])
  return stream


def chat_lines(temperature):
  rng = np.random.default_rng(0)
  return [
    reference_logprobs.chat(
      str(i), [reference_logprobs.draw(rng, 60, temperature)]
    )
    for i in range(40)
  ]


@pytest.mark.parametrize(
  'lines, base, reason',
  [
    (lambda: chat_lines(0.0), 'e', 'greedy text'),
    (lambda: chat_lines(0.6), 'e', 'got another'),
    (lambda: chat_lines(1.0), '2', 'values that fit base e'),
    (lambda: [{'prompt_id': i, 'logprobs': [0.0]} for i in 'ab'], 'e', 'got 0'),
    (lambda: [{'logprobs': [-1.0]}], 'e', '2 prompts or more, .* got 1:'),
    (
      lambda: ['nonsense'],
      'e',
      'got none and 1 bad lines; the first is .*log:1: ',
    ),
    (list, 'e', 'got none and 0 bad lines$'),
  ],
)
def test_logs_that_bound_nothing_are_refused(tmp_path, lines, base, reason):
  with pytest.raises(ValueError, match=reason):
    stream_of(tmp_path, lines(), base).check()


def test_cut_texts_count_their_worst_case(tmp_path):
  lines = lambda reason: [
    {'prompt_id': i, 'logprobs': [-0.1] * 6, 'finish_reason': reason}
    for i in range(20)
  ]
  streams = {}
  for reason in ('stop', 'length', None):
    path = tmp_path / str(reason)
    reference_logprobs.write(path, lines(reason))
    streams[reason] = read(path)
  cut, unknown = streams['length'].arrays(), streams[None].arrays()
  for name, array in cut.items():
    np.testing.assert_array_equal(array, unknown[name])
  tables, opens = {}, {}
  for reason in ('stop', 'length'):
    tables[reason], facts = streams[reason].tabulate()
    opens[reason] = facts['num_open'][-1]
  assert opens['stop'] == 0 < opens['length']
  assert streams['stop'].facts()['shortest_cut'] is None
  assert streams['length'].facts()['shortest_cut'] == 6
  at = lambda reason: curves.find(tables[reason], 'dual', 9)['D']
  # All text that there is could be drafted, 3.5 tokens in the mean; of cut
  # texts, more.
  assert at('stop') == pytest.approx(1 + 3.5, abs=0.1)
  assert at('length') > at('stop') + 1


def test_prompts_without_entropy_leave_finite_words(tmp_path):
  lines = [
    {'prompt_id': i, 'logprobs': [value] * 4, 'finish_reason': 'stop'}
    for i, value in enumerate([-0.5, 0.0])
  ]
  stream = stream_of(tmp_path, lines)
  table, facts = stream.tabulate()
  flags = {'capacities': CAPACITIES, 'log_base': 'e', 'input': 'log'}
  record = {'flags': flags, 'table': table, **facts, **stream.facts()}
  # A resample that drew the second prompt alone.
  assert facts['doubling_iid']['high'] is None
  assert ', inf]' in ' '.join(logprob_report.sentences(record))
  gain = curves.find(facts['doubling_run'], logprob_bounds.DOUBLING, 5)
  assert 0 <= gain['low'] <= gain['high'] <= 5
  logprob_report.draw(record)


def run_command(folder, *arguments, **flags):
  return commands.run(
    bound_from_logprobs.NAME,
    *arguments,
    results_dir=folder / 'results',
    run_name='run',
    capacities='1,4,16',
    **flags,
  )


def test_the_command_leaves_record_arrays_and_figure(tmp_path):
  rng = np.random.default_rng(1)
  samples = [reference_logprobs.draw(rng, 30) for _ in range(20)]
  samples[0] = samples[0]._replace(finish_reason='length')
  lines = [
    reference_logprobs.completion(str(i), [s]) for i, s in enumerate(samples)
  ]
  reference_logprobs.write(tmp_path / 'a.jsonl', lines[:10])
  reference_logprobs.write(tmp_path / 'b.jsonl', [*lines[10:], 'nonsense'])
  done = run_command(tmp_path, input=f'{tmp_path}/*.jsonl', seed=4)
  assert done.returncode == 0, done.stderr
  folder = tmp_path / 'results' / bound_from_logprobs.NAME / 'run'
  assert {path.name for path in folder.iterdir()} == {
    'record.json',
    'arrays.npz',
    'figure.png',
    'figure.pdf',
  }
  record = records.load_record(
    folder / 'record.json', ['capacity', 'curve', 'D', 'low', 'high']
  )
  assert record['seed'] == 4
  assert record['num_tokens'] == 600
  assert record['num_texts'] == 20
  assert record['bad_lines']['count'] == 1
  assert 'model' not in record['flags']
  for sentence in logprob_report.sentences(record):
    assert sentence in done.stdout
  for words in [
    '600 tokens of 20 texts, in 20 rows of prompts: mu = ',
    'as fits log-probs of the law that was sampled',
    'The first K - 2 of K top_logprobs, ',
    'Cut, or silent on why they ended, were 1 of 20 texts; ',
    f'1 bad lines were left out:\n  {tmp_path}/b.jsonl:11: expected JSON',
    'At capacity 16 no run of any draft tree wins more than '
    + report.cell(curves.find(record['table'], 'run_context', 16))
    + ' tokens an iteration, by run_context',
    '\nrun_context ',
    f'\n{logprob_bounds.DOUBLING} ',
    'Finished in ',
    f'Figure: {folder / "figure.png"}',
  ]:
    assert words in done.stdout
  with np.load(folder / 'arrays.npz') as arrays:
    assert arrays['rows/num_tokens'].sum() == 600
    assert np.isfinite(arrays['rows/progress']).all()
    for j, name in enumerate(['mu', 'mu2']):
      low, value, high = (
        arrays[f'heads/{side}'][j].sum() / 600
        for side in ('low', 'estimate', 'high')
      )
      assert record['moments'][name]['value'] == pytest.approx(value)
      assert low < value < high
      for side, limit in (('low', low), ('high', high)):
        found = record['limits'][side][name]
        assert found['value'] == pytest.approx(limit)
        assert found['low'] < found['value'] < found['high']
    missing = arrays['heads/missing'].sum() / 600
    assert 0 < missing < 1
    assert record['missing']['value'] == pytest.approx(missing)


def test_without_tops_the_law_is_left_to_the_user(streams, made):
  table, facts = made
  record = {
    'flags': {'capacities': CAPACITIES, 'log_base': 'e', 'input': 'log'},
    'table': table,
    **facts,
    **streams['plain'].facts(),
  }
  words = ' '.join(logprob_report.sentences(record))
  assert 'Without top_logprobs nothing shows' in words
  assert 'are left out for want of top_logprobs, 2 or more' in words
  assert f'in 16 of 16 texts (the first is {record["first_lacking"]})' in words
  limit = report.cell(curves.find(table, 'run', 9))
  assert f'wins more than {limit} tokens an iteration, by run as' in words
  assert 'bad lines' not in words
  lines = logprob_report.draw(record).axes[0].lines
  looks = {(x.get_color(), x.get_linestyle(), x.get_marker()) for x in lines}
  assert len(looks) == len(lines) == 7


@pytest.mark.parametrize(
  'flags, reason',
  [
    ({'temperature': 0.7, 'logprobs_temperature': 1}, 'of temperature 1 for'),
    ({}, 'got none; see --help'),
    ({'model': 'smollm2-135m'}, "Unknown command line flag 'model'"),
  ],
)
def test_bad_input_is_one_line(tmp_path, flags, reason):
  done = run_command(tmp_path, **flags)
  assert done.returncode == 2
  (line,) = done.stderr.splitlines()
  assert line.startswith('error: ')
  assert reason in line
  assert not (tmp_path / 'results').exists()


def test_help_tells_the_formats_and_no_flag_without_meaning(tmp_path):
  done = run_command(tmp_path, '--help')
  for words in ('"top_logprobs"', 'batch job', '--input', '--temperature'):
    assert words in done.stdout
  for name in ('model', 'prompts', 'drafters', 'dtype', 'quick'):
    assert f'--{name}' not in done.stdout


def test_a_format_of_the_help_is_read(tmp_path):
  _, *blocks = re.split(r'\n  (?={")', bound_from_logprobs.__doc__)
  lines = [re.split(r'\n\n', block)[0] for block in blocks]
  lines = [re.sub(r'  +[a-z ]*$', '', x, flags=re.M) for x in lines]
  body = json.loads(lines[0])
  lines[2] = json.dumps({'custom_id': '7', 'response': {'body': body}})
  assert len(lines) == 4
  for line in lines:
    (text,) = logprob_files.parse(line.encode(), 'p')
    assert text.has_ended
    np.testing.assert_array_equal(text.log_probs, [-0.2])
    np.testing.assert_array_equal(text.top_log_probs, [[-0.2, -2.1]])
