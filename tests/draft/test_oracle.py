"""The oracle's trees against a heap that runs a whole pass for every node."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference_decode

from specjax import edits as edits_lib
from specjax import sampling as sampling_lib
from specjax.decode import loop, prefill
from specjax.draft import base, oracle, scratch
from specjax.trees import tree as tree_lib

CONTEXTS = [[4], [1, 2, 3, 4, 5], [7, 7, 7, 9], list(range(12))]


def note(log_p):
  """The two largest log-probabilities of a law."""
  return jax.lax.top_k(log_p, 2)[0]


def grow(params, contexts, sampling, num_nodes, eos_ids, num_scratch):
  batch = prefill.read_prompts(
    params, contexts, max_new_tokens=1, batch_size=len(contexts)
  )[0]
  cache = scratch.extend(batch.prefix.cache, num_scratch)
  roots = base.last_tokens(batch.prefix.tokens, batch.prefix.lengths)
  return jax.jit(oracle.best_trees, static_argnums=(4, 5, 6))(
    params, cache, roots, sampling, num_nodes, eos_ids, note
  )


@pytest.mark.parametrize(
  'num_nodes, settings',
  [
    (1, (1.0,)),
    (2, (1.0,)),
    (16, (1.0,)),
    (9, (0.5, 0, 0.8)),
    (5, (1.0, 2)),
    (5, (0.0,)),
  ],
)
def test_trees_are_the_most_probable_continuations(tiny, num_nodes, settings):
  eos_ids = (3, 8)
  sampling = sampling_lib.make(len(CONTEXTS), *settings)
  one = sampling_lib.make(1, *settings)
  trees, notes, is_read = grow(
    tiny, CONTEXTS, sampling, num_nodes, eos_ids, num_nodes + 3
  )
  for row, context in enumerate(CONTEXTS):
    expected = reference_decode.best_continuations(
      tiny, context, one, num_nodes, eos_ids
    )
    words = reference_decode.words_of(trees, row)
    tree = jax.tree.map(lambda x, r=row: x[r], trees)
    log_p = tree_lib.path_sum(tree.parents, tree.log_q)[: len(words)]
    assert len(words) == len(expected)
    assert len(set(words)) == len(words)
    np.testing.assert_allclose(log_p, [p for p, _ in expected], atol=1e-4)
    for node in np.flatnonzero(is_read[row, : len(words)]):
      logits = reference_decode.logits_after(tiny, [*context, *words[node]])[-1]
      law = sampling_lib.log_law(jnp.asarray(logits)[None], one)
      np.testing.assert_allclose(notes[row, node], note(law)[0], atol=1e-4)
    # All but the cheapest nodes had to be read.
    assert is_read[row, : len(words) - 1].all() or settings == (0.0,)
    # The same words, but for the order among equals within rounding.
    by_words = {w: p for p, w in expected}
    last = expected[-1][0]
    for word, value in zip(words, log_p, strict=True):
      assert abs(by_words.get(word, last) - value) < 1e-4


def test_smaller_trees_are_the_first_nodes_of_larger_ones(tiny):
  sampling = sampling_lib.make(len(CONTEXTS))
  large = grow(tiny, CONTEXTS, sampling, 24, (3,), 24)[0]
  small = grow(tiny, CONTEXTS, sampling, 7, (3,), 24)[0]
  for row in range(len(CONTEXTS)):
    assert reference_decode.words_of(large, row)[
      :7
    ] == reference_decode.words_of(small, row)


def test_edits_of_logits_are_refused(tiny):
  edits = edits_lib.make(len(CONTEXTS), presence=1.0)
  sampling = sampling_lib.make(len(CONTEXTS)).replace(edits=edits)
  with pytest.raises(ValueError, match='without edits .* the oracle'):
    grow(tiny, CONTEXTS, sampling, 2, (), 2)


@pytest.mark.parametrize('temperature', [0.0, 0.7])
def test_own_cache_has_no_hole_after_any_acceptance(tiny, temperature):
  drafter = oracle.make(6, (3,))
  batch = prefill.read_prompts(
    tiny,
    CONTEXTS,
    max_new_tokens=30,
    sampling=sampling_lib.make(len(CONTEXTS), temperature),
    batch_size=len(CONTEXTS),
  )[0]
  params = base.Params(tiny, (), batch.sampling)
  state = loop.start(
    batch.prefix,
    batch.limits,
    drafter.init(params, batch.prefix),
    30,
  )
  state = jax.tree.map(jnp.copy, state)
  accepted = set()
  while not bool(jnp.all(state.is_done)):
    state = loop.run(
      params, state, 1, drafter=drafter, num_nodes=6, eos_ids=(3,)
    )
    own, true = state.drafter, state.cache
    for row in range(len(CONTEXTS)):
      length = int(own.length[row])
      assert length == true.length[row]
      for got, want in [
        (own.keys[:, row, :, :, :length], true.keys[:, row, :, :, :length]),
        (own.values[:, row, :, :length], true.values[:, row, :, :length]),
      ]:
        np.testing.assert_allclose(got, want, atol=1e-4)
  for row in range(len(CONTEXTS)):
    accepted |= set(np.asarray(state.steps.depth[row, : state.num_steps[row]]))
  # Full, partial and no acceptance all happened.
  assert max(accepted) == 5
  if temperature > 0:
    assert {0, 1, 2} <= accepted
