"""Prompt lookup against a slow twin in plain Python."""

import collections
import math

import jax
import jax.numpy as jnp
import numpy as np
import reference_decode

from specjax.draft import lookup


def slow_lookup(text, num_nodes, max_match, num_matches):
  """The words of the tree as a set, with their costs."""
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
  matches = sorted(matches, reverse=True)[:num_matches]
  weight = collections.Counter()
  for size, end in matches:
    words = []
    for step in range(num_nodes - 1):
      words.append(text[end + 1 + step % (last - end)])
      weight[tuple(words)] += 3.0**size
  total = sum(3.0**size for size, _ in matches)
  costs = {
    words: -math.log(w / total) + 0.2 * len(words)
    for words, w in weight.items()
  }
  return {(): 0.0} | dict(
    sorted(costs.items(), key=lambda item: item[1])[: num_nodes - 1]
  ), costs


def propose(texts, num_nodes, size=64, **options):
  tokens = np.full((len(texts), size), 99, np.int32)
  for row, text in zip(tokens, texts, strict=True):
    row[: len(text)] = text
  lengths = jnp.asarray([len(t) for t in texts])
  propose_fn = jax.jit(lookup.make(**options).propose, static_argnums=4)
  proposal, _ = propose_fn(None, (), jnp.asarray(tokens), lengths, num_nodes)
  return proposal.tree


def test_equals_slow_twin_on_random_texts():
  rng = np.random.default_rng(0)
  texts = [
    rng.integers(0, alphabet, size).tolist()
    for alphabet in (1, 2, 3, 6, 40)
    for size in (1, 2, 3, 17, 50, 64)
  ]
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
