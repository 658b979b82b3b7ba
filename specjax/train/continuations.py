"""Texts that a model wrote itself, kept as records of array_record files.

A record is a JSON object with the fields of `Continuation`.  A file is one
finished batch and appears whole or not at all.
"""

import json
import os
import pathlib
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from array_record.python import array_record_data_source, array_record_module

_SUFFIX = '.array_record'


class Continuation(NamedTuple):
  """A prompt and how the model went on.

  Attributes:
    id: name of the prompt.
    kind: of the prompt, such as 'chat'.
    prompt: its words.
    prompt_ids: token ids of the conversation up to the answer.
    answer_ids: token ids of the answer, with the one that ended it if it ended.
    temperature: at which it was sampled; 0 for the best token.
    seed: of the request.
  """

  id: str
  kind: str
  prompt: str
  prompt_ids: list[int]
  answer_ids: list[int]
  temperature: float
  seed: int


def shard_path(folder: pathlib.Path, index: int) -> pathlib.Path:
  """Returns where a folder has its file of this index.

  Args:
    folder: of the files.
    index: from 0.
  """
  return folder / f'{index:05}{_SUFFIX}'


def write(path: pathlib.Path, texts: Iterable[Continuation]) -> None:
  """Writes a file, whole or not at all.

  Args:
    path: of the file.
    texts: its records.
  """
  unfinished = path.with_name(f'.{path.name}.{os.getpid()}')
  # Groups of one record can be read in any order at little cost.
  writer = array_record_module.ArrayRecordWriter(
    str(unfinished), 'group_size:1'
  )
  for text in texts:
    writer.write(json.dumps(text._asdict(), ensure_ascii=False).encode())
  writer.close()
  os.replace(unfinished, path)


class Source(Sequence):
  """The texts of a folder, in the order of its files."""

  def __init__(self, folder: str | pathlib.Path):
    """Finds the files.

    Args:
      folder: that holds them.

    Raises:
      ValueError: it has none.
    """
    paths = sorted(pathlib.Path(folder).glob(f'[0-9]*{_SUFFIX}'))
    if not paths:
      raise ValueError(f'expected {_SUFFIX} files in {folder}, got none')
    self._records = array_record_data_source.ArrayRecordDataSource(paths)

  def __len__(self):
    return len(self._records)

  def __getitem__(self, index: int) -> Continuation:
    if not 0 <= index < len(self):
      raise IndexError(f'expected a text below {len(self)}, got {index}')
    return Continuation(**json.loads(self._records[index]))
