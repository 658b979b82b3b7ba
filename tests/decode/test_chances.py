"""Chances and residual laws: every tree that can be drawn, every outcome."""

import functools
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference_edits
import reference_rules

from specjax import edits
from specjax import sampling as sampling_lib
from specjax.decode import chances

VOCAB, LENGTH = 3, 3
PROMPT, OUTPUT = (0, 2), (1,)
SPELLINGS = list(itertools.product(range(VOCAB), repeat=LENGTH))
CONTEXTS = [w for n in range(4) for w in itertools.product(range(3), repeat=n)]
SHAPES = {
  'chain': (-1, 0, 1, 2),
  'three siblings': (-1, 0, 0, 0),
  'two, two below the first': (-1, 0, 0, 1, 1),
  'depth 3': (-1, 0, 0, 1, 1, 3),
}
RULES = ('with_replacement', 'without_replacement')
# What the drafter's laws look like: like the verifier's, without some of its
# tokens, sure.
DRAFTERS = [
  reference_edits.Setting(**asked)
  for asked in ({}, {'top_k': 2}, {'temperature': 0.0})
]


@functools.cache
def laws_by_context(seed, setting):
  """The sampled laws after every context, as log-probabilities."""
  logits = 1.5 * np.random.default_rng(seed).normal(size=(len(CONTEXTS), VOCAB))
  tokens = np.zeros((len(CONTEXTS), 6), np.int32)
  for row, words in zip(tokens, CONTEXTS, strict=True):
    row[: 3 + len(words)] = (*PROMPT, *OUTPUT, *words)
  lengths = jnp.asarray([3 + len(words) for words in CONTEXTS])
  history = history_of(
    jnp.asarray(tokens), jnp.full(len(CONTEXTS), 2), lengths, VOCAB
  )
  sampling = reference_edits.sampling_of([setting] * len(CONTEXTS))
  log_p = log_law(jnp.asarray(logits, jnp.float32), sampling, history)
  slow = {
    words: reference_edits.slow_law(row, setting, PROMPT, [*OUTPUT, *words])
    for words, row in zip(CONTEXTS, logits.astype(np.float32), strict=True)
  }
  return log_p, slow


log_law = jax.jit(sampling_lib.log_law)
history_of = jax.jit(edits.history, static_argnums=3)


def probabilities(log_laws):
  """Laws by context as the drafter draws from them."""
  laws = np.exp(np.asarray(log_laws, np.float64))
  laws /= laws.sum(axis=1, keepdims=True)
  return dict(zip(CONTEXTS, laws, strict=True))


def text_law(slow):
  """Probability of each spelling under laws by context."""
  chance = lambda text: np.prod(
    [slow[text[:d]][text[d]] for d in range(LENGTH)]
  )
  return np.array([chance(text) for text in SPELLINGS])


def add_text(law, slow, words, chance):
  """Adds what texts that begin with words are worth to the law of spellings."""
  if chance == 0:
    return
  if len(words) >= LENGTH:
    law[SPELLINGS.index(words[:LENGTH])] += chance
  else:
    for token, p in enumerate(slow[words]):
      add_text(law, slow, (*words, token), chance * p)


def index(words):
  return CONTEXTS.index(words)


@functools.partial(jax.jit, static_argnames='replaced')
def rejection_chances(log_p, log_q, tokens, is_child, replaced):
  return jax.vmap(
    functools.partial(chances.rejection_chances, replaced=replaced)
  )(log_p, log_q, tokens, is_child)


block_chance = jax.jit(jax.vmap(chances.block_chance))


def rejection_law(rule, shape, log_p, log_q, slow, drafter_laws):
  """The law of spellings, and the mean number of drafts accepted."""
  trees = list(reference_rules.all_trees(shape, VOCAB))
  inner = sorted(set(shape) - {-1})
  rows = [(tree, words, node) for tree, words in trees for node in inner]
  at = jnp.asarray([index(words[node]) for _, words, node in rows])
  found, rest = jax.device_get(
    rejection_chances(
      log_p[at],
      log_q[at],
      jnp.asarray([tree[0] for tree, _, _ in rows]),
      jnp.asarray([np.equal(shape, node) for _, _, node in rows]),
      rule == 'with_replacement',
    )
  )
  per_tree = lambda x: x.astype(float).reshape(len(trees), len(inner), -1)
  found, rest = per_tree(found), np.exp(per_tree(rest))
  law, mean = np.zeros(len(SPELLINGS)), 0.0
  for (tree, words), accepted, leaving in zip(trees, found, rest, strict=True):
    reached = np.zeros(len(shape))
    reached[0] = reference_rules.drafting_chance(
      rule, tree, words, drafter_laws
    )
    for node, left in enumerate(reached):
      mean += left * (node > 0)
      if node not in inner:
        add_text(law, slow, words[node], left)
        continue
      place = inner.index(node)
      for child in np.flatnonzero(np.equal(shape, node)):
        reached[child] = left * accepted[place, child]
        left -= reached[child]
      for token in range(VOCAB):
        add_text(law, slow, (*words[node], token), left * leaving[place, token])
  return law, mean


def block_law(log_p, log_q, slow, drafter_laws):
  """The law of spellings, and the mean number of drafts accepted."""
  shape = SHAPES['chain']
  trees = list(reference_rules.all_trees(shape, VOCAB))
  kept, steps = jnp.zeros(len(trees)), []
  for node in range(len(shape)):
    at = jnp.asarray([index(words[node]) for _, words in trees])
    drafts = jnp.asarray([tree[0][min(node + 1, 3)] for tree, _ in trees])
    is_last = jnp.full(len(trees), node + 1 == len(shape))
    *step, kept = block_chance(log_p[at], log_q[at], drafts, is_last, kept)
    steps.append([np.asarray(x, float) for x in step])
  law, mean = np.zeros(len(SPELLINGS)), 0.0
  for i, (tree, words) in enumerate(trees):
    left = reference_rules.drafting_chance('block', tree, words, drafter_laws)
    for node in reversed(range(len(shape))):
      chance, leaving = steps[node][0][i], np.exp(steps[node][1][i])
      for token in range(VOCAB) if left > 0 else ():
        add_text(
          law, slow, (*words[node], token), left * chance * leaving[token]
        )
      mean += left * chance * node
      left *= 1 - chance
  return law, mean


def laws_of(rule, shape, setting, drafter, error=1.0):
  """The law of spellings as found and as wanted."""
  log_p, slow = laws_by_context(0, setting)
  log_q, _ = laws_by_context(1, drafter)
  told = jax.nn.log_softmax(error * log_q)
  drafter_laws = probabilities(log_q)
  if rule == 'block':
    found, _ = block_law(log_p, told, slow, drafter_laws)
  else:
    found, _ = rejection_law(rule, shape, log_p, told, slow, drafter_laws)
  return found, text_law(slow)


# Kinds: a rule that is greedy at any temperature, tokens of probability zero
# that are accepted, laws that are used up.
@pytest.mark.parametrize('name', reference_rules.SETTINGS)
@pytest.mark.parametrize('rule', [*RULES, 'block'])
def test_the_output_has_the_sampled_law(rule, name):
  setting = reference_rules.SETTINGS[name]
  for drafter in DRAFTERS:
    for shape in SHAPES.values() if rule != 'block' else [None]:
      found, wanted = laws_of(rule, shape, setting, drafter)
      np.testing.assert_allclose(found, wanted, atol=1e-6)


# Kinds: a law that is not the one that was drawn from.
@pytest.mark.parametrize('rule', [*RULES, 'block'])
def test_the_enumeration_sees_laws_of_drafts_off_by_five_per_cent(rule):
  plain = reference_edits.Setting()
  found, wanted = laws_of(rule, SHAPES['depth 3'], plain, plain, error=1.05)
  assert np.abs(found - wanted).max() > 1e-3


def test_blocks_win_what_single_drafts_do_or_more_and_what_can_be_or_less():
  gains = []
  for seed in range(4):
    log_p, slow = laws_by_context(seed, reference_edits.Setting())
    log_q, _ = laws_by_context(seed + 10, reference_edits.Setting())
    drafter_laws = probabilities(log_q)
    args = (log_p, log_q, slow, drafter_laws)
    _, one_by_one = rejection_law('with_replacement', SHAPES['chain'], *args)
    _, blocks = block_law(*args)
    most = sum(
      min(
        np.prod([slow[words[:d]][words[d]] for d in range(len(words))]),
        np.prod([drafter_laws[words[:d]][words[d]] for d in range(len(words))]),
      )
      for words in CONTEXTS[1:]
    )
    assert one_by_one <= blocks + 1e-6
    assert blocks <= most + 1e-6
    gains.append(blocks - one_by_one)
  assert max(gains) > 0.01


# Kinds: NaN where drafter and verifier agree, a sure draft that is rejected.
@pytest.mark.parametrize('replaced', [False, True])
def test_equal_laws_accept_the_first_draft_for_sure(replaced):
  log_p, _ = laws_by_context(0, reference_edits.Setting(top_k=2))
  log_p = jnp.concatenate([log_p, jnp.log(jnp.eye(VOCAB))])
  tokens = jnp.argmax(log_p, axis=1)
  found, rest = rejection_chances(
    log_p,
    log_p,
    jnp.stack([jnp.zeros_like(tokens), tokens, tokens], axis=1),
    jnp.asarray([[False, True, True]] * len(tokens)),
    replaced,
  )
  np.testing.assert_array_equal(found[:, 1], 1)
  assert not np.any(np.isnan(found)) and not np.any(np.isnan(rest))
  none = jnp.zeros(len(tokens))
  for is_last in (none > 1, none < 1):
    found, rest, kept = block_chance(log_p, log_p, tokens, is_last, none)
    np.testing.assert_array_equal(found, 1)
    np.testing.assert_array_equal(kept, 0)
    assert not np.any(np.isnan(rest))


# Kinds: a token of probability zero that is accepted.
def test_tokens_that_cannot_be_have_no_chance_at_all():
  log_p = jnp.log(jnp.asarray([[0.0, 0.5, 0.5]]))
  for q in ([0.2, 0.4, 0.4], [1.0, 0.0, 0.0], [0.0, 0.5, 0.5]):
    log_q = jnp.log(jnp.asarray([q]))
    found, rest = rejection_chances(
      log_p, log_q, jnp.asarray([[1, 0]]), jnp.asarray([[False, True]]), False
    )
    assert found[0, 1] == 0 and rest[0, 0] == -jnp.inf
    *_, kept = block_chance(
      log_p, log_q, jnp.zeros(1, int), jnp.zeros(1, bool), jnp.zeros(1)
    )
    assert kept[0] == -jnp.inf
    found, *_ = block_chance(
      log_p, log_q, jnp.ones(1, int), jnp.zeros(1, bool), kept
    )
    assert found[0] == 0
