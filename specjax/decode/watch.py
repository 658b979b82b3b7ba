"""Rows are watched between chunks: shown, and stopped where their text says."""

from collections.abc import Callable, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from specjax.decode import rows as rows_lib
from specjax.decode import transcript as transcript_lib

# Told a row and the text that it may show now.
StreamFn = Callable[[int, str], None]


class Watch:
  """Looks at the rows of a batch between two calls of the loop."""

  def __init__(
    self,
    transcripts: Sequence[transcript_lib.Transcript | None],
    state: rows_lib.DecodeState,
    eos_ids: tuple[int, ...],
    stream_fn: StreamFn | None = None,
    progress_fn: Callable[[int], None] | None = None,
  ):
    """Begins before the first iteration.

    Args:
      transcripts: of the first rows, those of prompts, still empty; None where
        there is no text.
      state: the rows.
      eos_ids: tokens that end a text.
      stream_fn: told what may be shown, as soon as it is seen.
      progress_fn: told how many tokens all rows have emitted since the last
        look.
    """
    self._transcripts = transcripts
    self._lengths = np.asarray(state.lengths)
    self._eos_ids = eos_ids
    self._stream_fn = stream_fn
    self._progress_fn = progress_fn

  def look(self, state: rows_lib.DecodeState) -> rows_lib.DecodeState:
    """Reads the tokens that have come, shows them and stops rows.

    Args:
      state: the rows.

    Returns:
      The rows; those whose text holds a stop string are done and end with the
      token that completes it.
    """
    tokens, lengths, is_done = jax.device_get(
      (state.tokens, state.lengths, state.is_done)
    )
    ends, is_over = np.array(lengths), np.array(is_done)
    for row, transcript in enumerate(self._transcripts):
      if transcript is not None:
        begin = self._lengths[row]
        new = tokens[row, begin : lengths[row]].tolist()
        ends[row] = begin + self._read(row, transcript, new, is_done[row])
        is_over[row] |= transcript.is_stopped
    if self._progress_fn is not None:
      self._progress_fn(int(np.sum(ends - self._lengths)))
    self._lengths = ends
    if np.array_equal(ends, lengths) and np.array_equal(is_over, is_done):
      return state
    return _end(state, jnp.asarray(ends), jnp.asarray(is_over))

  def _read(self, row, transcript, new, is_done):
    """Shows what new tokens say; returns how many belong to the output."""
    is_eos = bool(new) and new[-1] in self._eos_ids
    num_words = len(new) - is_eos
    num_taken = transcript.push(new[:num_words])
    if is_done:
      transcript.finish()
    if self._stream_fn and (piece := transcript.take()):
      self._stream_fn(row, piece)
    return num_taken if transcript.is_stopped else len(new)


def _end(state, lengths, is_done):
  """Cuts rows to lengths; what their caches hold past them is overwritten."""
  is_text = jnp.arange(state.tokens.shape[1]) < lengths[:, None]
  return state.replace(
    tokens=jnp.where(is_text, state.tokens, 0),
    lengths=lengths,
    is_done=is_done,
    cache=state.cache.replace(length=lengths - 1),
  )
