"""What a run says of itself: CSV files that survive a kill, and TensorBoard."""

import csv
import math
import os
import pathlib
import time
from collections.abc import Mapping, Sequence

import jax
import tensorboardX

from specjax.train import step as step_lib

# A run in which one of them is not finite is lost.
_VITAL = ('loss', 'gradient_norm', 'parameter_norm')


class Table:
  """A CSV file with one row a step."""

  def __init__(self, path: pathlib.Path, last_step: int):
    """Opens a file, without what an earlier start wrote after a step.

    Args:
      path: of the file.
      last_step: later rows, which will be written anew, are dropped, and so is
        one that was cut short.
    """
    self._path = path
    self._columns, rows = _read(path)
    kept = [row for row in rows if int(row[0]) <= last_step]
    if not kept:
      self._columns = None
    draft = path.with_name(f'.{path.name}')
    with draft.open('w', newline='') as file:
      csv.writer(file).writerows([self._columns, *kept] if kept else [])
    os.replace(draft, path)

  def append(self, step: int, values: Mapping[str, float]) -> None:
    """Adds a row and hands it to the disk.

    Args:
      step: of the row, later than those before it.
      values: by name, the same names in every row.

    Raises:
      ValueError: names that differ from those of earlier rows.
    """
    columns = ['step', *values]
    lines = [[step, *(f'{value:.9g}' for value in values.values())]]
    if self._columns is None:
      self._columns = columns
      lines.insert(0, columns)
    if columns != self._columns:
      raise ValueError(
        f'expected the columns {self._columns} of {self._path}, got {columns}'
      )
    with self._path.open('a', newline='') as file:
      csv.writer(file).writerows(lines)


def read_table(path: pathlib.Path) -> list[dict[str, float]]:
  """Reads what a `Table` holds.

  Args:
    path: of the file.

  Returns:
    A mapping from column to number for each row.
  """
  columns, rows = _read(path)
  return [dict(zip(columns, map(float, row), strict=True)) for row in rows]


def seconds(folder: pathlib.Path) -> float:
  """Returns the seconds of all steps of a run, of all its starts together.

  Args:
    folder: of the run.
  """
  return sum(row['seconds'] for row in read_table(folder / 'train.csv'))


class Log:
  """`train.csv` and `evaluation.csv` of a run, and the same in TensorBoard.

  A context manager.
  """

  def __init__(self, folder: pathlib.Path, start: int):
    """Opens the files of a run.

    Args:
      folder: of the run.
      start: steps that were taken; what is said of later ones is dropped.
    """
    # Of a run that starts anew, the evaluation before its first step goes too.
    last_step = start if start else -1
    names = ('train', 'evaluation')
    self._tables = {
      name: Table(folder / f'{name}.csv', last_step) for name in names
    }
    self._board = tensorboardX.SummaryWriter(
      str(folder / 'tensorboard'), purge_step=last_step + 1
    )
    self._clock = time.monotonic()

  def __enter__(self):
    return self

  def __exit__(self, *error):
    self._board.close()

  def train(
    self, step: int, metrics: Sequence[step_lib.Metrics]
  ) -> dict[str, float]:
    """Writes the means of the last steps, and the seconds since what was said.

    Args:
      step: the last of them.
      metrics: of each step.

    Returns:
      Name -> mean, ratios of totals.

    Raises:
      ValueError: a step whose loss or norms are not finite.
    """
    metrics = jax.device_get(list(metrics))
    for number, found in enumerate(metrics, step - len(metrics) + 1):
      for name in _VITAL:
        if not math.isfinite(found[name][0]):
          raise ValueError(
            f'expected a finite {name} at step {number}, got '
            f'{found[name][0]}; the checkpoints before it are kept'
          )
    row = step_lib.means(metrics)
    self._write('train', step, {**row, 'seconds': self._lap()})
    return row

  def evaluation(self, step: int, values: Mapping[str, float]) -> None:
    """Writes what an evaluation gave.

    Args:
      step: after which it was made.
      values: by name.
    """
    self._write('evaluation', step, values)
    self._lap()

  def _write(self, table, step, values):
    self._tables[table].append(step, values)
    for name, value in values.items():
      self._board.add_scalar(f'{table}/{name}', value, step)

  def _lap(self):
    before, self._clock = self._clock, time.monotonic()
    return self._clock - before


def _read(path):
  """Reads the columns and the rows that are whole: that have an end."""
  if not path.exists():
    return None, []
  whole, _, _ = path.read_text().rpartition('\n')
  columns, *rows = [*csv.reader(whole.splitlines())] or [None]
  return columns, rows
