"""Prompt lookup against a slow twin in plain Python."""

import collections
import math

import jax
import jax.numpy as jnp
import numpy as np
import reference_decode

from specjax.draft import lookup


def slow_matches(text, max_match, num_matches):
  """Sizes and ends of the matches, the best first."""
  last = len(text) - 1
  matches = []
  for end in range(last):
    size = 0
    while (
      size < max_match and size <= end and text[end - size] == text[last - size]
    ):
      size += 1
    if size:
      matches.append((size, end))
  return sorted(matches, reverse=True)[:num_matches]


def continuation(text, end, depth):
  """The word that follows a match, repeated where the text ends."""
  period = len(text) - 1 - end
  return tuple(text[end + 1 + step % period] for step in range(depth))


def slow_lookup(text, num_nodes, max_match, num_matches):
  """The words of the tree as a set, with their costs."""
  matches = slow_matches(text, max_match, num_matches)
  weight = collections.Counter()
  for size, end in matches:
    words = continuation(text, end, num_nodes - 1)
    for depth in range(1, num_nodes):
      weight[words[:depth]] += 3.0**size
  total = sum(3.0**size for size, _ in matches)
  costs = {
    words: -math.log(w / total) + 0.2 * len(words)
    for words, w in weight.items()
  }
  return {(): 0.0} | dict(
    sorted(costs.items(), key=lambda item: item[1])[: num_nodes - 1]
  ), costs


def padded(texts, size=64):
  """Texts as rows, with what is not there yet behind them; and lengths."""
  tokens = np.full((len(texts), size), 99, np.int32)
  for row, text in zip(tokens, texts, strict=True):
    row[: len(text)] = text
  return jnp.asarray(tokens), jnp.asarray([len(t) for t in texts])


def propose(texts, num_nodes, **options):
  propose_fn = jax.jit(lookup.make(**options).propose, static_argnums=4)
  proposal, _ = propose_fn(None, (), *padded(texts), num_nodes)
  return proposal.tree


def random_texts():
  rng = np.random.default_rng(0)
  return [
    rng.integers(0, alphabet, size).tolist()
    for alphabet in (1, 2, 3, 6, 40)
    for size in (1, 2, 3, 17, 50, 64)
  ]


def test_equals_slow_twin_on_random_texts():
  texts = random_texts()
  for num_nodes in (1, 2, 5, 16):
    trees = propose(texts, num_nodes, max_match=3, num_matches=5)
    for row, text in enumerate(texts):
      expected, all_costs = slow_lookup(text, num_nodes, 3, 5)
      words = reference_decode.words_of(trees, row)
      assert trees.tokens[row, 0] == text[-1]
      assert len(set(words)) == len(words) == len(expected)
      # Equal costs may be taken in either order.
      costs = sorted(all_costs[w] for w in words[1:])
      np.testing.assert_allclose(
        costs, sorted(v for w, v in expected.items() if w), atol=1e-4
      )


def test_match_lengths_are_those_of_the_longest_match_behind_a_node():
  texts = random_texts()
  lengths_fn = jax.jit(lookup.match_lengths, static_argnums=(2, 3, 4))
  for num_nodes in (1, 2, 16):
    trees = propose(texts, num_nodes, max_match=3, num_matches=5)
    got = np.asarray(lengths_fn(*padded(texts), num_nodes, 3, 5))
    assert got.shape == (len(texts), num_nodes)
    for row, text in enumerate(texts):
      words = reference_decode.words_of(trees, row)
      matches = slow_matches(text, 3, 5)
      expected = [
        max(
          size
          for size, end in matches
          if continuation(text, end, len(word)) == word
        )
        for word in words[1:]
      ]
      assert got[row, : len(words)].tolist() == [0, *expected]
      assert not got[row, len(words) :].any()
  assert set(got.flat) == {0, 1, 2, 3}


def test_nothing_to_look_up_proposes_the_root_alone():
  tree = propose([[1, 2, 3, 4], [5]], 8)
  np.testing.assert_array_equal(tree.num_nodes, [1, 1])
  np.testing.assert_array_equal(tree.tokens[:, 0], [4, 5])


def test_a_copied_text_is_proposed_as_a_chain():
  text = [*range(20), 50, 3, 4, 5]
  words = reference_decode.words_of(propose([text], 8))
  assert words[-1] == tuple(range(6, 13))


def test_a_text_that_repeats_itself_is_continued():
  words = reference_decode.words_of(propose([[1, 2] * 3], 9, num_matches=1))
  assert words[-1] == (1, 2) * 4


def test_matches_that_part_make_branches():
  # After 7 came 1 twice and 2 once.
  text = [7, 1, 0, 7, 2, 0, 7, 1, 9, 7]
  words = reference_decode.words_of(propose([text], 6))
  assert {(1,), (2,)} <= set(words)
  assert words.index((1,)) < words.index((2,))
