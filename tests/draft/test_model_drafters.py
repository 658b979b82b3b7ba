"""Drafters that run a model: their caches, texts and what they compile."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference_programs
import reference_readers as readers

from specjax import sampling as sampling_lib
from specjax.decode import generate, loop
from specjax.draft import base, grown
from specjax.draft import reader as reader_lib
from specjax.trees import grow, rules

NUM_STEPS = 32  # that `generate` makes room for


def iterations(verifier, case):
  """Yields the parameters and the state after each iteration."""
  batch = readers.read_prompts(verifier)
  params = base.Params(verifier, case.drafter_params, batch.sampling)
  drafter_state = case.drafter.init(params, batch.prefix)
  state = loop.start(batch.prefix, batch.limits, drafter_state, NUM_STEPS)
  state = jax.tree.map(jnp.copy, state)  # `run` takes what it is given
  while not np.all(state.is_done):
    state = loop.run(
      params,
      state,
      1,
      drafter=case.drafter,
      num_nodes=case.num_nodes,
      eos_ids=readers.EOS,
      rule=case.rule,
    )
    yield params, state


@functools.partial(jax.jit, static_argnums=0)
def next_logits(reader, params, memory, roots):
  """What a reader says after the last tokens, from its memory."""
  nodes = grow.Nodes(
    tokens=roots,
    depths=jnp.zeros_like(roots),
    slots=jnp.ones_like(roots),
    parent_slots=jnp.full_like(roots, grow.NO_SLOT),
    above=jnp.zeros((*roots.shape, 1), bool),
  )
  return reader.read(params, memory, nodes)[0][:, 0]


def texts(verifier):
  results = generate.decode(
    verifier, readers.read_prompts(verifier), eos_ids=readers.EOS
  )
  return [
    [*p, *r.tokens] for p, r in zip(readers.PROMPTS, results, strict=True)
  ]


def kinds_of(depths):
  """What iterations are called that accepted so many nodes of a path."""
  kinds = {'none'} if 0 in depths else set()
  kinds |= {'full'} if readers.DEEPEST in depths else set()
  return kinds | ({'partial'} if set(depths) - {0, readers.DEEPEST} else set())


# Kinds: rejected drafts that stay in a cache, scattered nodes taken for a
# dense prefix, a hole behind a tree that was accepted whole.
@pytest.mark.parametrize('name', readers.CASES)
def test_after_every_iteration_the_drafter_knows_the_text(tiny, name):
  case = readers.make_case(name, tiny)
  expected = texts(tiny)
  # The rule that accepts by chance gives greedy rows alone their own text.
  is_known = np.equal(readers.TEMPERATURES, 0) | (case.rule == 'match')
  for params, state in iterations(tiny, case):
    roots = base.last_tokens(state.tokens, state.lengths)[:, None]
    memory = case.memory(state.drafter)
    logits = next_logits(case.reader, params, memory, roots)
    for row, length in enumerate(np.asarray(state.lengths)):
      text = state.tokens[row, :length].tolist()
      assert text == expected[row][:length] or not is_known[row]
      np.testing.assert_allclose(logits[row], case.logits_fn(text), atol=2e-4)
  lengths = np.array([len(text) for text in expected])
  np.testing.assert_array_equal(state.lengths[is_known], lengths[is_known])
  kinds, full_then_not = set(), False
  for row, count in enumerate(np.asarray(state.num_steps)):
    depths = np.asarray(state.steps.depth[row, :count])
    kinds |= kinds_of(depths)
    full_then_not |= np.any(
      (depths[:-1] == readers.DEEPEST) & (depths[1:] < readers.DEEPEST)
    )
  assert kinds >= case.kinds
  assert full_then_not or 'full' not in case.kinds


# Kinds: values that are taken for constants of a program.
@pytest.mark.parametrize('name', readers.CASES)
def test_other_requests_compile_nothing(tiny, name):
  case = readers.make_case(name, tiny)
  decode = lambda batch, drafter_params: generate.decode(
    tiny,
    batch,
    eos_ids=readers.EOS,
    drafter=case.drafter,
    drafter_params=drafter_params,
    num_nodes=case.num_nodes,
    rule=case.rule,
  )
  decode(readers.read_prompts(tiny), case.drafter_params)
  prompts = [list(range(5)) * 14, [1] * 40, [5], [2, 6]]
  others = jax.tree.map(lambda x: -x, case.drafter_params)
  sampling = sampling_lib.make(len(prompts), 0.6, 5, 0.9, 0.1)
  with reference_programs.compiled() as programs:
    decode(readers.read_prompts(tiny, prompts, range(4), sampling, 9), others)
  assert not programs


@pytest.mark.parametrize('name', readers.CASES)
def test_a_tree_too_large_for_the_drafter_is_refused(tiny, name):
  case = readers.make_case(name, tiny)
  with pytest.raises(ValueError, match=f'at most {case.num_nodes} nodes, got'):
    generate.decode(
      tiny,
      readers.read_prompts(tiny),
      eos_ids=readers.EOS,
      drafter=case.drafter,
      drafter_params=case.drafter_params,
      num_nodes=case.num_nodes + 1,
      rule=case.rule,
    )


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
        reader_lib.verifier(), lambda n: rules.beam(n, 2, 2), 8, readers.EOS
      ),
      'at most 7 nodes',
    ),
  ],
)
def test_what_cannot_draft_is_refused(tiny, make, message):
  with pytest.raises(ValueError, match=message):
    make(tiny.config)
