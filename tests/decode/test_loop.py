"""The loop, iteration by iteration: what it commits, counts and compiles."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference_cases as cases
import reference_decode
import reference_edits
import reference_programs

from specjax import sampling as sampling_lib
from specjax.decode import generate, loop
from specjax.decode import rows as rows_lib
from specjax.draft import base
from specjax.llama import mask
from specjax.llama import model as llama_model

# Which acceptances each drafter has to show.
KINDS = {
  'planted': {'none', 'partial', 'full', 'scattered'},
  'lookup': {'none', 'full'},
  'bigram': {'none', 'partial', 'full', 'scattered'},
  'oracle': {'none', 'partial', 'full', 'scattered'},
}


def iterations(verifier, case, setup):
  """Yields what there was before each iteration, and the state after it."""
  batch = case.batches(verifier)[0]
  params = base.Params(verifier, setup['drafter_params'], batch.sampling)
  drafter_state = setup['drafter'].init(params, batch.prefix)
  state = loop.start(batch.prefix, batch.limits, drafter_state, 32)
  state = jax.tree.map(jnp.copy, state)  # `run` takes what it is given
  # All that `generate` says to the loop, so that they share a program.
  static = {'rule': 'match'} | setup
  del static['drafter_params']
  while not np.all(state.is_done):
    before = jax.device_get((state.lengths, state.is_done))
    state = loop.run(params, state, 1, **static)
    yield before, state


@jax.jit
def next_logits(verifier, state):
  """Logits after the last token, from the committed cache."""
  hidden, _, _ = llama_model.forward(
    verifier,
    base.last_tokens(state.tokens, state.lengths)[:, None],
    state.cache.length[:, None],
    state.cache,
    mask.committed(state.cache.length, state.cache.num_slots),
    jnp.ones((1, 1, 1), bool),
  )
  return llama_model.head(verifier, hidden[:, 0])


# Kinds: rejected drafts that stay in the cache, scattered nodes taken for a
# dense prefix, rows of unequal acceptance.
@pytest.mark.parametrize('name', [*KINDS, 'drawn'])
def test_the_cache_is_that_of_a_fresh_prefill(tiny, mixed, setups, name):
  for _, state in iterations(tiny, mixed, setups[name]):
    np.testing.assert_array_equal(state.cache.length, state.lengths - 1)
    logits = next_logits(tiny, state.replace(drafter=()))
    for row, length in enumerate(np.asarray(state.lengths)):
      text = np.asarray(state.tokens[row, :length])
      expected = reference_decode.logits_after(tiny, text)[-1]
      np.testing.assert_allclose(logits[row], expected, atol=1e-4)


def kinds_of(words, depth, path):
  """What an acceptance is called; nothing where there was only the root."""
  if len(words) > 1:
    deepest = max(map(len, words))
    yield 'none' if depth == 0 else 'full' if depth == deepest else 'partial'
    if path != list(range(len(path))):
      yield 'scattered'


# Kinds: one definition of acceptance, statistics that are never filled in.
@pytest.mark.parametrize('name', KINDS)
def test_steps_say_how_far_the_text_went_with_the_tree(
  tiny, mixed, setups, name
):
  seen = set()
  texts = [[*p, *t] for p, t in zip(mixed.prompts, mixed.texts, strict=True)]
  counts = np.zeros(8, int)
  for (lengths, is_done), state in iterations(tiny, mixed, setups[name]):
    _, tree, verdict = jax.device_get(state.drafter)
    steps, after = jax.device_get((state.steps, state.lengths))
    for row in np.flatnonzero(~is_done):
      words = reference_decode.words_of(tree, row)
      depth = len(reference_decode.longest(words, texts[row][lengths[row] :]))
      step = jax.tree.map(lambda x, at=(row, counts[row]): x[at], steps)
      assert step.start == lengths[row]
      assert step.num_nodes == len(words) <= setups[name]['num_nodes']
      assert step.start + step.emitted == after[row]
      if state.is_done[row]:
        # A text may be accepted past its end, which is not known here.
        assert step.depth >= depth
        assert step.emitted <= step.depth + 1
      else:
        assert step.depth == depth
        assert step.emitted == depth + 1
      path = verdict.path[row, : step.depth + 1].tolist()
      assert step.levels == max(map(len, words))
      is_inner = words[path[-1]] in [word[:-1] for word in words if word]
      assert step.tried == step.depth + is_inner
      seen |= set(kinds_of(words, depth, path))
    counts += ~is_done
  assert seen >= KINDS[name]
  np.testing.assert_array_equal(state.num_steps, counts)
  # Nothing is written past the last iteration.
  for field in jax.tree.leaves(state.steps):
    assert not np.any(field[np.arange(32) >= counts[:, None]])


def slow_emit(length, limit, tokens, num_tokens, eos_ids):
  """The tokens that are appended, and whether the row is done."""
  room = max(limit - length, 0)
  new = reference_decode.cut(list(tokens[:num_tokens]), eos_ids, room)
  is_done = length + len(new) >= limit or any(t in eos_ids for t in new)
  return new, is_done


# Kinds: an end in the middle of a block, the limit checked before the end.
def test_emit_equals_slow_twin():
  rng = np.random.default_rng(0)
  rows, width, size = 200, 5, 16
  tokens = rng.integers(0, 8, (rows, width))
  lengths = rng.integers(1, 10, rows)
  limits = lengths + rng.integers(0, 7, rows)
  num_tokens = rng.integers(0, width + 1, rows)
  log_p = rng.normal(size=(rows, width)).astype(np.float32)
  prefix = base.Prefix(
    tokens=jnp.zeros((rows, size), jnp.int32),
    lengths=jnp.asarray(lengths),
    seeds=jnp.zeros(rows, jnp.uint32),
    cache=(),
  )
  state = loop.start(prefix, jnp.asarray(limits), (), 1)
  after, emitted = jax.jit(rows_lib.emit, static_argnums=4)(
    state, tokens, log_p, jnp.asarray(num_tokens), (3, 6)
  )
  for row in range(rows):
    new, is_done = slow_emit(
      lengths[row], limits[row], tokens[row], num_tokens[row], (3, 6)
    )
    here = slice(lengths[row], lengths[row] + len(new))
    assert emitted[row] == len(new)
    assert after.lengths[row] == lengths[row] + len(new)
    assert after.is_done[row] == is_done
    np.testing.assert_array_equal(after.tokens[row, here], new)
    np.testing.assert_array_equal(
      after.log_p[row, here], log_p[row, : len(new)]
    )
    assert np.sum(after.log_p[row] != 0) == len(new)


# Kinds: values that are taken for constants of a program.
@pytest.mark.parametrize('name', ['plain', 'drawn', *KINDS])
def test_what_changes_from_request_to_request_compiles_nothing(
  tiny, mixed, setups, name
):
  ask = functools.partial(
    generate.generate, tiny, max_length=cases.MAX_LENGTH, **setups[name]
  )
  wanted = {'prompts': mixed.prompts, 'seeds': mixed.seeds}
  ask(**wanted, sampling=mixed.sampling, max_new_tokens=cases.MAX_NEW)
  others = {
    # The longest still belongs to the same bucket.
    'prompts': [p[: len(p) - len(p) // 8] for p in mixed.prompts[::-1]],
    'seeds': range(8),
    'sampling': sampling_lib.make(8, 0.3, 4, 0.7, 0.1),
  }
  with reference_programs.compiled() as programs:
    for max_new_tokens in (1, 7, 30):
      ask(**others, max_new_tokens=max_new_tokens)
  assert not programs


def test_other_penalties_compile_nothing(tiny, edited, setups):
  static = setups['planted'] | {'drafter_params': edited.truth()}
  decode = lambda case: generate.decode(tiny, case.batches(tiny)[0], **static)
  decode(edited)
  other = reference_edits.sampling_of(cases.EDITS[::-1])
  with reference_programs.compiled() as programs:
    decode(edited._replace(sampling=other))
  assert not programs
