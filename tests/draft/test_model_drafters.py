"""Drafters that run a model: their caches, their texts and what they compile.

The verifier is planted behind them, so that full, partial and no acceptance all
happen: as it is, made dull, or with the rows of its head shuffled.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference_decode

from specjax import sampling as sampling_lib
from specjax.decode import generate, loop, prefill
from specjax.draft import base, dulled, filled, grown
from specjax.draft import reader as reader_lib
from specjax.llama import model as llama_model
from specjax.trees import grow, rules, shapes

VOCAB = 23
EOS = (3,)
# With their outputs of at most 16 tokens, or of more than 64 and at most 80.
PROMPTS = [[4], [1, 2, 3], [7, 7, 9], list(range(11)) * 6]
SEEDS = [5, 6, 7, 8]
TEMPERATURES = (0.0, 1.0, 0.0, 0.7)
MAX_NEW = 13
SKIPPED_TO = (1,)
SIGMA = 0.8
DEEPEST = 3  # as far as the rules go


class Case(NamedTuple):
  """A drafter, what its model says after a text, and what is to happen."""

  reader: reader_lib.Reader
  drafter: base.Drafter
  drafter_params: Any
  num_nodes: int
  logits_fn: Callable[[list], np.ndarray]
  kinds: set


def without_layers(params, layers):
  """The model that has these layers alone."""
  stacks = jax.tree.map(lambda x: x[jnp.asarray(layers)], params.weights)
  config = dataclasses.replace(params.config, num_layers=len(layers))
  return llama_model.Params(
    params.weights | {'layers': stacks['layers']}, config
  )


def dull_logits(verifier, text):
  """By the definition, with a context's number summed in Python."""
  number = 0
  for token in text:
    number = (number * 0x9E3779B1 + token + 1) % 2**32
  key = jax.random.fold_in(jax.random.key(0), jnp.uint32(number))
  logits = reference_decode.logits_after(verifier, text)[-1]
  noise = np.asarray(jax.random.normal(key, (VOCAB,)))
  return np.asarray(jax.nn.log_softmax(logits)) + SIGMA * noise


def perturbed(verifier):
  """A model that is near the verifier."""
  noise = lambda x: x + 0.03 * jax.random.normal(jax.random.key(1), x.shape)
  return verifier.replace(weights=jax.tree.map(noise, verifier.weights))


def make_case(name, verifier):
  near = perturbed(verifier)
  small = reader_lib.small_llama(near.config, verifier.config)
  of_near = lambda text: reference_decode.logits_after(near, text)[-1]
  every = {'none', 'partial', 'full'}
  if name == 'beam':
    rule_fn = lambda n: rules.beam(n, 3, 3)
    drafter = grown.make(small, rule_fn, 16, EOS)
    return Case(small, drafter, near, 16, of_near, every)
  if name == 'few layers':
    reader = reader_lib.layer_skip(verifier.config, SKIPPED_TO)
    rule_fn = lambda n: rules.best_first(n, 3)
    drafter = grown.make(reader, rule_fn, 6, EOS)
    sliced = without_layers(verifier, SKIPPED_TO)
    logits_fn = lambda text: reference_decode.logits_after(sliced, text)[-1]
    return Case(reader, drafter, (), 6, logits_fn, {'none', 'partial'})
  rule_fn = lambda n: rules.opt_tree(n, 3, 3, 0.05)
  drafter = grown.make(dulled.reader(), rule_fn, 6, EOS)
  dull = functools.partial(dull_logits, verifier)
  return Case(dulled.reader(), drafter, jnp.float32(SIGMA), 6, dull, every)


def mixed_sampling():
  made = sampling_lib.make(len(PROMPTS))
  return made.replace(temperature=jnp.asarray(TEMPERATURES))


def read_prompts(
  verifier,
  prompts=PROMPTS,
  seeds=SEEDS,
  sampling=None,
  max_new_tokens=MAX_NEW,
):
  [batch] = prefill.read_prompts(
    verifier,
    prompts,
    max_new_tokens=max_new_tokens,
    sampling=sampling or mixed_sampling(),
    seeds=seeds,
    batch_size=len(prompts),
  )
  return batch


def iterations(verifier, case):
  """Yields the parameters and the state after each iteration."""
  batch = read_prompts(verifier)
  params = base.Params(verifier, case.drafter_params, batch.sampling)
  drafter_state = case.drafter.init(params, batch.prefix)
  state = loop.start(batch.prefix, batch.limits, drafter_state, MAX_NEW)
  state = jax.tree.map(jnp.copy, state)  # `run` takes what it is given
  while not np.all(state.is_done):
    state = loop.run(
      params,
      state,
      1,
      drafter=case.drafter,
      num_nodes=case.num_nodes,
      eos_ids=EOS,
    )
    yield params, state


@functools.partial(jax.jit, static_argnums=0)
def next_logits(reader, params, state):
  """What a reader says after the last token, from its memory."""
  roots = base.last_tokens(state.tokens, state.lengths)[:, None]
  nodes = grow.Nodes(
    tokens=roots,
    depths=jnp.zeros_like(roots),
    slots=jnp.ones_like(roots),
    parent_slots=jnp.full_like(roots, grow.NO_SLOT),
    above=jnp.zeros((*roots.shape, 1), bool),
  )
  return reader.read(params, state.drafter, nodes)[0][:, 0]


def texts(verifier):
  results = generate.decode(verifier, read_prompts(verifier), eos_ids=EOS)
  return [[*p, *r.tokens] for p, r in zip(PROMPTS, results, strict=True)]


def kinds_of(depths):
  """What iterations are called that accepted so many nodes of a path."""
  kinds = {'none'} if 0 in depths else set()
  kinds |= {'full'} if DEEPEST in depths else set()
  return kinds | ({'partial'} if set(depths) - {0, DEEPEST} else set())


@pytest.mark.parametrize('name', ['beam', 'few layers', 'dulled'])
def test_after_every_iteration_the_drafter_knows_the_text(tiny, name):
  case = make_case(name, tiny)
  expected = texts(tiny)
  for params, state in iterations(tiny, case):
    logits = next_logits(case.reader, params, state)
    for row, length in enumerate(np.asarray(state.lengths)):
      text = state.tokens[row, :length].tolist()
      assert text == expected[row][:length]
      np.testing.assert_allclose(logits[row], case.logits_fn(text), atol=2e-4)
  assert [int(n) for n in state.lengths] == [len(t) for t in expected]
  kinds, full_then_not = set(), False
  for row, count in enumerate(np.asarray(state.num_steps)):
    depths = np.asarray(state.steps.depth[row, :count])
    kinds |= kinds_of(depths)
    full_then_not |= np.any((depths[:-1] == DEEPEST) & (depths[1:] < DEEPEST))
  assert kinds >= case.kinds
  assert full_then_not or 'full' not in case.kinds


def test_the_verifier_as_its_own_drafter_is_accepted_as_planted(tiny):
  """A greedy chain is accepted whole; with a shuffled head none of it is."""
  config = dataclasses.replace(tiny.config, tie_embeddings=False)
  small = reader_lib.small_llama(config, tiny.config)
  drafter = filled.best(small, shapes.chain, 5, ())
  with_head = lambda head: llama_model.Params(
    tiny.weights | {'head': head}, config
  )
  embed = tiny.weights['embed']

  def check(head, seeds, prompts, depths):
    batch = read_prompts(tiny, prompts, seeds, sampling_lib.make(4, 0.0), 31)
    plain = generate.decode(tiny, batch, eos_ids=())
    results = generate.decode(
      tiny,
      batch,
      eos_ids=(),
      drafter=drafter,
      drafter_params=with_head(head),
      num_nodes=5,
    )
    assert [r.tokens for r in results] == [r.tokens for r in plain]
    for result in results:
      assert result.steps.depth.tolist() == depths

  check(embed, SEEDS, PROMPTS, [4] * 7)
  num_programs = loop.run._cache_size()
  check(jnp.roll(embed, 1, axis=0), SEEDS, PROMPTS, [0] * 31)
  check(embed, [1, 2, 3, 4], [[9, 8], [1] * 40, [5], [2, 6, 2]], [4] * 7)
  # Other weights, seeds, prompts, lengths and acceptances compile nothing.
  assert loop.run._cache_size() == num_programs


def test_drafts_of_the_very_law_are_accepted_from_first_to_last(tiny):
  """Chains that are drawn from p itself, for 512 tokens."""
  long = tiny.replace(
    config=dataclasses.replace(tiny.config, max_positions=1024)
  )
  batch = read_prompts(long, max_new_tokens=512)
  drafter = filled.drawn(reader_lib.verifier(), shapes.chain, 8, False)
  results = generate.decode(
    long,
    batch,
    eos_ids=(),
    drafter=drafter,
    num_nodes=8,
    rule='without_replacement',
  )
  for result in results:
    assert result.steps.depth.tolist() == [7] * 64


@pytest.mark.parametrize(
  'make, message',
  [
    (
      lambda config: reader_lib.small_llama(
        dataclasses.replace(config, vocab_size=29), config
      ),
      'of 23 tokens, got 29',
    ),
    (
      lambda config: reader_lib.layer_skip(config, (0, 2)),
      r'layers of 0 to 1, got \(0, 2\)',
    ),
    (
      lambda config: reader_lib.layer_skip(config, ()),
      r'layers of 0 to 1, got \(\)',
    ),
    (
      lambda config: reader_lib.layer_skip(config, (1, 0)),
      r'rising layers .* got \(1, 0\)',
    ),
    (
      lambda config: grown.make(
        reader_lib.verifier(), lambda n: rules.beam(n, 2, 2), 8, EOS
      ),
      'at most 7 nodes',
    ),
  ],
)
def test_what_cannot_draft_is_refused(tiny, make, message):
  with pytest.raises(ValueError, match=message):
    make(tiny.config)
