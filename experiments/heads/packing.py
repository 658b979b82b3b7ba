"""Conversations packed into rows, whole: a half would be read as another text.

A row takes the next conversation that it has room for; what is left of it is
padding.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from specjax.train import continuations


class Packed(NamedTuple):
  """Rows of conversations.

  Attributes:
    tokens: `[B, T]` int32.
    documents: `[B, T]` int32 from 1, 0 for padding.
    positions: `[B, T]` int32, of a token in its conversation.
    is_target: `[B, T]` bool, True for the tokens of answers.
  """

  tokens: np.ndarray
  documents: np.ndarray
  positions: np.ndarray
  is_target: np.ndarray


def pack(
  texts: Sequence[continuations.Continuation], num_rows: int, length: int
) -> Iterator[Packed]:
  """Packs conversations.

  Args:
    texts: prompts with answers; what is longer than a row is cut.
    num_rows: `B`, of a batch; the last is filled up with empty rows.
    length: `T`, of a row.

  Yields:
    Batches.
  """
  lengths = [len(t.prompt_ids) + len(t.answer_ids) for t in texts]
  rows = first_fit([min(n, length) for n in lengths], length)
  for start in range(0, len(rows), num_rows):
    batch = _empty(num_rows, length)
    for row, members in enumerate(rows[start : start + num_rows]):
      _fill(batch, row, [texts[member] for member in members])
    yield batch


def first_fit(sizes: Sequence[int], room: int) -> list[list[int]]:
  """Puts each thing into the first box that has room for it.

  Args:
    sizes: of the things, at most `room`.
    room: of a box.

  Returns:
    The numbers of the things in each box.
  """
  boxes, left = [], []
  for number, size in enumerate(sizes):
    box = next((i for i, free in enumerate(left) if free >= size), len(boxes))
    if box == len(boxes):
      boxes.append([])
      left.append(room)
    boxes[box].append(number)
    left[box] -= size
  return boxes


def _empty(num_rows, length):
  zeros = lambda dtype: np.zeros((num_rows, length), dtype)
  return Packed(*map(zeros, (np.int32, np.int32, np.int32, np.bool_)))


def _fill(batch, row, texts):
  """Writes conversations one behind the other into a row of a batch."""
  start = 0
  for number, text in enumerate(texts, start=1):
    tokens = [*text.prompt_ids, *text.answer_ids][: batch.tokens.shape[1]]
    order = np.arange(len(tokens))
    here = (row, slice(start, start + len(tokens)))
    batch.tokens[here] = tokens
    batch.documents[here] = number
    batch.positions[here] = order
    batch.is_target[here] = order >= len(text.prompt_ids)
    start += len(tokens)
