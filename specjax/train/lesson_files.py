"""Lessons on the disk: the verifier reads a text once, the head many times.

A folder holds one file a batch of lessons, an array with an entry a row, in
float16 where the verifier's numbers are; so a row is found without reading
others, and files are the memory.  Each appears whole or not at all.
"""

import os
import pathlib
from collections.abc import Callable, Iterable
from typing import Any

import jax
import numpy as np

from specjax.train import lessons

_KINDS = {
  'tokens': np.int32,
  'documents': np.int32,
  'positions': np.int32,
  'is_target': np.bool_,
  'features': np.float16,
  'hidden': np.float16,
  'log_total': np.float32,
  'best': np.int32,
}


def write(
  folder: pathlib.Path,
  batches: Iterable[Any],
  read_fn: Callable[[Any], lessons.Lesson],
) -> None:
  """Writes lessons, or those that an earlier start left out.

  Args:
    folder: of the files; made where there is none.
    batches: packed texts, the same at each start.
    read_fn: from a batch to its lesson; not called for one that is there.

  Raises:
    ValueError: numbers that float16 cannot hold.
  """
  folder.mkdir(parents=True, exist_ok=True)
  for index, batch in enumerate(batches):
    path = folder / f'{index:05}.npy'
    if path.exists():
      continue
    rows = _rows(read_fn(batch))
    unfinished = path.with_name(f'.{path.name}.{os.getpid()}')
    with unfinished.open('wb') as file:
      np.save(file, rows)
    os.replace(unfinished, path)


class Lessons:
  """The lessons of a folder, row by row."""

  def __init__(self, folder: pathlib.Path):
    """Finds the files.

    Args:
      folder: that `write` filled.

    Raises:
      ValueError: it has no lessons.
    """
    paths = sorted(folder.glob('[0-9]*.npy'))
    if not paths:
      raise ValueError(f'expected lessons in {folder}, got none')
    self._files = [np.load(path, mmap_mode='r') for path in paths]
    self._starts = np.cumsum([0, *map(len, self._files)])

  def __len__(self):
    return int(self._starts[-1])

  def take(self, rows: Iterable[int]) -> lessons.Lesson:
    """Returns some rows as a lesson of NumPy arrays.

    Args:
      rows: their numbers, from 0.
    """
    found = np.stack([self._row(row) for row in rows])
    return lessons.Lesson(**{name: found[name] for name in _KINDS})

  def count_targets(self, vocab_size: int) -> np.ndarray:
    """Counts how often each token is a target.

    Args:
      vocab_size: `V`.

    Returns:
      `[V]` int.
    """
    return sum(
      np.bincount(file['tokens'][file['is_target']], minlength=vocab_size)
      for file in self._files
    )

  def _row(self, row):
    file = np.searchsorted(self._starts, row, side='right') - 1
    return self._files[file][row - self._starts[file]]


class Shuffled:
  """Batches of rows, every epoch in another order, without end."""

  def __init__(self, source: Lessons, num_rows: int, seed: int):
    """Starts at the beginning.

    Args:
      source: the lessons.
      num_rows: `B`, of a batch; a rest of an epoch that is less is left out.
      seed: of the orders.

    Raises:
      ValueError: fewer lessons than a batch has rows.
    """
    if not 1 <= num_rows <= len(source):
      raise ValueError(
        f'expected batches of 1 to {len(source)} rows, as many as there are '
        f'lessons, got {num_rows}'
      )
    self._source, self._num_rows, self._seed = source, num_rows, seed
    self._taken = 0

  def __next__(self) -> lessons.Lesson:
    """Returns the next batch."""
    epoch, index = divmod(self._taken, len(self._source) // self._num_rows)
    order = np.random.default_rng([self._seed, epoch]).permutation(
      len(self._source)
    )
    self._taken += 1
    start = index * self._num_rows
    return self._source.take(order[start : start + self._num_rows])

  def get_state(self) -> int:
    """Returns how many batches were taken."""
    return self._taken

  def set_state(self, state: int) -> None:
    """Goes where as many batches were taken.

    Args:
      state: how many.
    """
    self._taken = state


def _rows(lesson):
  """One entry a row, fields as they are kept."""
  lesson = jax.device_get(lesson)
  fields = {name: np.asarray(getattr(lesson, name)) for name in _KINDS}
  dtype = [(name, _KINDS[name], x.shape[1:]) for name, x in fields.items()]
  rows = np.empty(len(lesson.tokens), dtype)
  for name, values in fields.items():
    largest = np.finfo(np.float16).max
    if _KINDS[name] == np.float16 and not np.all(np.abs(values) <= largest):
      raise ValueError(
        f'expected {name} within {largest}, as float16 holds them, got '
        f'{np.abs(values).max()}'
      )
    rows[name] = values
  return rows
