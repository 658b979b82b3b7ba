"""Tests of experiments.self_data.requests: thousands, none of evaluation."""

import collections

import pytest

from experiments import prompts
from experiments.self_data import exclusion, requests

NUM_PROMPTS = 9600
EVALUATION = prompts.load()


@pytest.fixture(scope='module')
def made():
  is_excluded = exclusion.of(prompt.text for prompt in EVALUATION)
  return requests.make(NUM_PROMPTS, 0, is_excluded)


def test_as_many_as_asked_all_different_the_kinds_in_turns(made):
  assert len({prompt.text for prompt in made}) == NUM_PROMPTS
  assert len({prompt.id for prompt in made}) == NUM_PROMPTS
  kinds = list(dict.fromkeys(prompt.kind for prompt in EVALUATION))
  assert [prompt.kind for prompt in made] == kinds * (NUM_PROMPTS // len(kinds))


def test_no_run_of_words_is_one_of_the_evaluation(made):
  """Counted by joined strings, unlike `exclusion` itself."""
  size = 6
  joined = [' '.join(exclusion.words(p.text)) for p in EVALUATION]
  known = set()
  for text in joined:
    words = text.split()
    known |= {' '.join(words[i : i + size]) for i in range(len(words))}
  known = {run for run in known if run.count(' ') == size - 1}
  assert len(known) > 3000
  for prompt in made:
    words = exclusion.words(prompt.text)
    for i in range(len(words) - size + 1):
      assert ' '.join(words[i : i + size]) not in known, prompt


def test_what_is_excluded_is_passed_over(made):
  texts = [prompt.text for prompt in made]
  unwanted = set(texts[::7][:100])
  found = requests.make(600, 0, unwanted.__contains__)
  for kind in requests.KINDS:
    all_of = [p.text for p in made if p.kind == kind]
    left = [text for text in all_of if text not in unwanted]
    assert [p.text for p in found if p.kind == kind] == left[:100]


def test_prompts_are_short_enough_to_be_read(made):
  sizes = collections.defaultdict(list)
  for prompt in made:
    sizes[prompt.kind].append(len(prompt.text))
  assert max(max(found) for found in sizes.values()) < 1000
  assert min(min(found) for found in sizes.values()) > 10


def test_the_same_seed_gives_the_same_and_fewer_are_the_first(made):
  is_excluded = exclusion.of(prompt.text for prompt in EVALUATION)
  assert requests.make(120, 0, is_excluded) == made[:120]
  assert requests.make(120, 1, is_excluded) != made[:120]


def test_more_than_there_are():
  with pytest.raises(ValueError, match='at most 0 prompts of the kind chat'):
    requests.make(1, 0, lambda text: True)
