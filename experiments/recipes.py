"""Drafters, trees and rules by name, and which of them go together.

  lookup, suffix   copy from the text; their trees are their own
  bigram           fills static trees
  layer_skip       the verifier without some layers: fills or grows trees
  model            another Llama of the same vocabulary: fills or grows trees
  eagle            an EAGLE-3 head on the verifier: fills or grows trees
  dulled           the verifier made dull: fills or grows trees
  oracle           grows the best tree there is

Static trees are `chain`, `2_ary` (or any other number), `best_first` and
`sequoia`, both for rough acceptance rates, and a file of ranks, FILE.json.
Grown ones are `beam`, `opt_tree` and `best_paths`.  Of the rules `match` takes
all of them; the others take drafts that a model drew in a static tree, `block`
in a chain.
"""

import itertools
import pathlib
import re
from collections.abc import Sequence
from typing import NamedTuple

from specjax.decode import rules as rules_lib

_OWN_TREES = ('lookup', 'suffix', 'oracle')
MODELS = ('layer_skip', 'model', 'eagle', 'dulled')
NAMES = ('lookup', 'suffix', 'bigram', *MODELS, 'oracle')

# What costs passes of the whole verifier is there to measure with.
YARDSTICKS = ('dulled', 'oracle')

GROWN = ('beam', 'opt_tree', 'best_paths')
TREES = ('chain', '2_ary', 'best_first', 'sequoia', *GROWN)

RULES = tuple(rules_lib.RULES)

_K_ARY = re.compile(r'([1-9]\d*)_ary')


class Recipe(NamedTuple):
  """What is drafted with, in which trees, and how drafts are judged.

  Attributes:
    drafter: one of `NAMES`.
    tree: one of `TREES`, another k-ary tree, or a file; '' for drafters that
      make their own.
    rule: one of `RULES`.
  """

  drafter: str
  tree: str = ''
  rule: str = 'match'

  @property
  def name(self) -> str:
    """Drafter, tree and rule, as far as there is a choice."""
    rule = '' if self.rule == 'match' else self.rule
    parts = (self.drafter, pathlib.PurePath(self.tree).name, rule)
    return '-'.join(filter(None, parts))


# The drafters of the main job, each in its tree.
MAIN_JOB = {
  'lookup': Recipe('lookup'),
  'bigram': Recipe('bigram', 'best_first'),
  'model': Recipe('model', 'beam'),
  'eagle': Recipe('eagle', 'best_paths'),
}


def combine(
  drafters: Sequence[str], trees: Sequence[str], rules: Sequence[str]
) -> list[Recipe]:
  """Returns what can be made of drafters, trees and rules.

  Args:
    drafters: some of `NAMES`.
    trees: names of trees, for drafters that take one.
    rules: some of `RULES`.

  Returns:
    The recipes that go together, drafter by drafter.

  Raises:
    ValueError: an unknown name, two files of one name, or a drafter that goes
      with none of the trees and rules.
  """
  for tree in trees:
    _check_tree(tree)
  found = []
  for drafter in drafters:
    taken = [''] if drafter in _OWN_TREES else trees
    tried = [Recipe(drafter, *x) for x in itertools.product(taken, rules)]
    reasons = [refusal(recipe) for recipe in tried]
    if all(reasons):
      raise ValueError(
        f'expected trees and rules that go with {drafter}: '
        + (reasons[0] if reasons else 'got none')
      )
    pairs = zip(tried, reasons, strict=True)
    found += [recipe for recipe, reason in pairs if reason is None]
  names = [recipe.name for recipe in found]
  if twice := [name for name in names if names.count(name) > 1]:
    raise ValueError(f'expected names to differ, got {twice[0]!r} twice')
  return found


def refusal(recipe: Recipe) -> str | None:
  """Returns why a recipe's parts do not go together, None if they do.

  Args:
    recipe: of known names.

  Raises:
    ValueError: an unknown name.
  """
  drafter, tree, rule = recipe
  if drafter not in NAMES:
    raise ValueError(
      f'expected a drafter of {", ".join(NAMES)}, got {drafter!r}'
    )
  rules_lib.named(rule)
  if rule != 'match' and drafter not in MODELS:
    return f'expected match with {drafter}, which draws no drafts, got {rule}'
  if drafter in _OWN_TREES:
    own = f'expected no tree with {drafter}, which makes its own, got {tree!r}'
    return own if tree else None
  _check_tree(tree)
  if rule == 'block' and tree != 'chain':
    return f'expected a chain for the rule block, got {tree}'
  if tree in GROWN and drafter not in MODELS:
    return f'expected a static tree with {drafter}, got {tree}'
  if tree in GROWN and rule != 'match':
    return f'expected a static tree for the rule {rule}, got {tree}'
  return None


def arity(tree: str) -> int | None:
  """Returns the children a node of a k-ary tree, None for any other tree.

  Args:
    tree: its name.
  """
  match = _K_ARY.fullmatch(tree)
  return int(match[1]) if match else None


def is_file(tree: str) -> bool:
  """Returns whether a tree is named by its file.

  Args:
    tree: its name.
  """
  return tree.endswith('.json')


def _check_tree(tree):
  if tree not in TREES and not arity(tree) and not is_file(tree):
    raise ValueError(
      f'expected a tree of {", ".join(TREES)}, another k_ary or a FILE.json, '
      f'got {tree!r}'
    )
