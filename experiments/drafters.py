"""From recipes to drafters."""

import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import chex

from experiments import recipes, records
from specjax.checkpoint import resolve
from specjax.draft import (
  base,
  bigram,
  filled,
  grown,
  lookup,
  oracle,
  suffix,
)
from specjax.draft import reader as reader_lib
from specjax.llama import model as llama_model
from specjax.trees import grow, rules, sequoia, shape_files, shapes

# Rough acceptance rates of a model's ranks, for the shape of its trees.
_MODEL_RATES = (0.55, 0.12, 0.06, 0.04, 0.03, 0.02, 0.015, 0.01)

# Every level of a tree costs the drafter a pass.
_MOST_LEVELS = 6

# Expected tokens that a further pass of the drafter has to win.
_LEAST_GAIN = 0.1


class DraftModel(NamedTuple):
  """A model that drafts, as `draft_models` loads it.

  Attributes:
    reader: the model.
    params: what it takes.
    content: digest of the files that it came from, '' without any.
  """

  reader: reader_lib.Reader
  params: chex.ArrayTree = ()
  content: str = ''


class Drafting(NamedTuple):
  """All that a decoder wants to know of a recipe.

  Attributes:
    drafter: the drafter.
    params: what it takes.
    rule: name of the verification rule.
    content: digest of the files that it was made of, '' without any.
  """

  drafter: base.Drafter
  params: chex.ArrayTree = ()
  rule: str = 'match'
  content: str = ''

  def stage(self, name: str) -> str:
    """Returns a name for what was measured: it changes as the files do.

    Args:
      name: of the drafter.
    """
    return '-'.join(filter(None, (name, self.content)))


def make(
  recipe: recipes.Recipe,
  verifier: llama_model.Params,
  corpus: Sequence[Sequence[int]],
  *,
  max_nodes: int,
  eos_ids: tuple[int, ...],
  models: Mapping[str, DraftModel] | None = None,
) -> Drafting:
  """Builds a drafter.

  Args:
    recipe: what is wanted.
    verifier: the model.
    corpus: texts as token ids, for drafters that count or copy.
    max_nodes: largest tree that will be asked for.
    eos_ids: tokens that end a text.
    models: those that draft, by name; wanted by recipes of `recipes.MODELS`.

  Returns:
    The drafter, and the parameters and the rule that go with it.

  Raises:
    ValueError: an unknown name, parts that do not go together, a model that is
      not there, or a bad file; in use, a tree that a file has too few nodes
      for.
    OSError: a file that cannot be read.
  """
  if reason := recipes.refusal(recipe):
    raise ValueError(reason)
  name, tree, rule = recipe
  vocab_size = verifier.config.vocab_size
  if name == 'lookup':
    return Drafting(lookup.make())
  if name == 'suffix':
    return Drafting(suffix.make(), suffix.corpus(corpus, vocab_size))
  if name == 'bigram':
    drafter = bigram.make(_shape_fn(tree, bigram.RATES))
    table = bigram.corpus_table(corpus, vocab_size)
    return Drafting(drafter, table, content=_content(tree))
  if name == 'oracle':
    return Drafting(oracle.make(max_nodes, eos_ids))
  if name not in (models or {}):
    raise ValueError(f'expected the model {name} to draft with, got none')
  model = models[name]
  content = '-'.join(filter(None, (model.content, _content(tree))))
  drafter = _of_model(model.reader, tree, rule, max_nodes, eos_ids)
  return Drafting(drafter, model.params, rule, content)


def make_all(
  found: Mapping[str, recipes.Recipe],
  verifier: resolve.Checkpoint,
  corpus: Sequence[Sequence[int]],
  *,
  max_nodes: int,
  models: Mapping[str, DraftModel] | None = None,
) -> dict[str, Drafting]:
  """Builds several drafters for one verifier.

  Args:
    found: what is wanted, by name.
    verifier: the model that decides.
    corpus: as of `make`, and so are the others.
    max_nodes: largest tree that will be asked for.
    models: those that draft, by name.

  Returns:
    The drafters by the same names.

  Raises:
    ValueError: as `make` does.
    OSError: as `make` does.
  """
  return {
    name: make(
      recipe,
      verifier.params,
      corpus,
      max_nodes=max_nodes,
      eos_ids=verifier.tokenizer.eos_ids,
      models=models,
    )
    for name, recipe in found.items()
  }


def features_of(draftings: Iterable[Drafting]) -> tuple[int, ...]:
  """Returns the layers whose inputs drafters want to know of their prompts.

  Args:
    draftings: of which all that want any want the same.

  Raises:
    ValueError: some want other layers than others.
  """
  wanted = {drafting.drafter.features for drafting in draftings} - {()}
  if len(wanted) > 1:
    raise ValueError(
      f'expected drafters that want the same features, got {sorted(wanted)}'
    )
  return wanted.pop() if wanted else ()


def num_levels(tree: str, num_nodes: int) -> int:
  """Returns how many passes of a drafter a tree takes, at most.

  What is drafted decides how deep a tree is that is neither static nor a beam:
  it may be a chain.

  Args:
    tree: its name; see `recipes`.  One without is made at once.
    num_nodes: `N`.

  Raises:
    ValueError: a bad file, or one that has too few nodes.
    OSError: a file that cannot be read.
  """
  if not tree:
    return min(num_nodes - 1, 1)
  if tree == 'beam':
    return min(num_nodes - 1, _MOST_LEVELS)
  if tree in recipes.GROWN:
    return num_nodes - 1
  return int(_shape_fn(tree, _MODEL_RATES)(num_nodes).depths.max())


def _of_model(reader, tree, rule, max_nodes, eos_ids):
  """Returns the drafter of a model, by tree and rule."""
  if tree in recipes.GROWN:
    return grown.make(reader, _GROWN[tree], max_nodes, eos_ids)
  shape_fn = _shape_fn(tree, _MODEL_RATES)
  if rule == 'match':
    return filled.best(reader, shape_fn, max_nodes, eos_ids)
  replace = rule == 'with_replacement'
  return filled.drawn(reader, shape_fn, max_nodes, replace)


def _content(tree):
  """Digest of the file of a tree, '' for one that has a name."""
  return records.digest_files(tree) if recipes.is_file(tree) else ''


def _beam(num_nodes: int) -> grow.Rule:
  # Of this width two levels can fill the tree.
  width = math.isqrt(num_nodes - 1) + 1
  return rules.beam(num_nodes, width, _num_levels(num_nodes))


def _opt_tree(num_nodes: int) -> grow.Rule:
  width = math.isqrt(num_nodes - 1) + 1
  return rules.opt_tree(num_nodes, width, num_nodes, _LEAST_GAIN)


_GROWN: Mapping[str, grow.RuleFn] = {
  'beam': _beam,
  'opt_tree': _opt_tree,
  'best_paths': rules.best_first,
}


# One function a tree, so that what was compiled with it is found again.
@functools.cache
def _shape_fn(tree: str, rates: tuple[float, ...]) -> shapes.ShapeFn:
  """Returns a function from a number of nodes to the static tree of a name."""
  if tree == 'chain':
    return shapes.chain
  if tree == 'best_first':
    return functools.partial(shapes.best_first, rates=rates)
  if tree == 'sequoia':
    return lambda num_nodes: sequoia.best(
      num_nodes, rates, _num_levels(num_nodes)
    )
  if arity := recipes.arity(tree):
    return functools.partial(shapes.k_ary, arity=arity)
  whole = shape_files.load(tree)

  def first_nodes(num_nodes):
    # Nodes come level by level, so that the first of them are a tree.
    if num_nodes > len(whole.parents):
      raise ValueError(
        f'expected a capacity of at most {len(whole.parents)}, the nodes of '
        f'{tree} with the root, got {num_nodes}'
      )
    return shapes.Shape(whole.parents[:num_nodes], whole.ranks[:num_nodes])

  return first_nodes


def _num_levels(num_nodes):
  return max(min(num_nodes - 1, _MOST_LEVELS), 1)
