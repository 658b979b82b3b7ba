"""Tests of experiments.drafters: a recipe becomes what it says."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import drafters, recipes
from specjax.decode import generate, prefill
from specjax.draft import base
from specjax.trees import shape_files
from specjax.trees import tree as tree_lib

EOS = (3,)
N = 7
PROMPTS = [[1, 2, 1, 2, 1], [5, 9, 5]]
# A tree of seven nodes, and one that is not taken.
WAYS = [[0], [1], [0, 0], [0, 1], [1, 0], [0, 0, 0], [2]]
# In the order in which a file is read.
FIRST_PARENTS = [-1, 0, 0, 0, 1, 1, 2]


@pytest.fixture(scope='module')
def file(tmp_path_factory):
  path = tmp_path_factory.mktemp('shapes') / 'tree.json'
  shape_files.save(path, shape_files.from_ways(WAYS))
  return str(path)


@pytest.fixture(scope='module')
def batch(tiny):
  [batch] = prefill.read_prompts(tiny, PROMPTS, max_new_tokens=12)
  return batch


def make(recipe, verifier, **options):
  return drafters.make(
    recipe, verifier, PROMPTS, max_nodes=N, eos_ids=EOS, **options
  )


def first_proposal(verifier, batch, drafting, num_nodes=N):
  params = base.Params(verifier, drafting.params, batch.sampling)
  propose = functools.partial(drafting.drafter.propose, num_nodes=num_nodes)
  state = drafting.drafter.init(params, batch.prefix)
  prefix = batch.prefix
  return propose(params, state, prefix.tokens, prefix.lengths)[0]


def test_every_recipe_proposes_what_its_rule_asks_for(tiny, batch, file):
  found = recipes.combine(
    recipes.NAMES, [*recipes.TREES, '3_ary', file], recipes.RULES
  )
  assert len({recipe.rule for recipe in found}) == len(recipes.RULES)
  vocab_size = tiny.config.vocab_size
  for recipe in found:
    drafting = make(recipe, tiny)
    assert drafting.rule == recipe.rule
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


@pytest.mark.parametrize(
  'recipe',
  [recipes.Recipe('layer_skip', 'sequoia'), recipes.Recipe('dulled', 'beam')],
)
def test_texts_are_those_of_plain_decoding(tiny, batch, recipe):
  decode = functools.partial(generate.decode, tiny, batch, eos_ids=EOS)
  drafting = make(recipe, tiny, skipped_layers=[0], sigma=0.3)
  plain = decode()
  found = decode(
    drafter=drafting.drafter,
    drafter_params=drafting.params,
    num_nodes=N,
    rule=drafting.rule,
  )
  assert [text.tokens for text in found] == [text.tokens for text in plain]


def test_a_verifier_that_is_hardly_dull_is_accepted_whole(tiny, batch):
  recipe = recipes.Recipe('dulled', 'chain', 'block')
  drafting = make(recipe, tiny, sigma=0.0)
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


def test_layers_are_left_out(tiny):
  assert drafters.kept_layers(30, [3, 0, 29]) == tuple(
    i for i in range(30) if i not in (0, 3, 29)
  )
  assert drafters.kept_layers(4, None) == (0, 2, 3)
  assert drafters.kept_layers(2, []) == (0, 1)
  with pytest.raises(ValueError, match=r'layers in \[0, 2\) .*got 2'):
    make(recipes.Recipe('layer_skip', 'beam'), tiny, skipped_layers=[1, 2])
  with pytest.raises(ValueError, match='expected rising layers'):
    make(recipes.Recipe('layer_skip', 'beam'), tiny, skipped_layers=[0, 1])


def test_what_does_not_go_together_is_refused(tiny, batch, file):
  with pytest.raises(ValueError, match='lookup, which makes its own'):
    make(recipes.Recipe('lookup', 'chain'), tiny)
  with pytest.raises(ValueError, match="layer_skip, dulled, got 'bigram'"):
    drafters.make_reader('bigram', tiny.config)
  with pytest.raises(OSError, match='missing.json'):
    make(recipes.Recipe('bigram', 'missing.json'), tiny)
  drafting = make(recipes.Recipe('bigram', file), tiny)
  with pytest.raises(ValueError, match='capacity of at most 8, .*got 9'):
    jax.eval_shape(
      lambda batch: first_proposal(tiny, batch, drafting, 9), batch
    )


def test_the_dulled_verifier_is_as_dull_as_is_asked(tiny):
  _, params = drafters.make_reader('dulled', tiny.config, sigma=0.5)
  assert params == jnp.float32(0.5)
