"""Tests of experiments.drafters: a recipe becomes what it says."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import draft_models, drafters, recipes
from specjax.decode import generate, prefill
from specjax.draft import base, dulled
from specjax.draft import eagle as eagle_lib
from specjax.draft import reader as reader_lib
from specjax.llama import eagle
from specjax.trees import shape_files
from specjax.trees import tree as tree_lib

EOS = (3,)
N = 7
PROMPTS = [[1, 2, 1, 2, 1], [5, 9, 5]]
# A tree of seven nodes, and one that is not taken.
WAYS = [[0], [1], [0, 0], [0, 1], [1, 0], [0, 0, 0], [2]]
# In the order in which a file is read.
FIRST_PARENTS = [-1, 0, 0, 0, 1, 1, 2]
FEATURES = (0, 1)


@pytest.fixture(scope='module')
def file(tmp_path_factory):
  path = tmp_path_factory.mktemp('shapes') / 'tree.json'
  shape_files.save(path, shape_files.from_ways(WAYS))
  return str(path)


@pytest.fixture(scope='module')
def batch(tiny):
  [batch] = prefill.read_prompts(
    tiny, PROMPTS, max_new_tokens=12, features=FEATURES
  )
  return batch


@pytest.fixture(scope='module')
def models(tiny):
  """A model of each name, without files."""
  config = eagle.EagleConfig(
    layer=dataclasses.replace(tiny.config, num_layers=1),
    draft_vocab_size=12,
    features=FEATURES,
  )
  ids = jnp.arange(2, 14)
  head = eagle.init_params(jax.random.key(1), config, ids, jnp.float32)
  head = eagle.tied(head, tiny)
  return {
    'layer_skip': draft_models.layer_skip(tiny.config, [0]),
    'dulled': drafters.DraftModel(dulled.reader(), jnp.float32(0.3)),
    'model': drafters.DraftModel(
      reader_lib.small_llama(tiny.config, tiny.config), tiny
    ),
    'eagle': drafters.DraftModel(eagle_lib.reader(config, tiny.config), head),
  }


def make(recipe, verifier, models=None):
  return drafters.make(
    recipe, verifier, PROMPTS, max_nodes=N, eos_ids=EOS, models=models
  )


def first_proposal(verifier, batch, drafting, num_nodes=N):
  params = base.Params(verifier, drafting.params, batch.sampling)
  propose = functools.partial(drafting.drafter.propose, num_nodes=num_nodes)
  state = drafting.drafter.init(params, batch.prefix)
  prefix = batch.prefix
  return propose(params, state, prefix.tokens, prefix.lengths)[0]


def test_every_recipe_proposes_what_its_rule_asks_for(
  tiny, batch, file, models
):
  others = [name for name in recipes.MODELS if name != 'dulled']
  found = recipes.combine(
    [name for name in recipes.NAMES if name not in others],
    [*recipes.TREES, '3_ary', file],
    recipes.RULES,
  )
  # What holds of trees and rules holds for any model.
  found += recipes.combine(others, ['chain', 'beam'], ['match', 'block'])
  assert len({recipe.rule for recipe in found}) == len(recipes.RULES)
  vocab_size = tiny.config.vocab_size
  for recipe in found:
    drafting = make(recipe, tiny, models)
    assert drafting.rule == recipe.rule
    assert bool(drafting.content) == (recipe.tree == file)
    proposal = jax.eval_shape(
      lambda batch, drafting=drafting: first_proposal(tiny, batch, drafting),
      batch,
    )
    assert proposal.tree.tokens.shape == (len(PROMPTS), N), recipe
    laws = proposal.log_q_full
    if recipe.rule == 'match':
      assert laws is None, recipe
    else:
      assert laws.shape == (len(PROMPTS), N, vocab_size), recipe


# Depths that tell static trees apart, by name.
DEPTHS = {
  'chain': [0, 1, 2, 3, 4, 5, 6],
  '3_ary': [0, 1, 1, 1, 2, 2, 2],
  'file': [0, 1, 1, 1, 2, 2, 2],
}


@pytest.mark.parametrize('tree', DEPTHS)
def test_static_trees_have_the_shape_of_their_name(tiny, batch, file, tree):
  drafting = make(
    recipes.Recipe('bigram', file if tree == 'file' else tree), tiny
  )
  propose = jax.jit(lambda batch: first_proposal(tiny, batch, drafting))
  parents = propose(batch).tree.parents
  for row in parents:
    assert sorted(tree_lib.depth(row).tolist()) == DEPTHS[tree]
  if tree == 'file':
    np.testing.assert_array_equal(parents, [FIRST_PARENTS] * len(PROMPTS))


# Every level behind the root is a pass of the drafter.
def test_as_many_passes_as_there_are_levels(file):
  for tree, depths in DEPTHS.items():
    name = file if tree == 'file' else tree
    assert drafters.num_levels(name, N) == max(depths)
  at_64 = lambda tree: drafters.num_levels(tree, 64)
  assert (at_64(''), at_64('beam'), at_64('sequoia')) == (1, 6, 6)
  # The best first child of a child, and so on, is taken with 0.55^d.
  assert 6 < at_64('best_first') < 10
  assert at_64('opt_tree') == at_64('best_paths') == 63
  assert drafters.num_levels('beam', 4) == 3
  assert drafters.num_levels('', 1) == 0


@pytest.mark.parametrize(
  'recipe',
  [
    recipes.Recipe('layer_skip', 'sequoia'),
    recipes.Recipe('dulled', 'beam'),
    recipes.Recipe('eagle', 'opt_tree'),
    recipes.Recipe('model', 'best_first'),
  ],
  ids=lambda recipe: recipe.name,
)
def test_texts_are_those_of_plain_decoding(tiny, batch, models, recipe):
  decode = functools.partial(generate.decode, tiny, batch, eos_ids=EOS)
  drafting = make(recipe, tiny, models)
  plain = decode()
  found = decode(
    drafter=drafting.drafter,
    drafter_params=drafting.params,
    num_nodes=N,
    rule=drafting.rule,
  )
  assert [text.tokens for text in found] == [text.tokens for text in plain]


def test_the_verifier_itself_is_accepted_whole(tiny, batch, models):
  drafting = make(recipes.Recipe('model', 'chain', 'block'), tiny, models)
  found = generate.decode(
    tiny,
    batch,
    eos_ids=(),
    drafter=drafting.drafter,
    drafter_params=drafting.params,
    num_nodes=4,
    rule=drafting.rule,
  )
  for text in found:
    np.testing.assert_array_equal(text.steps.emitted, [4, 4, 4])


def test_drafters_that_want_features_want_the_same(tiny, models):
  drafting = lambda name: make(recipes.Recipe(name, 'chain'), tiny, models)
  known = [drafting('bigram'), drafting('eagle'), drafting('model')]
  assert drafters.features_of(known) == FEATURES
  assert drafters.features_of(known[:1]) == ()
  other = known[0].drafter._replace(features=(1,))
  with pytest.raises(ValueError, match=r'same features, got .*\(1,\)'):
    drafters.features_of([*known, drafters.Drafting(other)])


# Kinds: measurements of a file's old content that are taken for the new one's.
def test_what_was_measured_is_named_by_what_files_hold(tiny, models, tmp_path):
  path = tmp_path / 'tree.json'

  def stage(ways):
    shape_files.save(path, shape_files.from_ways(ways))
    drafting = make(recipes.Recipe('eagle', str(path)), tiny, models)
    return drafting.stage('eagle-tree.json-16')

  first = stage(WAYS)
  assert first.startswith('eagle-tree.json-16-')
  assert stage(WAYS[:-1]) != first
  assert stage(WAYS) == first
  model = models['eagle']._replace(content='head')
  drafting = make(
    recipes.Recipe('eagle', 'chain'), tiny, models | {'eagle': model}
  )
  assert drafting.stage('eagle-chain') == 'eagle-chain-head'


def test_what_does_not_go_together_is_refused(tiny, batch, file):
  with pytest.raises(ValueError, match='lookup, which makes its own'):
    make(recipes.Recipe('lookup', 'chain'), tiny)
  with pytest.raises(ValueError, match='model eagle to draft with, got none'):
    make(recipes.Recipe('eagle', 'chain'), tiny)
  with pytest.raises(OSError, match='missing.json'):
    make(recipes.Recipe('bigram', 'missing.json'), tiny)
  drafting = make(recipes.Recipe('bigram', file), tiny)
  with pytest.raises(ValueError, match='capacity of at most 8, .*got 9'):
    jax.eval_shape(
      lambda batch: first_proposal(tiny, batch, drafting, 9), batch
    )
