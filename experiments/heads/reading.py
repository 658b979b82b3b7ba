"""Texts become lessons: the verifier reads them; some of them are held out."""

import pathlib
from collections.abc import Sequence

import jax
import tqdm

from experiments import records
from specjax.checkpoint import resolve
from specjax.llama import eagle
from specjax.train import (
  continuations,
  data,
  documents,
  lesson_files,
  lessons,
  sources,
)

# Rows that the verifier reads at a time.
_ROWS = 4


def read(
  verifier: resolve.Checkpoint,
  texts_folder: pathlib.Path,
  folder: pathlib.Path,
  length: int,
) -> tuple[lesson_files.Lessons, lesson_files.Lessons]:
  """Lets the verifier read what it has not read yet.

  Args:
    verifier: the model.
    texts_folder: of prompts with answers, as `continuations` writes them.
    folder: of the lessons; an earlier start may have left some there.
    length: `T`, of a row.

  Returns:
    Lessons to learn from, and those held out.

  Raises:
    ValueError: no texts, or lessons that are there are of others.
  """
  parts = {
    'train': sources.written(texts_folder, 'train'),
    'held_out': sources.written(texts_folder, 'validation'),
  }
  told = [[[t.prompt_ids, t.answer_ids] for t in p] for p in parts.values()]
  facts = {
    'model': verifier.name,
    'texts': records.digest(told),
    'length': length,
  }
  folder.mkdir(parents=True, exist_ok=True)
  records.Stages(folder, facts)
  for name, texts in parts.items():
    _write(verifier, texts, folder / name, length)
  return tuple(lesson_files.Lessons(folder / name) for name in parts)


def in_order(
  source: lesson_files.Lessons, num_rows: int, most_batches: int
) -> list[lessons.Lesson]:
  """Returns the first rows in batches; a rest that fills none is left out.

  Args:
    source: the lessons.
    num_rows: of a batch.
    most_batches: how many.

  Raises:
    ValueError: less than a batch.
  """
  num_batches = min(len(source) // num_rows, most_batches)
  if num_batches == 0:
    raise ValueError(
      f'expected --rows of at most {len(source)}, the held-out rows, got '
      f'{num_rows}'
    )
  return [
    source.take(range(i * num_rows, (i + 1) * num_rows))
    for i in range(num_batches)
  ]


def _write(
  verifier: resolve.Checkpoint,
  texts: Sequence[continuations.Continuation],
  folder: pathlib.Path,
  length: int,
) -> None:
  """Writes the lessons of some texts."""
  features = eagle.published_features(verifier.params.config.num_layers)
  read_rows = jax.jit(lessons.read, static_argnames='layers')
  batches = data.batches(
    texts,
    documents.of_continuation,
    batch_size=_ROWS,
    length=length,
    seed=0,
    num_epochs=1,
  )
  # About as many as whole rows would be; some are padding.
  num_tokens = sum(len(t.prompt_ids) + len(t.answer_ids) for t in texts)
  lesson_files.write(
    folder,
    tqdm.tqdm(
      batches,
      f'{folder.name} is read',
      total=-(-num_tokens // (_ROWS * length)),
      unit='batch',
      disable=None,
    ),
    lambda batch: read_rows(verifier.params, *batch, layers=features),
  )
