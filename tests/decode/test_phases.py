"""Decoding phase by phase: the same texts, and every second in its place."""

import time

import jax
import numpy as np
import reference_texts as texts

from specjax.decode import generate


def test_phases_give_the_same_and_add_up(tiny_bytes, talk):
  nap, naps = 0.02, []

  def sleep():
    time.sleep(nap)
    naps.append(nap)
    return np.int32(0)

  def propose(params, state, tokens, lengths, num_nodes):
    zero = jax.pure_callback(sleep, jax.ShapeDtypeStruct((), np.int32))
    return texts.PLANTED.propose(
      params, state, tokens + zero, lengths, num_nodes
    )

  request = talk.request() | talk.drafting()
  request['stops'] = [['b '], [], ['cc'], []]
  begin = time.perf_counter()
  found = generate.generate(
    tiny_bytes,
    talk.prompts,
    is_timed=True,
    chunk=4,
    **request | {'drafter': texts.PLANTED._replace(propose=propose)},
  )
  wall = time.perf_counter() - begin
  plain = generate.generate(tiny_bytes, talk.prompts, **request)
  for one, other in zip(found, plain, strict=True):
    assert (one.tokens, one.text) == (other.tokens, other.text)
    assert one.finish_reason == other.finish_reason
    jax.tree.map(np.testing.assert_array_equal, one.steps, other.steps)
    assert other.times is None
  times = found[0].times
  assert all(result.times == times for result in found)
  assert times.num_iterations == max(len(r.steps.start) for r in found)
  # The iteration that compiles does not count.
  assert len(naps) == times.num_iterations + 1
  assert times.draft >= nap * times.num_iterations
  assert times.verify > 0
  assert times.overhead > 0
  assert times.draft + times.verify + times.overhead < wall
