"""Text as it comes says what the whole text says, and takes nothing back."""

import random

import pytest
import reference_texts

from specjax import tokenizer as tokenizer_lib
from specjax.decode import transcript as transcript_lib

TOKENIZER = tokenizer_lib.byte_level()


def follow(tokens, stops=(), min_tokens=0, sizes=(1,)):
  """Pushes tokens in pieces of these sizes, over and over.

  Returns:
    The transcript, the tokens that it took, and the text at each look.
  """
  transcript = transcript_lib.Transcript(TOKENIZER, stops, min_tokens)
  taken, shown, pieces = 0, [], list(sizes)
  while taken < len(tokens) and not transcript.is_stopped:
    piece = tokens[taken : taken + pieces[0]]
    taken += transcript.push(piece)
    shown.append(transcript.take())
    pieces.append(pieces.pop(0))
  transcript.finish()
  shown.append(transcript.take())
  return transcript, taken, shown


def random_texts(count):
  """Bytes of few kinds: letters, whole and broken characters, what is none."""
  rng = random.Random(0)
  parts = [b'a', b'b', b'ab', '€'.encode(), '€'.encode()[:2], b'\xac', b'\xff']
  for _ in range(count):
    yield list(b''.join(rng.choices(parts, k=rng.randrange(12))))


def test_the_text_is_that_of_all_tokens_at_once():
  for tokens in random_texts(200):
    transcript, taken, shown = follow(tokens, sizes=(1, 3, 2))
    assert taken == len(tokens)
    assert transcript.text == bytes(tokens).decode(errors='replace')
    assert ''.join(shown) == transcript.text


@pytest.mark.parametrize('sizes', [(1,), (2, 1, 5), (100,)])
@pytest.mark.parametrize('min_tokens', [0, 4])
def test_stop_strings_end_texts_as_a_search_of_all_bytes_does(
  sizes, min_tokens
):
  ends = set()
  stops = ('bab', 'ba', '€b', 'aab')
  for tokens in random_texts(200):
    transcript, taken, shown = follow(tokens, stops, min_tokens, sizes)
    text, count, is_stopped = reference_texts.stop(tokens, stops, min_tokens)
    assert transcript.text == text
    assert taken == count
    assert transcript.is_stopped == is_stopped
    assert ''.join(shown) == text
    ends.add((is_stopped, count < len(tokens)))
  assert ends == {(False, False), (True, False), (True, True)}


def test_nothing_is_shown_that_may_be_half_of_something():
  _, _, shown = follow(list('a€'.encode()) + list(b'x.EN.END!'), ['.END'])
  assert (
    shown == list('a') + ['', '', '€', 'x', '', '', ''] + ['.EN'] + [''] * 4
  )


def test_a_stop_string_that_is_complete_in_the_middle_of_a_token():
  class Words:
    """Two tokens a word, the second of them without the space before it."""

    words = (' one', ' two.', 'then', '\ufffd')

    def decode(self, ids):
      return ''.join(self.words[i] for i in ids).removeprefix(' ')

  transcript = transcript_lib.Transcript(Words(), ['wo.t', 'two'])
  assert transcript.push([0, 0, 2, 3, 0, 1, 2]) == 6
  assert transcript.text == 'one onethen\ufffd one '
  # Complete first counts, not listed first or begun first.
  assert transcript_lib.first_match('xabcd', ['abcd', 'bc'], 0) == 2
  assert transcript_lib.first_match('xabc', ['bc', 'abc'], 0) == 1
  assert transcript_lib.first_match('abab', ['ab'], 2) == 2
  assert transcript_lib.first_match('abab', ['ab'], 4) is None


@pytest.mark.parametrize('stops', [[''], ['a', ''], 'ab'])
def test_stop_strings_that_cannot_be(stops):
  with pytest.raises(ValueError, match='expected a list of stop strings'):
    transcript_lib.Transcript(TOKENIZER, stops)
