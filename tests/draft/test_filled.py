"""What drawn trees hold, against the laws that they say they are drawn from."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference_decode

from specjax import noise as noise_lib
from specjax import sampling as sampling_lib
from specjax.decode import prefill
from specjax.draft import base, filled
from specjax.draft import reader as reader_lib
from specjax.trees import shapes

PROMPT = [1, 0, 2]
NUM_ROWS = 3000


def read(verifier):
  """Rows that differ in their seeds alone."""
  [batch] = prefill.read_prompts(
    verifier, [PROMPT] * NUM_ROWS, max_new_tokens=1, batch_size=NUM_ROWS
  )
  return batch.prefix


@pytest.fixture(scope='module')
def prefix(tiny3):
  return read(tiny3)


@functools.partial(jax.jit, static_argnums=(0, 5))
def propose_of(drafter, *args):
  return drafter.propose(*args)


def propose(verifier, prefix, drafter, num_nodes, settings=(1.0,)):
  sampling = sampling_lib.make(NUM_ROWS, *settings)
  params = base.Params(verifier, (), sampling)
  state = drafter.init(params, prefix)
  args = (params, state, prefix.tokens, prefix.lengths, num_nodes)
  return jax.device_get(propose_of(drafter, *args)[0])


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


def drawn(shape, max_nodes, replace=False):
  return filled.drawn(
    reader_lib.verifier(), lambda num_nodes: shape, max_nodes, replace
  )


# The root's children 1 and 2, and the only child 3 of 1.
FORKED = shapes.Shape(
  np.array([-1, 0, 0, 1], np.int32), np.array([0, 0, 1, 0], np.int32)
)
FORKS = {replace: drawn(FORKED, 4, replace) for replace in (False, True)}


@pytest.mark.parametrize('replace', [False, True])
def test_children_are_drawn_from_the_laws_on_their_branch(
  tiny3, prefix, replace
):
  proposal = propose(tiny3, prefix, FORKS[replace], 4)
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


# Kinds: a law that is drawn from in one precision and told in another.
@pytest.mark.parametrize('replace', [False, True])
def test_drafts_are_what_the_told_laws_give_under_their_noise(tiny3, replace):
  half = jax.tree.map(lambda x: x.astype(jnp.bfloat16), tiny3)
  prefix = read(half)
  proposal = propose(half, prefix, FORKS[replace], 4)
  tokens, laws = proposal.tree.tokens, proposal.log_q_full
  assert laws.dtype == np.float32

  def ranked(parent, depth, noisy_node):
    """The tokens behind a node, by its law with a node's noise."""
    noise = jax.vmap(noise_lib.gumbel, in_axes=(0, None, None, None))(
      prefix.seeds, len(PROMPT) + depth, noise_lib.draft_use(noisy_node), 3
    )
    return np.argsort(-(laws[:, parent] + noise), axis=1)

  if replace:
    first, second, below = ranked(0, 0, 1), ranked(0, 0, 2), ranked(1, 1, 3)
    expected = [first[:, 0], second[:, 0], below[:, 0]]
  else:
    expected = [*ranked(0, 0, 0)[:, :2].T, ranked(1, 1, 1)[:, 0]]
  np.testing.assert_array_equal(tokens[:, 1:].T, expected)


def test_tokens_that_cannot_be_sampled_are_drawn_last(tiny3, prefix):
  """Top-k of 1 leaves one token: its siblings say that they are none."""
  proposal = propose(tiny3, prefix, FORKS[False], 4, (1.0, 1))
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
def test_what_cannot_be_drawn_is_refused(
  tiny3, prefix, shape, max_nodes, message
):
  drafter = drawn(shape, max_nodes)
  with pytest.raises(ValueError, match=message):
    propose(tiny3, prefix, drafter, len(shape.parents))
