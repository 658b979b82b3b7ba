"""From recipes to drafters."""

import functools
import math
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import chex
import jax.numpy as jnp

from experiments import recipes
from specjax.draft import (
  base,
  bigram,
  dulled,
  filled,
  grown,
  lookup,
  oracle,
  suffix,
)
from specjax.draft import reader as reader_lib
from specjax.llama import config as llama_config
from specjax.llama import model as llama_model
from specjax.trees import grow, rules, sequoia, shape_files, shapes

# Rough acceptance rates of a model's ranks, for the shape of its trees.
_MODEL_RATES = (0.55, 0.12, 0.06, 0.04, 0.03, 0.02, 0.015, 0.01)

# Every level of a tree costs the drafter a pass.
_MOST_LEVELS = 6

# Expected tokens that a further pass of the drafter has to win.
_LEAST_GAIN = 0.1


class Drafting(NamedTuple):
  """All that a decoder wants to know of a recipe.

  Attributes:
    drafter: the drafter.
    params: what it takes.
    rule: name of the verification rule.
  """

  drafter: base.Drafter
  params: chex.ArrayTree = ()
  rule: str = 'match'


def make(
  recipe: recipes.Recipe,
  verifier: llama_model.Params,
  corpus: Sequence[Sequence[int]],
  *,
  max_nodes: int,
  eos_ids: tuple[int, ...],
  skipped_layers: Sequence[int] | None = None,
  sigma: float = 1.0,
) -> Drafting:
  """Builds a drafter.

  Args:
    recipe: what is wanted.
    verifier: the model.
    corpus: texts as token ids, for drafters that count or copy.
    max_nodes: largest tree that will be asked for.
    eos_ids: tokens that end a text.
    skipped_layers: what `layer_skip` leaves out; see `kept_layers`.
    sigma: how dull `dulled` is; see `specjax.draft.dulled`.

  Returns:
    The drafter, and the parameters and the rule that go with it.

  Raises:
    ValueError: an unknown name, parts that do not go together, layers that the
      verifier lacks, or a bad file; in use, a tree that a file has too few
      nodes for.
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
    table = bigram.corpus_table(corpus, vocab_size)
    return Drafting(bigram.make(_shape_fn(tree, bigram.RATES)), table)
  if name == 'oracle':
    return Drafting(oracle.make(max_nodes, eos_ids))
  reader, params = make_reader(name, verifier.config, skipped_layers, sigma)
  if tree in recipes.GROWN:
    drafter = grown.make(reader, _GROWN[tree], max_nodes, eos_ids)
    return Drafting(drafter, params)
  shape_fn = _shape_fn(tree, _MODEL_RATES)
  if rule == 'match':
    drafter = filled.best(reader, shape_fn, max_nodes, eos_ids)
  else:
    replace = rule == 'with_replacement'
    drafter = filled.drawn(reader, shape_fn, max_nodes, replace)
  return Drafting(drafter, params, rule)


def make_reader(
  name: str,
  config: llama_config.LlamaConfig,
  skipped_layers: Sequence[int] | None = None,
  sigma: float = 1.0,
) -> tuple[reader_lib.Reader, chex.ArrayTree]:
  """Builds a model that drafts.

  Args:
    name: one of `recipes.MODELS`.
    config: of the verifier.
    skipped_layers: as for `make`.
    sigma: as for `make`.

  Returns:
    The reader, and the parameters that it takes.

  Raises:
    ValueError: an unknown name, or layers that the verifier lacks.
  """
  if name == 'layer_skip':
    kept = kept_layers(config.num_layers, skipped_layers)
    return reader_lib.layer_skip(config, kept), ()
  if name == 'dulled':
    return dulled.reader(), jnp.float32(sigma)
  raise ValueError(
    f'expected a model of {", ".join(recipes.MODELS)}, got {name!r}'
  )


def kept_layers(
  num_layers: int, skipped: Sequence[int] | None
) -> tuple[int, ...]:
  """Returns the layers that run if some are left out.

  Args:
    num_layers: `L` of the verifier.
    skipped: those left out; every third one of the middle third if None.

  Raises:
    ValueError: a layer that the verifier lacks.
  """
  if skipped is None:
    skipped = range(num_layers // 3, 2 * num_layers // 3, 3)
  if outside := [i for i in skipped if not 0 <= i < num_layers]:
    raise ValueError(
      f'expected layers in [0, {num_layers}) to leave out, got {outside[0]}'
    )
  return tuple(i for i in range(num_layers) if i not in skipped)


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
