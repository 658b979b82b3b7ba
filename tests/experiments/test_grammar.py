"""Tests of experiments.self_data.grammar: slots, marks and what is missing."""

import random

import pytest

from experiments.self_data import grammar

RULES = {
  'all': ['{name.1} and {name.2}, {name.1}; {3-5} {raw}'],
  'name': ['A', 'B', '{other}'],
  'other': ['C'],
}


def make(rules=RULES):
  return grammar.Grammar(rules, {'raw': lambda rng: '{name} {1-2}'})


def test_slots_are_filled():
  rng = random.Random(0)
  seen = set()
  for _ in range(300):
    names, rest = make().text('all', rng).split('; ')
    first, second = names.split(' and ')
    second, again = second.split(', ')
    assert first == again != second  # Marks keep, and differ.
    number, raw = rest.split(' ', 1)
    assert raw == '{name} {1-2}'  # A source's text is finished.
    seen |= {first, second, number}
  assert seen == {'A', 'B', 'C', '3', '4', '5'}


def test_the_state_of_the_generator_gives_the_text():
  texts = lambda: [make().text('all', random.Random(i)) for i in range(9)]
  assert texts() == texts() and len(set(texts())) > 1


@pytest.mark.parametrize(
  'rules, match',
  [
    ({'a': ['{b}']}, "a rule for {b} in 'a'"),
    ({'a': ['{b.1}']}, "a rule for {b.1} in 'a'"),
    ({'a': []}, "texts in the rule 'a', got none"),
  ],
)
def test_what_is_refused(rules, match):
  with pytest.raises(ValueError, match=match):
    make(rules)
