"""Texts of a batch: where they stop, why, and what is shown on the way."""

import collections

import jax
import numpy as np
import pytest
import reference_programs
import reference_texts as texts

from specjax.decode import generate

MIN_NEW = (0, 6, 0, 0)  # of the talk's prompts
CHUNKS = (1, 3, 100)


def stops_at(talk, place, size=2):
  """What each output says from a place on, where that is whole characters."""
  for output in talk.plain:
    said = bytes(t for t in output.tokens[place : place + size] if t < 256)
    yield [said.decode()] if said and said.isascii() else []


def expected(talk, stops, limit=texts.MAX_NEW):
  """Text, tokens and finish reason of each prompt, by a slow search."""
  for row, output in enumerate(talk.plain):
    tokens = output.tokens[:limit]
    is_eos = tokens[-1] in texts.EOS
    words = tokens[: len(tokens) - is_eos]
    text, count, is_stopped = texts.stop(words, stops[row], MIN_NEW[row])
    if is_stopped:
      yield text, tokens[:count], 'stop'
    else:
      yield text, tokens, 'eos' if is_eos else 'length'


def decode(params, talk, **wanted):
  """The results, and what was shown of each."""
  shown = collections.defaultdict(list)
  found = generate.generate(
    params,
    talk.prompts,
    stream_fn=lambda row, piece: shown[row].append(piece),
    **talk.request() | talk.drafting() | wanted,
  )
  return found, shown


def check(found, shown, talk, stops, limit=texts.MAX_NEW):
  wanted = expected(talk, stops, limit)
  for row, (result, (text, tokens, reason)) in enumerate(
    zip(found, wanted, strict=True)
  ):
    assert result.text == text == ''.join(shown[row])
    assert result.tokens == tokens
    assert result.finish_reason == reason
    count = len(tokens)
    np.testing.assert_allclose(
      result.log_probs, talk.plain[row].log_probs[:count], atol=1e-4
    )
    assert result.steps.emitted.sum() == count


# Kinds: a stop string across tokens, half a character shown, an end and a stop
# string in one accepted path.
def test_stop_strings_of_every_place(tiny_bytes, talk):
  whole, shown = decode(tiny_bytes, talk)
  check(whole, shown, talk, [[]] * 4)
  decode(tiny_bytes, talk, stops=[['b ']] * 4)  # some rows are cut
  reasons = {result.finish_reason for result in whole}
  num_late = num_early = 0
  for place in range(texts.MAX_NEW - 1):
    stops = list(stops_at(talk, place, size=1 + place % 3))
    chunk = CHUNKS[place % len(CHUNKS)]
    with reference_programs.compiled() as programs:
      found, shown = decode(tiny_bytes, talk, stops=stops, chunk=chunk)
    assert not programs
    check(found, shown, talk, stops)
    for row, result in enumerate(found):
      reasons.add(result.finish_reason)
      if result.finish_reason == 'stop':
        is_last = len(result.steps.start) == len(whole[row].steps.start)
        num_late += is_last and whole[row].finish_reason == 'eos'
      elif stops[row] and place + len(stops[row][0]) < MIN_NEW[row]:
        num_early += 1
  assert reasons == {'stop', 'eos', 'length'}
  assert num_late > 0
  assert num_early > 0


# Kinds: the limit checked before the stop string, or after it.
def test_what_comes_first_in_token_order_gives_the_reason(tiny_bytes, talk):
  stops = list(stops_at(talk, 5))
  ends = [len(tokens) for _, tokens, _ in expected(talk, stops)]
  reasons = collections.defaultdict(list)
  for limit in range(1, texts.MAX_NEW + 1):
    found, shown = decode(
      tiny_bytes, talk, stops=stops, max_new_tokens=limit, chunk=2
    )
    check(found, shown, talk, stops, limit)
    for row, result in enumerate(found):
      reasons[row, limit - ends[row]].append(result.finish_reason)
  rows = [row for row, stop in enumerate(stops) if stop and ends[row] < 20]
  for row in rows:
    assert reasons[row, -1] == ['length']
    assert reasons[row, 0] == reasons[row, 1] == ['stop']
  assert len(rows) >= 2


@pytest.mark.parametrize(
  'stops', [None, [['b '], ['bc'], ['cc'], ['cc', 'b ']]]
)
def test_nothing_depends_on_the_chunk(tiny_bytes, talk, stops):
  first, *others = (
    decode(tiny_bytes, talk, stops=stops, chunk=chunk) for chunk in CHUNKS
  )
  for found, shown in others:
    for row, (one, other) in enumerate(zip(first[0], found, strict=True)):
      assert other.tokens == one.tokens
      assert other.finish_reason == one.finish_reason
      assert ''.join(shown[row]) == ''.join(first[1][row]) == one.text
      np.testing.assert_array_equal(other.log_probs, one.log_probs)
      jax.tree.map(np.testing.assert_array_equal, other.steps, one.steps)
      assert len(shown[row]) <= len(first[1][row])


def test_acceptance_adds_up_to_the_tokens(tiny_bytes, talk):
  found, _ = decode(tiny_bytes, talk, stops=list(stops_at(talk, 9)))
  for result in found:
    proposed, reached, accepted = result.acceptance
    num_steps = len(result.steps.start)
    # The planted trees have three levels.
    assert proposed.tolist() == [num_steps] * 3
    assert np.all(proposed >= reached) and np.all(reached >= accepted)
    assert np.all(np.diff(reached) <= 0)
    is_cut = result.steps.emitted[-1] <= result.steps.depth[-1]
    assert accepted.sum() + num_steps - is_cut == len(result.tokens)
  assert sum(result.acceptance.accepted[-1] for result in found) > 0


def test_batches_show_prompts_by_their_index(tiny_bytes, talk):
  stops = list(stops_at(talk, 7))
  plainly = {'drafter': None, 'drafter_params': (), 'batch_size': 1}
  found, shown = decode(tiny_bytes, talk, stops=stops, **plainly)
  for row, (text, tokens, reason) in enumerate(expected(talk, stops)):
    assert found[row].text == text == ''.join(shown[row])
    assert (found[row].tokens, found[row].finish_reason) == (tokens, reason)
    assert found[row].acceptance is None


@pytest.mark.parametrize(
  ('wrong', 'message'),
  [
    ({'stops': [['a']] * 3}, 'for each of 4 prompts, got 3'),
    ({'stops': [['a', '']] * 4}, 'stop strings that are not empty'),
    ({'stops': [['a']] * 4, 'tokenizer': None}, 'a tokenizer .* got None'),
    ({'tokenizer': None}, 'a tokenizer with stops or stream_fn'),
    ({'drafter': None, 'is_timed': True}, 'a drafter with is_timed'),
    ({'chunk': 0}, 'a chunk of at least 1, got 0'),
  ],
)
def test_bad_arguments_are_named(tiny_bytes, talk, wrong, message):
  with pytest.raises(ValueError, match=f'expected .*{message}'):
    decode(tiny_bytes, talk, **wrong)
