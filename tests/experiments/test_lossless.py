"""Tests of experiments.lossless: its table, words and exit codes."""

import json

import commands
import numpy as np
import pytest

from experiments import lossless, records


def row_of(rule, error, statistic, degrees=10):
  arrays = {
    'statistic': np.array([statistic, 1.0]),
    'degrees': np.array([degrees, 1]),
  }
  return lossless.table_row(rule, error, arrays)


FINE = row_of('block', 0.0, 9.0)
FOUND = row_of('block', 0.05, 90.0)
MISSED = row_of('block', 0.05, 9.0)
BROKEN = row_of('match', 0.0, 90.0)


def test_a_row_says_whether_that_was_to_be_expected():
  assert FINE['is_as_expected'] and FOUND['is_as_expected']
  assert not MISSED['is_as_expected'] and not BROKEN['is_as_expected']
  assert (FINE['statistic'], FINE['degrees']) == (10.0, 11)


def test_the_sentence_says_the_worst():
  assert lossless.sentence([FINE, FOUND]) == (
    "1 rules emit tokens of the verifier's law: the least p-value is 0.53; "
    'told laws that are off by 5%, every rule is found out, with p-values of '
    f'at most {FOUND["p_value"]:.2g}.'
  )
  assert lossless.sentence([FINE]).endswith('p-value is 0.53.')
  said = lossless.sentence([FINE, MISSED, BROKEN])
  assert said == (
    'FAILURE: block (p = 0.53) is not found out; match (p = '
    f'{BROKEN["p_value"]:.2g}) has another law.'
  )


@pytest.fixture(scope='module')
def model(tiny_folder):
  """A folder with a small model and two prompts."""
  lines = [json.dumps({'id': text, 'prompt': text}) for text in ('ab', 'xyz')]
  (tiny_folder / 'prompts.jsonl').write_text('\n'.join(lines))
  return tiny_folder


def run(model, results):
  return commands.run(
    lossless.NAME,
    model=model,
    prompts=model / 'prompts.jsonl',
    results_dir=results,
    run_name='a',
    tokens=4,
    samples=20000,
  )


def test_a_run_writes_its_table_and_a_failure_is_told(model, tmp_path):
  result = run(model, tmp_path)
  assert result.returncode == 0, result.stderr + result.stdout
  folder = tmp_path / lossless.NAME / 'a'
  table = records.load_record(folder / 'record.json')['table']
  assert [row['rule'] for row in table if not row['error']] == [
    'match',
    'with_replacement',
    'without_replacement',
    'block',
  ]
  assert lossless.table_text(table) in result.stdout
  assert lossless.sentence(table) in result.stdout

  # Goes on from its stages, one of which now says otherwise.
  stage = folder / 'stages' / 'block-0.npz'
  with np.load(stage) as file:
    arrays = dict(file)
  records.write_npz(stage, **arrays | {'statistic': np.array([9e9, 9.0])})
  result = run(model, tmp_path)
  assert result.returncode == 1
  assert 'FAILURE: block (p = 0) has another law.' in result.stdout
