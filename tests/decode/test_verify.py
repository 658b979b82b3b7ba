"""Verification against chains, gradients and an exact enumeration."""

import itertools
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference_decode
import reference_edits
import reference_rules

from specjax import edits
from specjax import noise as noise_lib
from specjax import sampling as sampling_lib
from specjax.decode import prefill, verify
from specjax.draft import base
from specjax.llama import model as llama_model
from specjax.trees import shapes
from specjax.trees import tree as tree_lib

N = 7
PREFIXES = [[4], [1, 2, 3, 4, 5], [7, 7, 9], list(range(12))]


def tree_of(parents, tokens, num_nodes):
  as_int = lambda x: jnp.asarray(x, jnp.int32)
  log_q = jnp.zeros(np.shape(tokens))
  return tree_lib.Tree(
    as_int(tokens), as_int(parents), log_q, as_int(num_nodes)
  )


def random_trees(seed, batch):
  rng = np.random.default_rng(seed)
  parents = [
    [-1] + [rng.integers(0, i) for i in range(1, N)] for _ in range(batch)
  ]
  return tree_of(
    parents, rng.integers(0, 23, (batch, N)), rng.integers(2, N + 1, batch)
  )


def read(params, prompts):
  batches = prefill.read_prompts(
    params, prompts, max_new_tokens=1, batch_size=len(prompts)
  )
  return batches[0].prefix.cache


def tree_logits(verifier, trees, cache):
  hidden, _, _ = verify.tree_pass(verifier, trees, cache)
  return llama_model.head(verifier, hidden)


# Kinds: a flat index taken for a position, a mask too narrow for the tree,
# rows of unequal length that see each other's slots.
def test_a_node_is_its_root_path_run_as_a_chain(tiny):
  cache = read(tiny, PREFIXES)
  logits_fn = jax.jit(tree_logits)
  for seed in range(3):
    trees = random_trees(seed, len(PREFIXES))
    logits = logits_fn(tiny, trees, cache)
    for row, prefix in enumerate(PREFIXES):
      context = [*prefix[:-1], int(trees.tokens[row, 0])]
      for node, words in enumerate(reference_decode.words_of(trees, row)):
        expected = reference_decode.logits_after(tiny, [*context, *words])[-1]
        np.testing.assert_allclose(logits[row, node], expected, atol=1e-4)


# Kinds: a mask too narrow for the tree, a tree deeper than positions reach.
def test_a_large_tree_is_its_chains(tiny):
  rng, size = np.random.default_rng(0), 150
  # Each node goes on from one of the four before it.
  parents = [-1] + [max(0, i - 1 - rng.integers(0, 4)) for i in range(1, size)]
  tokens = rng.integers(0, 23, (2, size))
  trees = tree_of([parents] * 2, tokens, [size] * 2)
  logits = jax.jit(tree_logits)(tiny, trees, read(tiny, PREFIXES[:2]))
  deepest = int(tree_lib.depth(trees.parents[0]).max())
  assert deepest > 40
  for row, prefix in enumerate(PREFIXES[:2]):
    words = reference_decode.words_of(trees, row)
    context = [*prefix[:-1], tokens[row, 0]]
    for leaf in set(range(size)) - set(parents):
      # Of one length, so that one program reads them.
      text = [*context, *words[leaf], *[0] * (deepest - len(words[leaf]))]
      expected = reference_decode.logits_after(tiny, text)[len(prefix) - 1 :]
      node = leaf
      while node >= 0:
        depth = len(words[node])
        np.testing.assert_allclose(
          logits[row, node], expected[depth], atol=2e-4
        )
        node = parents[node]


def test_a_node_feels_its_ancestors_and_no_other_node(tiny):
  trees = random_trees(3, 1)
  cache = read(tiny, PREFIXES[1:2])
  mix = jax.random.normal(jax.random.key(0), (23,))

  def logit(vectors):
    embed = lambda params, tokens: vectors
    with mock.patch.object(llama_model, 'embed', embed):
      return tree_logits(tiny, trees, cache)[0] @ mix

  vectors = llama_model.embed(tiny, trees.tokens)
  slopes = jax.jit(jax.jacrev(logit))(vectors)[:, 0]  # [N, N, E]
  felt = np.zeros((N, N), bool)
  for node in range(N):
    ancestor = node
    while ancestor >= 0:
      felt[node, ancestor] = True
      ancestor = int(trees.parents[0, ancestor])
  np.testing.assert_array_equal(np.any(slopes != 0, axis=2), felt)


# Kinds: rows or nodes mixed up where logits of all are made at once.
def test_the_head_at_all_nodes_at_once_decides_alike(tiny):
  cache = read(tiny, PREFIXES)
  trees = random_trees(1, len(PREFIXES))
  trees = trees.replace(tokens=trees.tokens % 5)
  rows = len(PREFIXES)
  params = base.Params(tiny, (), sampling_lib.make(rows, 0.3))
  proposal = base.Proposal(trees)
  found, shapes_of_heads = [], []
  head = llama_model.head

  def watched(verifier, hidden):
    shapes_of_heads.append(hidden.shape[:-1])
    return head(verifier, hidden)

  for limit in (rows * N - 1, rows * N):
    with (
      mock.patch.object(verify, '_AT_ONCE', limit),
      mock.patch.object(llama_model, 'head', watched),
    ):
      judge = jax.jit(
        lambda seeds: verify.verify(
          params, proposal, cache, seeds, jnp.ones(rows, bool)
        )[0]
      )
      seeds = jnp.arange(8 * rows, dtype=jnp.uint32).reshape(8, rows)
      found.append([judge(some) for some in seeds])
  assert shapes_of_heads[-1] == (rows, N)
  assert {len(shape) for shape in shapes_of_heads[:-1]} == {1}
  lengths = np.stack([verdict.num_accepted for verdict in found[0]])
  assert len(np.unique(lengths)) > 1
  for one, other in zip(*found, strict=True):
    for name in ('path', 'tokens', 'num_accepted'):
      np.testing.assert_array_equal(getattr(one, name), getattr(other, name))
    np.testing.assert_allclose(one.log_p, other.log_p, atol=1e-5)


# The enumeration: a row's seed spells the tokens that its draws give, three
# tokens long, and a row for every spelling makes the output law.  By the
# Gumbel-max trick the true draw gives a token with the probability that the
# verdict says.

VOCAB, LENGTH = 3, 3
PROMPT, OUTPUT = [0, 2], [1]
TEXT = [*PROMPT, *OUTPUT]
SPELLINGS = list(itertools.product(range(VOCAB), repeat=LENGTH))
# At temperature 0 verdicts tell of another law than that which is sampled.
SETTINGS = reference_rules.SETTINGS.keys() - {'greedy'}
SHAPES = {
  'chain': shapes.chain,
  '2-ary': lambda n: shapes.k_ary(n, 2),
  '3-ary': lambda n: shapes.k_ary(n, 3),
  'best-first': lambda n: shapes.best_first(n, [0.5, 0.3, 0.2]),
}


def spelled(log_p, seeds, positions, use=noise_lib.USE_TOKEN):
  """Stands in for `sampling.choose`."""
  del log_p, use
  place = (positions - len(TEXT)).astype(jnp.uint32)
  return ((seeds // 3**place) % 3).astype(jnp.int32)


def filled(shape_fn, sizes, rng):
  """Trees of several sizes; ranks of a node are a random order of tokens.

  The first n nodes of these shapes are the shape of n nodes.
  """
  shape = shape_fn(N)
  parents, tokens = [], []
  for _ in sizes:
    ranked = np.stack([rng.permutation(VOCAB) for _ in range(N)])
    parents.append(shape.parents)
    tokens.append(
      [TEXT[-1], *ranked[shape.parents[1:], shape.ranks[1:]].tolist()]
    )
  return tree_of(parents, tokens, sizes)


@jax.jit
def verify_spelled(params, trees, cache, seeds):
  rows = seeds.shape[0]
  full = lambda value: jnp.full(rows, value)
  history = edits.history(
    jnp.tile(jnp.asarray(TEXT), (rows, 1)),
    full(len(PROMPT)),
    full(len(TEXT)),
    VOCAB,
  )
  with mock.patch.object(sampling_lib, 'choose', spelled):
    return verify.verify(
      params, base.Proposal(trees), cache, seeds, full(True), history=history
    )[0]


def slow_conditionals(params, setting):
  """The law `[V]` after every continuation of fewer than three tokens."""
  return {
    words: reference_edits.slow_law(
      reference_decode.logits_after(params, [*TEXT, *words])[-1],
      setting,
      PROMPT,
      [*OUTPUT, *words],
    )
    for size in range(LENGTH)
    for words in itertools.product(range(VOCAB), repeat=size)
  }


def chance(conditionals, spelling, places):
  """The product of a spelling's probabilities at some of its places."""
  return np.prod([conditionals[spelling[:d]][spelling[d]] for d in places])


def output_law(params, trees, setting):
  """Laws `[trees, spellings]` of the first three tokens: found and wanted.

  What a tree emits has the probability that its verdict says; after it the
  text goes on by the slow law.
  """
  num_trees, num_spellings = len(trees.num_nodes), len(SPELLINGS)
  rows = num_trees * num_spellings
  each = lambda x: jnp.repeat(x, num_spellings, axis=0)
  cache = read(params, [TEXT])
  cache = cache.replace(
    keys=jnp.repeat(cache.keys[..., :8], rows, axis=1),
    values=jnp.repeat(cache.values[..., :8, :], rows, axis=1),
    length=jnp.repeat(cache.length, rows),
  )
  spell = [sum(w[d] * VOCAB**d for d in range(LENGTH)) for w in SPELLINGS]
  verdict = jax.device_get(
    verify_spelled(
      base.Params(params, (), reference_edits.sampling_of([setting] * rows)),
      jax.tree.map(each, trees),
      cache,
      jnp.asarray(spell * num_trees, jnp.uint32),
    )
  )
  conditionals = slow_conditionals(params, setting)
  laws = np.zeros((2, num_trees, num_spellings))
  for tree in range(num_trees):
    words = reference_decode.words_of(trees, tree)
    for i, spelling in enumerate(SPELLINGS):
      row = tree * num_spellings + i
      # Past its three tokens a seed spells zeros.
      wanted = [*spelling, *[0] * N]
      emitted = len(reference_decode.longest(words, wanted)) + 1
      assert verdict.num_accepted[row] == emitted
      assert verdict.tokens[row, :emitted].tolist() == wanted[:emitted]
      known = min(emitted, LENGTH)
      laws[0, tree, i] = np.exp(verdict.log_p[row, :known].sum()) * chance(
        conditionals, spelling, range(known, LENGTH)
      )
      laws[1, tree, i] = chance(conditionals, spelling, range(LENGTH))
  return laws


# Kinds: verification that is greedy at any temperature, tokens of probability
# zero that are accepted, penalties that see the last accepted token alone.
@pytest.mark.parametrize('asked', sorted(SETTINGS))
@pytest.mark.parametrize('name', SHAPES)
def test_output_law_is_the_sampled_law(tiny3, name, asked):
  trees = filled(SHAPES[name], range(1, N + 1), np.random.default_rng(0))
  found, wanted = output_law(tiny3, trees, reference_rules.SETTINGS[asked])
  np.testing.assert_allclose(found, wanted, atol=1e-6)
  np.testing.assert_allclose(found.sum(axis=1), 1, atol=1e-6)


def test_the_enumeration_sees_a_law_that_is_off_by_five_per_cent(tiny3):
  true_laws = sampling_lib.laws
  wrong_laws = lambda logits, *rest: true_laws(1.05 * logits, *rest)
  # A batch of its own size, so that no other test meets this trace.
  trees = filled(shapes.chain, [1, 3], np.random.default_rng(0))
  with mock.patch.object(sampling_lib, 'laws', wrong_laws):
    found, wanted = output_law(tiny3, trees, reference_edits.Setting())
  assert np.abs(found - wanted).max() > 1e-3
