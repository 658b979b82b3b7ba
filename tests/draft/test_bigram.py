"""The bigram drafter against counting in plain Python."""

import collections
import itertools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference_decode

from specjax.draft import base, bigram
from specjax.trees import shapes

VOCAB = 12
CORPUS = [[1, 2, 3, 1, 2, 4], [1, 5, 2, 3], [9, 9, 9]]


def slow_ranked(text, table, token):
  counts, latest = collections.Counter(), {}
  for place in range(len(text) - 1):
    if text[place] == token:
      counts[text[place + 1]] += 1
      latest[text[place + 1]] = place
  own = sorted(counts, key=lambda t: (counts[t], latest[t]), reverse=True)
  return own + [int(t) for t in table[token] if t not in own]


def slow_words(text, table, shape):
  words = [()]
  for parent, rank in zip(shape.parents[1:], shape.ranks[1:], strict=True):
    last = words[parent][-1] if words[parent] else text[-1]
    words.append((*words[parent], slow_ranked(text, table, last)[rank]))
  return words


SHAPES = [
  shapes.chain,
  lambda n: shapes.k_ary(n, 3),
  lambda n: shapes.best_first(n, [0.2, 0.5, 0.1, 0.1]),
  bigram.default_shape,
]


class Case(NamedTuple):
  """Random texts, padded with a token that is not there yet."""

  texts: list
  tokens: jax.Array
  lengths: jax.Array
  params: base.Params

  def propose(self, shape_fn, num_nodes):
    propose = jax.jit(bigram.make(shape_fn).propose, static_argnums=4)
    proposal, _ = propose(self.params, (), self.tokens, self.lengths, num_nodes)
    return proposal.tree


@pytest.fixture(scope='module')
def case():
  rng = np.random.default_rng(0)
  texts = [
    rng.integers(0, alphabet, size).tolist()
    for alphabet in (2, 5, VOCAB)
    for size in (1, 2, 9, 40)
  ]
  tokens = np.zeros((len(texts), 40), np.int32)
  for row, text in zip(tokens, texts, strict=True):
    row[: len(text)] = text
  table = bigram.corpus_table(CORPUS, VOCAB, 9)
  return Case(
    texts,
    jnp.asarray(tokens),
    jnp.asarray([len(t) for t in texts]),
    base.Params(None, table, None),
  )


@pytest.mark.parametrize('shape_fn', SHAPES)
def test_fills_any_shape_by_rank(case, shape_fn):
  table = np.asarray(case.params.drafter)
  for num_nodes in (1, 2, 13):
    shape = shape_fn(num_nodes)
    tree = case.propose(shape_fn, num_nodes)
    for row, text in enumerate(case.texts):
      words = reference_decode.words_of(tree, row)
      assert words == slow_words(text, table, shape)
      # Siblings are distinct, and their probabilities sum to at most 1.
      assert len(set(words)) == len(words) == num_nodes
      mass = np.zeros(num_nodes)
      np.add.at(mass, shape.parents[1:], np.exp(tree.log_q[row, 1:]))
      assert np.all(mass <= 1 + 1e-6)


def test_edges_that_the_text_does_not_know_are_counted(case):
  tree = case.propose(bigram.default_shape, 13)
  got = bigram.num_unheard(tree, case.tokens, case.lengths)
  for row, text in enumerate(case.texts):
    known = set(itertools.pairwise(text))
    expected = [
      sum(edge not in known for edge in itertools.pairwise([text[-1], *word]))
      for word in reference_decode.words_of(tree, row)
    ]
    assert got[row].tolist() == expected
  assert {0, 1, 2} <= set(np.asarray(got).flat)


def test_corpus_table_ranks_by_count_then_id_then_frequency():
  table = np.asarray(bigram.corpus_table(CORPUS, VOCAB, 6))
  np.testing.assert_array_equal(table[1, :2], [2, 5])
  np.testing.assert_array_equal(table[2, :2], [3, 4])
  # Frequencies: 1, 2 and 9 three times, 3 twice, then 4 and 5.
  np.testing.assert_array_equal(table[7], [1, 2, 9, 3, 4, 5])
  for row in table:
    assert len(set(row)) == 6


@pytest.mark.parametrize('ranks', [0, 13])
def test_impossible_tables_are_refused(ranks):
  with pytest.raises(ValueError, match='num_ranks'):
    bigram.corpus_table(CORPUS, VOCAB, ranks)


def test_tokens_outside_the_vocabulary_are_named():
  with pytest.raises(ValueError, match=r'\[0, 5\), got 9'):
    bigram.corpus_table(CORPUS[2:], 5, 3)


def test_a_shape_of_more_ranks_than_the_table_is_refused():
  params = base.Params(None, bigram.corpus_table(CORPUS, VOCAB, 2), None)
  drafter = bigram.make(lambda n: shapes.k_ary(n, 3))
  with pytest.raises(ValueError, match='ranks below 2, got rank 2'):
    drafter.propose(params, (), jnp.zeros((1, 8), int), jnp.array([3]), 4)


def test_the_table_of_another_vocabulary_is_refused(tiny):
  params = base.Params(tiny, bigram.corpus_table(CORPUS, VOCAB, 2), None)
  with pytest.raises(ValueError, match='of 23 tokens, got 12'):
    bigram.make().init(params, None)
