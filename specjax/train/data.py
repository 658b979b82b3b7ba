"""Texts packed into batches of a fixed shape, in an order that a seed gives.

Every row of the global batch has a stream of documents of its own: row `r` of
`B` reads the documents at places `r`, `r + B`, `r + 2 B`, ... of the shuffled
order.  So hosts read only what they train on, and however many they are, their
batches together are those of a single host.  Reading, shuffling, packing and
resuming are done by Grain.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import grain
import numpy as np

from specjax.train import documents

# Rows of a stream that are filled at the same time: more leave less padding.
_BINS = 8

# Rows of a stream that are shuffled: pieces of one long document, one behind
# another, would make each batch one of few subjects.
_WINDOW = 64


class Batch(NamedTuple):
  """Packed rows.

  Attributes:
    tokens: `[B, T]` int32.
    documents: `[B, T]` int32, which document of its row a token belongs to,
      from 1; 0 is padding.
    positions: `[B, T]` int32, place of a token in its document.
    is_target: `[B, T]` bool, whether the token counts when it is predicted.
  """

  tokens: np.ndarray
  documents: np.ndarray
  positions: np.ndarray
  is_target: np.ndarray


class Batches(Iterator[Batch]):
  """Batches one after the other; can be resumed anywhere."""

  def __init__(self, rows: Sequence[grain.DatasetIterator], length: int):
    """Starts at the beginning.

    Args:
      rows: gives the packed rows of each row of the batch.
      length: `T`, of a row.
    """
    self._rows = rows
    self._length = length

  def __next__(self) -> Batch:
    """Returns the next batch; rows at whose end others go on are padding.

    Raises:
      StopIteration: all rows have come to their end.
    """
    found = [next(row, None) for row in self._rows]
    if all(row is None for row in found):
      raise StopIteration
    blank = Batch(*np.zeros((4, self._length), np.int32))
    rows = [blank if row is None else _named(row) for row in found]
    batch = Batch(*map(np.stack, zip(*rows, strict=True)))
    return batch._replace(is_target=batch.is_target.astype(bool))

  def get_state(self) -> list[dict[str, Any]]:
    """Returns where the iterator is, as JSON can keep it."""
    return [row.get_state() for row in self._rows]

  def set_state(self, state: Sequence[dict[str, Any]]) -> None:
    """Goes where another iterator of the same batches was.

    Args:
      state: what it gave.
    """
    for row, row_state in zip(self._rows, state, strict=True):
      row.set_state(row_state)


def batches(
  source: Sequence[Any],
  document_fn: documents.DocumentFn,
  *,
  batch_size: int,
  length: int,
  seed: int,
  num_epochs: int | None = None,
  host: int = 0,
  num_hosts: int = 1,
) -> Batches:
  """Shuffles and packs texts; documents are cut only where a row is too short.

  Args:
    source: the records, read by their index.
    document_fn: makes a document of a record.
    batch_size: `B`, rows of the global batch.
    length: `T`, of a row.
    seed: of the order, which differs from epoch to epoch.
    num_epochs: how often every record is read; None reads without end.
    host: number of this host.
    num_hosts: each gets as many rows of every batch, host by host in the order
      of their numbers.

  Returns:
    The batches of this host.

  Raises:
    ValueError: no records, numbers below 1, a batch that hosts cannot share
      equally, or an end of the epochs on several hosts, which would not all
      reach it in the same step.
  """
  _check(source, batch_size, length, num_epochs, host, num_hosts)
  order = (
    grain.MapDataset.source(source).seed(seed).shuffle().repeat(num_epochs)
  )
  share = batch_size // num_hosts
  rows = [
    _packed(order[row::batch_size].map(document_fn), length, seed)
    for row in range(host * share, (host + 1) * share)
  ]
  return Batches([iter(row) for row in rows], length)


class _Cut(grain.experimental.FlatMapTransform):
  """Cuts documents that are longer than a row."""

  def __init__(self, length: int):
    self._length = length

  def flat_map(self, element: documents.Document) -> list[Mapping]:
    """Returns pieces, each with a beginning that nothing predicts."""
    pieces = []
    for start in range(0, len(element.tokens), self._length):
      end = start + self._length
      is_target = np.asarray(element.is_target[start:end], np.int32)
      is_target[0] = 0
      tokens = np.asarray(element.tokens[start:end], np.int32)
      pieces.append({'tokens': tokens, 'is_target': is_target})
    return pieces


def _packed(stream, length, seed):
  """Returns the rows of a stream of documents, shuffled window by window."""
  # Nothing is read ahead, since every row would do so in threads of its own.
  reading = grain.ReadOptions(num_threads=0, prefetch_buffer_size=0)
  pieces = grain.experimental.FlatMapIterDataset(
    stream.to_iter_dataset(reading), _Cut(length)
  )
  rows = grain.experimental.FirstFitPackIterDataset(
    pieces,
    length_struct={'tokens': length, 'is_target': length},
    num_packing_bins=_BINS,
    shuffle_bins=False,
  )
  return grain.experimental.WindowShuffleIterDataset(
    rows, window_size=_WINDOW, seed=seed
  )


def _named(row):
  """Returns a row as Grain packs it under the names of a batch."""
  return Batch(
    tokens=row['tokens'],
    documents=row['tokens_segment_ids'],
    positions=row['tokens_positions'],
    is_target=row['is_target'],
  )


def _check(source, batch_size, length, num_epochs, host, num_hosts):
  if not len(source):
    raise ValueError('expected at least one record, got none')
  sizes = {'batch_size': batch_size, 'length': length, 'num_hosts': num_hosts}
  if num_epochs is not None:
    sizes['num_epochs'] = num_epochs
  for name, size in sizes.items():
    if size < 1:
      raise ValueError(f'expected {name} >= 1, got {size}')
  if batch_size % num_hosts:
    raise ValueError(
      f'expected a batch_size that {num_hosts} hosts share equally, got '
      f'{batch_size}'
    )
  if not 0 <= host < num_hosts:
    raise ValueError(f'expected a host below {num_hosts}, got {host}')
  if num_hosts > 1 and num_epochs is not None:
    raise ValueError(
      'expected epochs without end on several hosts, got '
      f'num_epochs={num_epochs}'
    )
