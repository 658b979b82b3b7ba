"""Tests of experiments.token_identity: its counts, words and exit codes."""

import json

import commands
import numpy as np
import pytest

from experiments import records, token_identity

WAY = token_identity.Way('lookup', 1.0, 4, 8)


def row_of(gaps, limit=1e-3):
  arrays = {
    'num_tokens': np.array([10, 6]),
    'num_steps': np.array([5, 3]),
    'num_compared': np.array([10, 4]),
    'gap': np.array(gaps),
    'limit': np.full(len(gaps), limit),
  }
  return token_identity.table_row(WAY, arrays, seed=0)


def test_a_row_counts_ties_and_failures_apart():
  row = row_of([1e-5, 3e-4, 1e-3, np.inf])
  assert row == {
    **WAY._asdict(),
    'prompts': 2,
    'tokens': 14,
    'partings': 2,
    'failures': 2,
    'widest_gap': 3e-4,
    'widest_share': pytest.approx(0.3),
    'D': 2.0,
    'low': 2.0,
    'high': 2.0,
  }


def test_the_sentence_says_the_worst():
  same, parted, failed = row_of([]), row_of([2e-4, 1e-5]), row_of([0.5])
  sentence = token_identity.sentence
  assert sentence([same]) == (
    '1 ways of decoding emitted 14 tokens as plain decoding does, '
    'without exception.'
  )
  assert (
    'parted at 4 ties, the widest of 2.0e-04 and none wider than 20% of its '
    'limit' in sentence([parted] * 2)
  )
  assert sentence([same, failed, parted]).startswith('FAILURE: 1 texts')


@pytest.fixture(scope='module')
def model(tiny_folder):
  prompts = [{'id': str(i), 'prompt': 'ab' * i} for i in range(1, 4)]
  lines = '\n'.join(map(json.dumps, prompts))
  (tiny_folder / 'prompts.jsonl').write_text(lines)
  return tiny_folder


def run(model, results, **flags):
  """Runs the job on flags beside those of a small run."""
  flags = {
    'model': model,
    'prompts': model / 'prompts.jsonl',
    'prompts_per_kind': 3,
    'results_dir': results,
    'run_name': 'a',
    'max_new_tokens': 5,
    'capacities': 3,
    'batch_sizes': 2,
    'drafters': 'lookup',
    **flags,
  }
  return commands.run(token_identity.NAME, **flags)


def test_a_run_writes_its_table_and_a_failure_is_told(model, tmp_path):
  result = run(model, tmp_path)
  assert result.returncode == 0, result.stderr
  assert '2 ways of decoding emitted' in result.stdout.splitlines()[-1]
  folder = tmp_path / token_identity.NAME / 'a'
  table = records.load_record(folder / 'record.json')['table']
  assert [row['temperature'] for row in table] == [0.0, 1.0]
  assert all(row['failures'] == 0 and row['prompts'] == 3 for row in table)

  # Goes on from its stages, one of which now says otherwise.
  stage = folder / 'stages' / 'lookup-1.0-3-2.npz'
  with np.load(stage) as file:
    arrays = dict(file)
  gaps = {'gap': np.array([0.5]), 'limit': np.array([1e-3])}
  records.write_npz(stage, **arrays | gaps)
  result = run(model, tmp_path)
  assert result.returncode == 1
  assert result.stdout.splitlines()[-1].startswith('FAILURE: 1 texts')
  table = records.load_record(folder / 'record.json')['table']
  assert [row['failures'] for row in table] == [0, 1]


def test_lists_of_numbers_are_parsed():
  parse = token_identity.FLAGS['batch_sizes'].parser.parse
  assert parse('8,1,8') == [8, 1]
  for text in ('1,0', '', '1,x'):
    with pytest.raises(ValueError):
      parse(text)


def test_partings_stand_in_the_table_with_the_widest_tie():
  lines = token_identity.table_text([row_of([]), row_of([0.03, 0.2], 0.4)])
  head, same, parted = lines.splitlines()
  assert head.split('failures')[1].split() == ['widest', 'gap', 'D']
  assert same.split()[-4:] == ['0', '2.00', '[2.00,', '2.00]']
  assert parted.split()[-6:-2] == ['0', '2.0e-01', '(50%)', '2.00']
  assert len(head) == len(same) == len(parted)


# Kinds: texts of other prompts or another tree under the name of the old ones.
def test_what_files_hold_decides_whether_a_stage_is_taken(model, tmp_path):
  tree, prompts = tmp_path / 'tree.json', tmp_path / 'prompts.jsonl'
  text = (model / 'prompts.jsonl').read_text()
  prompts.write_text(text)
  tree.write_text('[[0], [0, 0]]')
  flags = {
    'prompts': prompts,
    'trees': tree,
    'drafters': 'bigram',
    'temperatures': 0,
  }
  result = run(model, tmp_path, **flags)
  assert result.returncode == 0, result.stderr
  stages = tmp_path / token_identity.NAME / 'a' / 'stages'
  name = f'bigram-tree.json-0.0-3-2-{records.digest_files(tree)}'
  assert {path.stem for path in stages.iterdir()} == {'plain-0', name}
  prompts.write_text(text.replace('ab', 'ba'))
  result = run(model, tmp_path, **flags)
  assert result.returncode == 2
  assert '--prompt_ids=' in result.stderr


@pytest.mark.parametrize(
  ('flag', 'message'),
  [
    ({'temperature': 0.5}, 'expected --temperature=1.0 in this experiment'),
    ({'temperatures': '0,nan'}, 'expected finite numbers'),
    ({'trees': 'wide'}, "or a FILE.json, got 'wide'"),
    ({'drafters': 'eagle'}, 'expected --eagle=FOLDER of an EAGLE-3 head'),
  ],
)
def test_a_mistake_of_the_user_is_one_line(model, tmp_path, flag, message):
  result = run(model, tmp_path, **flag)
  assert result.returncode == 2
  assert message in result.stderr
  assert result.stderr.count('\n') == 1
  assert not list(tmp_path.iterdir())
