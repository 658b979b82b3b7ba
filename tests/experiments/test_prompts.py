"""Tests of experiments.prompts: our own set and the layouts of a file."""

import collections
import json

import pytest

from experiments import prompts

KINDS = ['chat', 'reasoning', 'code', 'summarise', 'translate', 'rewrite']


def write(tmp_path, *entries):
  path = tmp_path / 'prompts.jsonl'
  path.write_text('\n'.join(map(json.dumps, entries)) + '\n', 'utf-8')
  return path


def test_our_own_set_has_eight_of_each_kind_in_turns():
  loaded = prompts.load()
  kinds = [prompt.kind for prompt in loaded]
  assert kinds == KINDS * 8
  assert [prompt.id for prompt in loaded[::6]] == [
    f'chat-{number:02}' for number in range(1, 9)
  ]
  assert len({prompt.text for prompt in loaded}) == 48


def test_our_own_texts_to_work_on_are_real_texts():
  counts = collections.defaultdict(list)
  for prompt in prompts.load():
    counts[prompt.kind].append(len(prompt.text.split()))
  assert min(counts['summarise']) >= 120
  assert min(counts['rewrite']) >= 90
  assert max(max(words) for words in counts.values()) <= 240


def test_fewer_of_each_kind_are_the_first_of_each():
  everything = prompts.load()
  assert prompts.load(prompts_per_kind=2) == everything[:12]
  assert prompts.load(prompts_per_kind=99) == everything


def test_three_layouts(tmp_path):
  path = write(
    tmp_path,
    {'id': 'a', 'prompt': 'one'},
    {'id': 'b', 'kind': 'chat', 'prompt': 'two'},
    {'question_id': 81, 'category': 'writing', 'turns': ['three', 'four']},
    {'task_id': 'HumanEval/0', 'prompt': 'def f():', 'entry_point': 'f'},
    {'id': 'c', 'prompt': 'five'},
  )
  assert prompts.load(path) == [
    ('a', 'other', 'one'),
    ('b', 'chat', 'two'),
    ('81', 'writing', 'three'),
    ('HumanEval/0', 'code', 'def f():'),
    ('c', 'other', 'five'),
  ]
  assert len(prompts.load(path, prompts_per_kind=1)) == 4


@pytest.mark.parametrize(
  'line, match',
  [
    ('{"id": "b"}', r"line 3, got \['id'\]"),
    ('[1]', r'line 3, got \[1\]'),
    ('{"id": "b",', 'expected JSON in .*line 3'),
    ('{"id": "b", "prompt": " "}', "text as the prompt in .*line 3, got ' '"),
    ('{"id": "b", "prompt": 7}', 'text as the prompt in .*line 3, got 7'),
    ('{"question_id": 1, "category": "x", "turns": []}', 'line 3, got'),
    ('{"id": "a", "prompt": "x"}', "ids to differ in .*, got 'a' twice"),
  ],
)
def test_a_malformed_line_is_named(tmp_path, line, match):
  path = write(tmp_path, {'id': 'a', 'prompt': 'fine'})
  path.write_text(path.read_text() + '\n' + line + '\n')
  with pytest.raises(ValueError, match=match):
    prompts.load(path)


@pytest.mark.parametrize('content', [None, b'', b'\n \n', b'\xff\xfe'])
def test_a_file_without_prompts(tmp_path, content):
  path = tmp_path / 'prompts.jsonl'
  if content is not None:
    path.write_bytes(content)
  with pytest.raises(ValueError, match='prompts.jsonl'):
    prompts.load(path)
