"""Tests of experiments.self_data.exclusion: what is too near to evaluation."""

import pytest

from experiments import prompts
from experiments.self_data import exclusion

EVALUATION = [prompt.text for prompt in prompts.load()]
IS_EXCLUDED = exclusion.of(EVALUATION)


@pytest.mark.parametrize(
  'text',
  [
    *EVALUATION,
    'explain WHY -- the sky is Blue!',
    'Why is the sky blue? Explain in a few sentences.',
    'Look: write down the partial products and add! 12 * 13.',
    'Tell a story, short, about the keeper of a lighthouse who finds in a '
    'bottle a message.',
    'Sum this up. In winter, when the trains were late, she left.',
  ],
)
def test_the_evaluation_and_paraphrases_are_excluded(text):
  assert IS_EXCLUDED(text)


@pytest.mark.parametrize(
  'text',
  [
    'Why is grass green?',
    'Write a Python function that sorts a list of numbers.',
    'Translate into French: I like tea.',
    'A baker makes 20 cakes and sells 5 of them. How many are left?',
  ],
)
def test_other_requests_are_not(text):
  assert not IS_EXCLUDED(text)


def test_runs_of_words_beside_a_slow_twin():
  text = "It's A b, a b!\n\nC: a b"
  assert exclusion.words(text) == ['it', 's', 'a', 'b', 'a', 'b', 'c', 'a', 'b']
  twin = set()
  words = exclusion.words(text)
  for begin in range(len(words)):
    if begin + 3 <= len(words):
      twin.add(tuple(words[begin : begin + 3]))
  assert exclusion.runs(text, 3) == twin
  assert exclusion.runs('A b', 3) == {('a', 'b')}
