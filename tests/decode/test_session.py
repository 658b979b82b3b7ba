"""Turns of a conversation: what a fresh run says, without reading it again."""

import jax.numpy as jnp
import numpy as np
import pytest
import reference_programs
import reference_texts as texts

from specjax.decode import generate, prefill
from specjax.decode import session as session_lib


@pytest.fixture
def first_turn(tiny_bytes, talk):
  """A session after a turn in which the loop ran past stop strings."""
  session = session_lib.Session(tiny_bytes)
  stops = [['b '], [], ['cc'], []]
  request = talk.request() | talk.drafting() | {'stops': stops}
  found = session.generate(talk.prompts, **request)
  assert [r.finish_reason for r in found] == ['stop', 'eos', 'stop', 'eos']
  assert session.num_reused == [0] * 4
  return session, found


def test_a_turn_reads_what_is_new_and_says_what_a_fresh_run_does(
  tiny_bytes, talk, first_turn, monkeypatch
):
  session, before = first_turn
  whole = [[*p, *r.tokens] for p, r in zip(talk.prompts, before, strict=True)]
  more = [*b'. And then']
  prompts = [
    [*whole[0], *more],  # goes on
    [*whole[1][:-3], *more],  # goes on otherwise
    whole[2][: len(talk.prompts[2])],  # is asked again
    [*more, *whole[3]],  # has nothing in common
  ]
  known = [len(whole[0]) - 1, len(whole[1]) - 3, len(prompts[2]) - 1, 0]
  fresh = texts.plain(tiny_bytes, talk, prompts)
  num_read, inner = [], session_lib._read

  def read(verifier, cache, tokens, lengths):
    num_read.extend(np.asarray(lengths).tolist())
    return inner(verifier, cache, tokens, lengths)

  monkeypatch.setattr(session_lib, '_read', read)
  monkeypatch.delattr(prefill, '_read')  # what reads whole prompts
  drafting = talk.drafting() | {'drafter_params': texts.truth(prompts, fresh)}
  found = session.generate(prompts, **talk.request() | drafting)
  assert session.num_reused == known
  assert num_read == [
    len(prompt) - 1 - count
    for prompt, count in zip(prompts, known, strict=True)
  ]
  for one, other in zip(found, fresh, strict=True):
    assert (one.tokens, one.text) == (other.tokens, other.text)
    assert one.finish_reason == other.finish_reason
    np.testing.assert_allclose(one.log_probs, other.log_probs, atol=1e-4)
  assert max(r.steps.depth.max() for r in found) == 3


# Kinds: values that are taken for constants of a program.
def test_further_turns_compile_nothing(talk, first_turn):
  session, found = first_turn
  prompts = talk.prompts

  def turn(prompts, found, words):
    prompts = [
      [*p, *r.tokens, *words] for p, r in zip(prompts, found, strict=True)
    ]
    wanted = talk.request() | talk.drafting() | {'max_new_tokens': 8}
    return prompts, session.generate(prompts, **wanted)

  prompts, found = turn(prompts, found, b' Why?')
  with reference_programs.compiled() as programs:
    turn(prompts, found, b'No.')
  assert not programs


def test_a_turn_needs_room_that_the_last_one_had_not(
  tiny_bytes, talk, first_turn
):
  session, before = first_turn
  prompts = [
    [*prompt, *result.tokens, *b' abc' * 25]
    for prompt, result in zip(talk.prompts, before, strict=True)
  ]
  request = talk.request() | {'max_length': 160, 'max_new_tokens': 8}
  fresh = generate.generate(tiny_bytes, prompts, **request)
  found = session.generate(prompts, **request)
  assert min(session.num_reused) > 0
  for one, other in zip(found, fresh, strict=True):
    assert one.tokens == other.tokens
    np.testing.assert_allclose(one.log_probs, other.log_probs, atol=1e-4)


def test_what_is_kept_is_what_is_read(tiny_bytes, talk, first_turn):
  session, before = first_turn
  kept = session._kept
  broken = kept.cache.replace(values=jnp.zeros_like(kept.cache.values))
  session._kept = kept.replace(cache=broken)
  prompts = [[*p, *r.tokens] for p, r in zip(talk.prompts, before, strict=True)]
  fresh = texts.plain(tiny_bytes, talk, prompts)
  found = session.generate(prompts, **talk.request() | talk.drafting())
  assert all(a.tokens != b.tokens for a, b in zip(found, fresh, strict=True))


def test_bad_turns_are_refused_and_change_nothing(talk, first_turn):
  session, _ = first_turn
  with pytest.raises(ValueError, match='4 prompts as in the turn before, got'):
    session.generate(talk.prompts[:3], **talk.request())
  with pytest.raises(ValueError, match='at least one token'):
    session.generate([[1], [2], [3], []], **talk.request())
  found = session.generate(talk.prompts, **talk.request() | talk.drafting())
  assert session.num_reused == [len(p) - 1 for p in talk.prompts]
  assert [r.tokens for r in found] == [r.tokens for r in talk.plain]
