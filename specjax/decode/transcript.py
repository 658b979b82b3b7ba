"""The text of an output as its tokens come: what may be shown, where to stop.

Shown text is never taken back.  Half a character waits for its other half, and
what may be the beginning of a stop string waits until it is one or cannot be.
Everything happens token by token, so that nothing depends on how many tokens
come at a time.
"""

from collections.abc import Sequence

from specjax import tokenizer as tokenizer_lib

# What a decoder writes for bytes that are no character, or not yet one.
_REPLACEMENT = '\ufffd'


class Transcript:
  """The text of one output.

  Attributes:
    text: what the tokens say so far, cut before the match of a stop string.
    is_stopped: whether there was such a match.
  """

  def __init__(
    self,
    tokenizer: tokenizer_lib.Tokenizer,
    stops: Sequence[str] = (),
    min_tokens: int = 0,
  ):
    """Begins with no text.

    Args:
      tokenizer: what turns tokens into text.
      stops: strings that end the text, at least one character each.
      min_tokens: a match that is complete before there are so many tokens
        belongs to the text.

    Raises:
      ValueError: an empty stop string, or one string for a list of them.
    """
    if isinstance(stops, str) or not all(stops):
      raise ValueError(
        f'expected a list of stop strings that are not empty, got {stops!r}'
      )
    self.text = ''
    self.is_stopped = False
    self._pieces = _Pieces(tokenizer)
    self._stops = tuple(stops)
    self._min_tokens = min_tokens
    self._num_tokens = 0
    self._is_finished = False
    self._num_shown = 0

  def push(self, tokens: Sequence[int]) -> int:
    """Takes tokens up to the one that completes a stop string.

    Args:
      tokens: what comes next, the token that ends a text left out.

    Returns:
      How many of them belong to the output.
    """
    for count, token in enumerate(tokens, 1):
      before = len(self.text)
      self.text += self._pieces.push(token)
      self._num_tokens += 1
      if self._num_tokens >= self._min_tokens:
        place = first_match(self.text, self._stops, before)
        if place is not None:
          self.text = self.text[:place]
          self.is_stopped = self._is_finished = True
          return count
    return len(tokens)

  def finish(self) -> None:
    """Says that no tokens will come: half a character will stay one."""
    if not self._is_finished:
      self.text += self._pieces.rest()
      self._is_finished = True

  def take(self) -> str:
    """Returns the text that is safe to show and was not returned before."""
    held = 0 if self._is_finished else num_held(self.text, self._stops)
    begin, self._num_shown = self._num_shown, len(self.text) - held
    return self.text[begin : self._num_shown]


def first_match(text: str, stops: Sequence[str], begin: int) -> int | None:
  """Returns where the stop string begins that is complete first, None if none.

  Args:
    text: where to look.
    stops: strings; of two that are complete at the same character the longer
      one counts.
    begin: matches that end at or before this place do not count.
  """
  found = []
  for stop in stops:
    place = text.find(stop, max(begin - len(stop) + 1, 0))
    if place >= 0:
      found.append((place + len(stop), place))
  return min(found)[1] if found else None


def num_held(text: str, stops: Sequence[str]) -> int:
  """Returns how many characters at the end may begin a stop string.

  Args:
    text: where to look.
    stops: the strings.
  """
  sizes = (
    size
    for stop in stops
    for size in range(1, len(stop))
    if text.endswith(stop[:size])
  )
  return max(sizes, default=0)


class _Pieces:
  """Turns tokens into the characters that each of them settles.

  Only the last tokens are decoded, as a text of their own.  They begin a
  settled piece earlier than they need to, because some vocabularies leave out
  the space before the first word of a text.
  """

  def __init__(self, tokenizer):
    self._tokenizer = tokenizer
    self._window = []
    self._num_context = 0  # Tokens of the window whose text was settled before.
    self._num_settled = 0  # Characters of the window's text.

  def push(self, token):
    """Returns the characters that can no longer change."""
    self._window.append(token)
    text = self._tokenizer.decode(self._window)
    settled = text.rstrip(_REPLACEMENT)
    piece = settled[self._num_settled :]
    self._num_settled = max(self._num_settled, len(settled))
    if piece and settled == text:
      self._window = self._window[self._num_context :]
      self._num_context = len(self._window)
      self._num_settled = len(self._tokenizer.decode(self._window))
    return piece

  def rest(self):
    """Returns the characters that would still have changed."""
    return self._tokenizer.decode(self._window)[self._num_settled :]
