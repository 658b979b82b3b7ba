"""Tests of experiments.common, through the command line of a toy experiment."""

import json
import pathlib
import subprocess
import sys

import pytest

from experiments import common
from specjax import tokenizer

ROOT = pathlib.Path(__file__).parents[2]

TOY = '''"""A toy experiment."""

import json

from absl import flags

from experiments import common

_STARTS = flags.DEFINE_integer('starts', 48, 'Starts.', lower_bound=1)


def main():
  if flags.FLAGS.seed == 7:
    raise ValueError('expected an even seed,\\n got 7')
  if flags.FLAGS.seed == 8:
    open('/no/such/file')
  if flags.FLAGS.seed == 9:
    raise RuntimeError('a fault of the program')
  print(json.dumps(common.flag_values()))


if __name__ == '__main__':
  common.run(
    main,
    drafters=('lookup', 'bigram'),
    defaults={'prompts_per_kind': 2},
    quick={'max_new_tokens': 16, 'starts': 12},
  )
'''


@pytest.fixture
def toy(tmp_path):
  path = tmp_path / 'toy.py'
  path.write_text(TOY)

  def run(*arguments):
    return subprocess.run(
      [sys.executable, path, *arguments],
      env={'PYTHONPATH': str(ROOT)},
      capture_output=True,
      text=True,
      check=False,
    )

  return run


def test_defaults(toy):
  assert json.loads(toy().stdout) == {
    'batch_size': 8,
    'capacities': [1, 2, 4, 8, 16, 32, 64],
    'drafters': ['lookup', 'bigram'],
    'dtype': 'float32',
    'max_length': 512,
    'max_new_tokens': 32,
    'min_p': 0.0,
    'model': 'smollm2-135m',
    'order': 'auto',
    'prompts': None,
    'prompts_per_kind': 2,
    'seed': 0,
    'starts': 48,
    'temperature': 1.0,
    'top_k': 0,
    'top_p': 1.0,
    'weights': 'values',
  }


def test_only_the_shared_flags_that_are_read(toy, tmp_path):
  head, _ = TOY.split('if __name__')
  (tmp_path / 'toy.py').write_text(
    f"{head}if __name__ == '__main__': common.run(main, shared=('seed',))"
  )
  assert json.loads(toy().stdout) == {'seed': 0, 'starts': 48}
  assert "Unknown command line flag 'model'" in toy('--model=x').stderr
  assert '--results_dir' in toy('--help').stdout


def test_a_file_of_ones_own_is_taken_whole(toy):
  assert json.loads(toy('--prompts=x').stdout)['prompts_per_kind'] is None
  few = toy('--prompts=x', '--prompts_per_kind=1', '--quick')
  assert json.loads(few.stdout)['prompts_per_kind'] == 1


def test_given_values_win_over_quick_ones(toy):
  result = toy(
    '--quick', '--max_new_tokens=5', '--capacities=4,1,4', '--drafters=bigram'
  )
  values = json.loads(result.stdout)
  assert values['max_new_tokens'] == 5
  assert values['starts'] == 12
  assert values['capacities'] == [1, 4]
  assert values['drafters'] == ['bigram']


@pytest.mark.parametrize(
  'argument, error',
  [
    ('--temperature=-1', '-1.0 is not a non-negative number'),
    ('--temperature=nan', 'expected a finite number'),
    ('--top_p=0', 'expected above 0'),
    ('--capacities=0,4', 'expected whole numbers of at least 1'),
    ('--capacities=', 'expected whole numbers of at least 1'),
    ('--drafters=medusa', "expected some of lookup,bigram, got 'medusa'"),
    ('--batch_size=0', 'is not a positive integer'),
    ('--dtype=int8', 'float32|bfloat16'),
    ('--starts=0', 'is not a positive integer'),
    ('--temprature=1', "Unknown command line flag 'temprature'"),
    ('loose', "expected flags only, got 'loose'"),
    ('--seed=7', 'error: expected an even seed, got 7'),
    ('--seed=8', 'No such file or directory'),
  ],
)
def test_a_mistake_of_the_user_is_one_line(toy, argument, error):
  result = toy(argument)
  assert result.returncode == 2
  assert result.stderr.startswith('error: ')
  assert result.stderr.count('\n') == 1
  assert error in result.stderr
  assert result.stdout == ''


def test_tracebacks_of_faults_and_on_request(toy):
  result = toy('--seed=9')
  assert result.returncode == 1
  assert 'RuntimeError: a fault of the program' in result.stderr
  assert 'Traceback' in toy('--seed=7', '--verbosity=1').stderr


def test_help_shows_shared_and_own_flags(toy):
  text = toy('--help').stdout
  assert '--temperature' in text
  assert '--starts' in text


def write_prompts(tmp_path, *texts):
  path = tmp_path / 'prompts.jsonl'
  lines = [
    json.dumps({'id': f'p{i}', 'prompt': text}) for i, text in enumerate(texts)
  ]
  path.write_text('\n'.join(lines))
  return path


def test_prompts_become_ids(tmp_path):
  path = write_prompts(tmp_path, 'ab', 'c')
  prompts, ids = common.load_prompts(tokenizer.byte_level(), path, None, 4)
  assert [prompt.id for prompt in prompts] == ['p0', 'p1']
  assert ids == [[256, *b'ab'], [256, *b'c']]


def test_a_prompt_without_room_for_an_answer(tmp_path):
  path = write_prompts(tmp_path, 'ab', 'abc')
  with pytest.raises(ValueError, match='--max_length=4 .* got p1 with 4'):
    common.load_prompts(tokenizer.byte_level(), path, None, 4)
