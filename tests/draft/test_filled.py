"""What drawn trees hold, against the laws that they say they are drawn from."""

import functools
import itertools

import jax
import numpy as np
import pytest
import reference_decode

from specjax import sampling as sampling_lib
from specjax.decode import prefill
from specjax.draft import base, filled
from specjax.draft import reader as reader_lib
from specjax.trees import shapes

PROMPT = [1, 0, 2]
NUM_ROWS = 3000


def propose(verifier, shape_fn, num_nodes, replace, settings=(1.0,)):
  """Trees of many rows that differ in their seeds alone."""
  [batch] = prefill.read_prompts(
    verifier,
    [PROMPT] * NUM_ROWS,
    max_new_tokens=1,
    sampling=sampling_lib.make(NUM_ROWS, *settings),
    batch_size=NUM_ROWS,
  )
  drafter = filled.drawn(reader_lib.verifier(), shape_fn, num_nodes, replace)
  params = base.Params(verifier, (), batch.sampling)
  prefix = batch.prefix
  run = jax.jit(drafter.propose, static_argnums=4)
  state = drafter.init(params, prefix)
  proposal, _ = run(params, state, prefix.tokens, prefix.lengths, num_nodes)
  return jax.device_get(proposal)


def law_after(verifier, text):
  logits = reference_decode.logits_after(verifier, list(text))[-1]
  return reference_decode.slow_law(logits, 1.0, 0, 1.0, 0.0)


def check_counts(words, expected):
  """Every word comes as often as its probability says, within 4.5 sigma."""
  found = {}
  for word in map(tuple, words.tolist()):
    found[word] = found.get(word, 0) + 1
  assert set(found) <= {w for w, p in expected.items() if p > 0}
  for word, p in expected.items():
    spread = np.sqrt(len(words) * p * (1 - p)) + 1
    assert abs(found.get(word, 0) - len(words) * p) < 4.5 * spread


# The root's children 1 and 2, and the only child 3 of 1.
def forked(num_nodes):
  parents = np.array([-1, 0, 0, 1], np.int32)[:num_nodes]
  ranks = np.array([0, 0, 1, 0], np.int32)[:num_nodes]
  return shapes.Shape(parents, ranks)


@pytest.mark.parametrize('replace', [False, True])
def test_children_are_drawn_from_the_laws_on_their_branch(tiny3, replace):
  proposal = propose(tiny3, forked, 4, replace)
  trees, laws = proposal.tree, proposal.log_q_full
  law = functools.cache(lambda text: law_after(tiny3, text))
  root, expected = law(tuple(PROMPT)), {}
  for x, y, z in itertools.product(range(3), repeat=3):
    second = root[y] if replace else (x != y) * root[y] / (1 - root[x])
    expected[x, y, z] = root[x] * second * law((*PROMPT, x))[z]
  np.testing.assert_allclose(sum(expected.values()), 1, atol=1e-6)
  check_counts(trees.tokens[:, 1:], expected)
  # What is said of the laws.
  rows = np.arange(NUM_ROWS)
  np.testing.assert_allclose(np.exp(laws[0, 0]), root, atol=1e-5)
  for row in range(20):
    text = (*PROMPT, int(trees.tokens[row, 1]))
    np.testing.assert_allclose(np.exp(laws[row, 1]), law(text), atol=1e-5)
  for node, parent in enumerate([0, 0, 1], start=1):
    said = laws[rows, parent, trees.tokens[:, node]]
    np.testing.assert_array_equal(trees.log_q[:, node], said)


def test_tokens_that_cannot_be_sampled_are_drawn_last(tiny3):
  """Top-k of 1 leaves one token: its siblings say that they are none."""
  proposal = propose(tiny3, forked, 4, False, (1.0, 1))
  best = np.argmax(law_after(tiny3, tuple(PROMPT)))
  assert np.all(proposal.tree.tokens[:, 1] == best)
  assert np.all(proposal.tree.log_q[:, 1] == 0)
  assert np.all(proposal.tree.log_q[:, 2] == -np.inf)


@pytest.mark.parametrize(
  'shape, max_nodes, message',
  [
    (shapes.chain(5), 4, 'at most 4 nodes, got 5'),
    (shapes.k_ary(5, 4), 5, 'at most 3 children a node, .* got 4'),
    (
      shapes.Shape(np.r_[-1, 0, 0], np.r_[0, 1, 0]),
      3,
      r'got \[1, 0\] at node 0',
    ),
    (shapes.Shape(np.r_[-1, 0], np.r_[0, 1]), 2, r'got \[1\] at node 0'),
  ],
)
def test_what_cannot_be_drawn_is_refused(tiny3, shape, max_nodes, message):
  drafter = filled.drawn(
    reader_lib.verifier(), lambda n: shape, max_nodes, False
  )
  [batch] = prefill.read_prompts(tiny3, [PROMPT], max_new_tokens=1)
  params = base.Params(tiny3, (), batch.sampling)
  prefix = batch.prefix
  state = drafter.init(params, prefix)
  num_nodes = len(shape.parents)
  with pytest.raises(ValueError, match=message):
    drafter.propose(params, state, prefix.tokens, prefix.lengths, num_nodes)
