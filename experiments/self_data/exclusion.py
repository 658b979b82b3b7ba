"""Keeps prompts that are used for evaluation, and the like, out of training."""

import re
from collections.abc import Callable, Iterable

# A prompt that has so many words in a row with an evaluation prompt is left
# out; shorter runs are common English.
NUM_WORDS = 6

# So is one with as large a share of its long words, of both prompts' together,
# in common: the same request in another order.
_SHARE = 0.5
_LONG = 4


def words(text: str) -> list[str]:
  """Returns the words of a text, in lower case and without punctuation.

  Args:
    text: any text.
  """
  return re.findall(r'\w+', text.lower())


def runs(text: str, num_words: int = NUM_WORDS) -> set[tuple[str, ...]]:
  """Returns the runs of words in a text.

  Args:
    text: any text.
    num_words: of a run; a shorter text is one run.
  """
  found = words(text)
  num_runs = max(len(found) - num_words + 1, 1)
  return {tuple(found[i : i + num_words]) for i in range(num_runs)}


def of(evaluation: Iterable[str]) -> Callable[[str], bool]:
  """Returns what says whether a text is too near to texts of evaluation.

  Args:
    evaluation: the texts.
  """
  evaluation = list(evaluation)
  known_runs = set().union(*map(runs, evaluation))
  known_words = [_long_words(text) for text in evaluation]

  def is_excluded(text):
    if not known_runs.isdisjoint(runs(text)):
      return True
    own = _long_words(text)
    return any(
      len(own & other) >= _SHARE * len(own | other) for other in known_words
    )

  return is_excluded


def _long_words(text):
  return {word for word in words(text) if len(word) >= _LONG}
