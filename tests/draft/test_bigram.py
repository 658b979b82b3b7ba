"""The bigram drafter against counting in plain Python."""

import collections

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


@pytest.mark.parametrize(
  'shape_fn',
  [
    shapes.chain,
    lambda n: shapes.k_ary(n, 3),
    lambda n: shapes.best_first(n, [0.2, 0.5, 0.1, 0.1]),
    bigram.default_shape,
  ],
)
def test_fills_any_shape_by_rank(shape_fn):
  rng = np.random.default_rng(0)
  table = bigram.corpus_table(CORPUS, VOCAB, 9)
  texts = [
    rng.integers(0, alphabet, size).tolist()
    for alphabet in (2, 5, VOCAB)
    for size in (1, 2, 9, 40)
  ]
  tokens = np.zeros((len(texts), 40), np.int32)
  for row, text in zip(tokens, texts, strict=True):
    row[: len(text)] = text
  lengths = jnp.asarray([len(t) for t in texts])
  propose = jax.jit(bigram.make(shape_fn).propose, static_argnums=4)
  params = base.Params(None, table, None)
  for num_nodes in (1, 2, 13):
    shape = shape_fn(num_nodes)
    proposal, _ = propose(params, (), jnp.asarray(tokens), lengths, num_nodes)
    tree = proposal.tree
    for row, text in enumerate(texts):
      words = reference_decode.words_of(tree, row)
      assert words == slow_words(text, np.asarray(table), shape)
      # Siblings are distinct, and their probabilities sum to at most 1.
      assert len(set(words)) == len(words) == num_nodes
      mass = np.zeros(num_nodes)
      np.add.at(mass, shape.parents[1:], np.exp(tree.log_q[row, 1:]))
      assert np.all(mass <= 1 + 1e-6)


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
