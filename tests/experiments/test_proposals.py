"""Proposals along texts against the words of their trees, place by place."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference_decode

from experiments import proposals
from specjax.draft import base, bigram, lookup
from specjax.trees import tree as tree_lib

VOCAB, LIMIT = 23, 5
CAPACITIES = [1, 3]
MAX_DEPTH = 2  # of a tree of three nodes
NUM_NODES = 12
PROMPT_LENGTHS = np.array([9, 4, 12, 1])
# Two texts end before the limit, one within a tree of the last place; the last
# row only fills the batch.
NUM_TOKENS = np.array([3, 7, 6])


@pytest.fixture(scope='module')
def tokens():
  """Prompts and outputs that repeat themselves much, padded with 0."""
  rng = np.random.default_rng(0)
  rows = np.zeros((len(PROMPT_LENGTHS), 24), np.int32)
  lengths = PROMPT_LENGTHS + np.append(NUM_TOKENS, 0)
  for row, length in zip(rows, lengths, strict=True):
    row[:length] = rng.integers(1, 3, length)
  return rows


def make(name):
  if name == 'lookup':
    return lookup.make(), ()
  return bigram.make(), bigram.corpus_table([[1, 2, 3, 1, 3, 3]], VOCAB)


@pytest.fixture(scope='module', params=list(proposals.ORIGINS))
def found(request, tokens):
  """The drafter's name, and what it proposes everywhere."""
  told = []
  arrays = proposals.everywhere(
    request.param,
    make(request.param),
    tokens,
    PROMPT_LENGTHS,
    NUM_TOKENS,
    CAPACITIES,
    LIMIT,
    told.append,
  )
  assert sum(told) == LIMIT * len(NUM_TOKENS)
  return request.param, arrays


PLACES = [
  (row, place)
  for row, count in enumerate(NUM_TOKENS)
  for place in range(min(count, LIMIT))
]


@pytest.fixture(scope='module')
def alone(found, tokens):
  """What is known of the trees at `PLACES` without the tokens to come."""
  name, _ = found
  drafter, params = make(name)
  lengths = np.array([PROMPT_LENGTHS[row] + place for row, place in PLACES])
  rows = tokens[[row for row, _ in PLACES]]
  rows = np.where(np.arange(tokens.shape[1]) < lengths[:, None], rows, 0)

  @jax.jit
  def propose(rows, lengths):
    proposal, _ = drafter.propose(
      base.Params(None, params, None), (), rows, lengths, NUM_NODES
    )
    trees = proposal.tree
    log_q = jax.vmap(tree_lib.path_sum)(trees.parents, trees.log_q)
    return trees, log_q, proposals.ORIGINS[name](trees, rows, lengths)

  known = propose(jnp.asarray(rows), jnp.asarray(lengths))
  return jax.tree.map(np.asarray, known)


def test_the_future_is_not_seen(found, alone):
  arrays = found[1]
  trees, log_q, groups = alone
  for i, at in enumerate(PLACES):
    here = np.arange(NUM_NODES) < trees.num_nodes[i]
    assert arrays['num_nodes'][at] == trees.num_nodes[i]
    np.testing.assert_array_equal(arrays['parents'][at], trees.parents[i])
    np.testing.assert_allclose(arrays['scores'][at], log_q[i], atol=1e-6)
    np.testing.assert_array_equal(arrays['groups'][at][here], groups[i][here])


def test_accepted_nodes_are_what_the_text_says(found, alone, tokens):
  arrays = found[1]
  depths, ended = set(), 0
  for i, (row, place) in enumerate(PLACES):
    start = PROMPT_LENGTHS[row] + place
    coming = tuple(tokens[row, start : PROMPT_LENGTHS[row] + NUM_TOKENS[row]])
    words = reference_decode.words_of(alone[0], i)
    # What ends a text is followed by nothing, so it is no node.
    expected = [
      word == coming[: len(word)] and len(word) < len(coming) for word in words
    ]
    ended += coming in words[1:]
    depths |= {len(w) for w, e in zip(words, expected, strict=True) if e}
    expected = [
      is_said and len(word) <= MAX_DEPTH
      for word, is_said in zip(words, expected, strict=True)
    ]
    got = arrays['is_accepted'][row, place]
    assert got[: len(words)].tolist() == expected
    assert not got[len(words) :].any()
  # Texts that end, and go on deeper than any tree of three nodes.
  assert ended
  assert {0, 1, 2, 3} <= depths


def test_scores_never_rise_along_a_path(found):
  arrays = found[1]
  for row, place in PLACES:
    count = arrays['num_nodes'][row, place]
    parents = arrays['parents'][row, place, 1:count]
    scores = arrays['scores'][row, place]
    assert np.all(scores[1:count] <= scores[parents])
