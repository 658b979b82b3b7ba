"""Tests of experiments.recipes: what goes together, and what is said if not."""

import itertools

import pytest

from experiments import recipes
from specjax.decode import rules

FILE = 'shapes/medusa.json'


def goes_together(drafter, tree, rule):
  """By the table of who takes what, written out."""
  trees = {
    'lookup': {''},
    'suffix': {''},
    'oracle': {''},
    'bigram': {'chain', '2_ary', '7_ary', 'best_first', 'sequoia', FILE},
  }
  static = trees['bigram']
  if rule == 'match':
    grown = {'beam', 'opt_tree', 'best_paths'}
    return tree in trees.get(drafter, static | grown)
  if drafter not in ('layer_skip', 'model', 'eagle', 'dulled'):
    return False
  return tree == 'chain' if rule == 'block' else tree in static


def test_what_goes_together_is_combined_and_nothing_else():
  trees = [*recipes.TREES, '7_ary', FILE]
  for drafter, rule in itertools.product(recipes.NAMES, rules.RULES):
    expected = [
      recipes.Recipe(drafter, tree, rule)
      for tree in ('', *trees)
      if goes_together(drafter, tree, rule)
    ]
    if expected:
      assert recipes.combine([drafter], trees, [rule]) == expected
    else:
      with pytest.raises(ValueError, match=f'go with {drafter}.*got {rule}'):
        recipes.combine([drafter], trees, [rule])


def test_names_say_what_there_is_to_choose():
  found = recipes.combine(
    ['lookup', 'bigram', 'layer_skip'], ['chain', FILE], ['match', 'block']
  )
  assert [recipe.name for recipe in found] == [
    'lookup',
    'bigram-chain',
    'bigram-medusa.json',
    'layer_skip-chain',
    'layer_skip-chain-block',
    'layer_skip-medusa.json',
  ]


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    ((['medusa'], ['chain'], ['match']), "bigram, .*oracle, got 'medusa'"),
    ((['lookup'], ['wide'], ['match']), "chain, .*FILE.json, got 'wide'"),
    ((['bigram'], ['0_ary'], ['match']), "another k_ary .*got '0_ary'"),
    ((['bigram'], ['chain'], ['typical']), "block, got 'typical'"),
    ((['bigram'], ['beam'], ['match']), 'a static tree with bigram, got beam'),
    ((['dulled'], ['2_ary'], ['block']), 'chain for the rule block, got 2_ary'),
    ((['dulled'], [], ['match']), 'go with dulled: got none'),
    ((['lookup'], ['chain'], []), 'go with lookup: got none'),
    (
      (['bigram'], ['a/x.json', 'b/x.json'], ['match']),
      "'bigram-x.json' twice",
    ),
  ],
)
def test_a_mistake_is_told_with_what_there_is(arguments, message):
  with pytest.raises(ValueError, match=message):
    recipes.combine(*arguments)


def test_a_drafter_that_takes_no_tree_says_so():
  for name in ('lookup', 'suffix', 'oracle'):
    reason = recipes.refusal(recipes.Recipe(name, 'chain'))
    assert reason == (
      f"expected no tree with {name}, which makes its own, got 'chain'"
    )
