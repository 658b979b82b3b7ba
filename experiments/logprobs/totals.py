"""What is kept of a stream of log-probs, in memory that does not grow.

Totals of rows of prompts, and a uniform draw of starts with what followed them.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from experiments.logprobs import files as logprob_files
from specjax.theory import run_bounds, sampled_starts, streaming

# A prompt is a row while there are no more of them; further ones join the rows,
# which stay independent of each other: all that intervals ask for.
NUM_ROWS = 1024

_CAPS = np.asarray(run_bounds.CAPS)


class Tokens(NamedTuple):
  """The tokens of a batch of texts, one after the other, `M` of them.

  Attributes:
    surprisals: `[M]` nats.
    rows: `[M]` the row of each.
    places: `[M]` how many tokens precede it in its text.
    ends: `[M]` where its text ends in these arrays.
    has_ended: `[M]` bool, its text came to its own end.
    tops: `[M, K]` log-probs of the most probable tokens, in any order and
      padded with -inf; None where a text does not record them.
  """

  surprisals: np.ndarray
  rows: np.ndarray
  places: np.ndarray
  ends: np.ndarray
  has_ended: np.ndarray
  tops: np.ndarray | None


class Rows:
  """Totals over the tokens of each row of prompts."""

  def __init__(self):
    """Begins without rows."""
    self._row_of = {}
    self._num_tokens = np.zeros(NUM_ROWS, np.int64)
    self._squares = np.zeros(NUM_ROWS)
    # By the smallest cap that each surprisal does not exceed.
    self._counts = np.zeros((NUM_ROWS, len(_CAPS)), np.int64)
    self._sums = np.zeros((NUM_ROWS, len(_CAPS)))

  def place(self, texts: Sequence[logprob_files.Text]) -> Tokens:
    """Returns the texts' tokens, their prompts made rows."""
    texts = [text for text in texts if len(text.log_probs)]
    lengths = np.array([len(text.log_probs) for text in texts], int)
    each = lambda values: np.repeat(np.asarray(values, int), lengths)
    ends = np.cumsum(lengths)
    begins = each(ends - lengths)
    return Tokens(
      surprisals=-np.concatenate([np.zeros(0), *(t.log_probs for t in texts)]),
      rows=each([self._row(text.prompt) for text in texts]),
      places=np.arange(len(begins)) - begins,
      ends=each(ends),
      has_ended=each([text.has_ended for text in texts]) > 0,
      tops=_stack([text.top_log_probs for text in texts]),
    )

  def add(self, tokens: Tokens) -> None:
    """Adds tokens to the totals of their rows."""
    surprisals, rows = tokens.surprisals, tokens.rows
    self._num_tokens += np.bincount(rows, minlength=NUM_ROWS)
    self._squares += np.bincount(rows, surprisals**2, NUM_ROWS)
    cells = rows * len(_CAPS) + np.searchsorted(_CAPS, surprisals)
    size, shape = NUM_ROWS * len(_CAPS), self._counts.shape
    self._counts += np.bincount(cells, minlength=size).reshape(shape)
    self._sums += np.bincount(cells, surprisals, size).reshape(shape)

  @property
  def num_tokens(self) -> np.ndarray:
    """`[R]` tokens of each row."""
    return self._num_tokens[: len(self._row_of)]

  @property
  def moments(self) -> np.ndarray:
    """`[2, R]`: sums of `s` and of `s^2` over the tokens of each row."""
    return np.stack([np.sum(self._sums, axis=1), self._squares])[
      :, : len(self._row_of)
    ]

  @property
  def progress(self) -> np.ndarray:
    """`[G, R]`: sums of `min(s, lam)` over each row, for every cap that
    `run_bounds` tries.

    `sum of s where s <= lam, + lam #{s > lam}`.
    """
    num_above = self._num_tokens[:, None] - np.cumsum(self._counts, axis=1)
    # Nothing is above an infinite cap.
    caps = np.where(np.isinf(_CAPS), 0.0, _CAPS)
    progress = np.cumsum(self._sums, axis=1) + caps * num_above
    return progress[: len(self._row_of)].T

  def _row(self, prompt):
    """Returns the row of a prompt: its own, or one that it shares."""
    if prompt in self._row_of:
      return self._row_of[prompt]
    if len(self._row_of) == NUM_ROWS:
      return streaming.prompt_id(prompt) % NUM_ROWS
    self._row_of[prompt] = len(self._row_of)
    return self._row_of[prompt]


class Starts:
  """A uniform draw of starts and what followed each.

  Kept or left out by place alone, never by whether the walk has ended: of all
  starts those with the smallest random keys remain.
  """

  def __init__(
    self, num_starts: int, depth: int, before: int | None, seed: int
  ):
    """Begins without starts.

    Args:
      num_starts: how many are drawn, all if there are fewer.
      depth: tokens that are kept after each; `N - 1` for trees of N nodes.
      before: only places below it are starts; all if none.
      seed: of the draw.
    """
    self._num_starts, self._depth = num_starts, depth
    self._before = np.inf if before is None else before
    self._rng = np.random.default_rng(seed)
    self._keys = np.zeros(0)
    self._drawn = []  # Row, surprisals and whether the text has ended.

  def add(self, tokens: Tokens) -> None:
    """Draws among the starts seen so far and these."""
    keys = self._rng.random(len(tokens.places))
    is_start = tokens.places < self._before
    if len(self._keys) == self._num_starts:
      is_start &= keys < self._keys[-1]
    here = np.flatnonzero(is_start)
    here = here[np.argsort(keys[here])][: self._num_starts]
    self._drawn += [
      (
        tokens.rows[i],
        tokens.surprisals[i : min(i + self._depth, tokens.ends[i])].copy(),
        tokens.has_ended[i],
      )
      for i in here
    ]
    keys = np.concatenate([self._keys, keys[here]])
    order = np.argsort(keys)[: self._num_starts]
    self._keys = keys[order]
    self._drawn = [self._drawn[i] for i in order]

  def walks(self) -> tuple[np.ndarray, sampled_starts.Walks]:
    """Returns rows `[M]` and walks of the starts that were drawn."""
    rows, surprisals, has_ended = zip(*self._drawn, strict=True)
    return np.array(rows), sampled_starts.of_surprisals(surprisals, has_ended)


def _stack(tops):
  """Returns lists `[T_i, K_i]` as one, or None where there are not all."""
  if not tops or any(top is None for top in tops):
    return None
  width = max(top.shape[1] for top in tops)
  pad = lambda x: np.pad(
    x, [(0, 0), (0, width - x.shape[1])], constant_values=-np.inf
  )
  return np.concatenate([pad(top) for top in tops])
