"""Texts become lessons: the verifier reads them, and some are held out."""

import pathlib
from collections.abc import Sequence

import jax
import numpy as np
import tqdm

from experiments import records
from experiments.heads import packing
from specjax.checkpoint import resolve
from specjax.llama import eagle
from specjax.train import continuations, lesson_files, lessons

# Rows that the verifier reads at a time.
_ROWS = 4


def read(
  verifier: resolve.Checkpoint,
  texts: Sequence[continuations.Continuation],
  folder: pathlib.Path,
  *,
  length: int,
  num_held_out: int,
) -> tuple[lesson_files.Lessons, lesson_files.Lessons]:
  """Lets the verifier read what it has not read yet.

  Args:
    verifier: the model.
    texts: prompts with answers.
    folder: of the lessons; an earlier start may have left some there.
    length: `T`, of a row.
    num_held_out: texts that nothing is learnt from.

  Returns:
    Lessons to learn from, and those held out.

  Raises:
    ValueError: lessons of other texts, or too many texts held out.
  """
  parts = dict(
    zip(('train', 'held_out'), split(texts, num_held_out), strict=True)
  )
  told = [[text.prompt_ids, text.answer_ids] for text in texts]
  facts = {
    'model': verifier.name,
    'texts': records.digest(told),
    'length': length,
    'held_out': num_held_out,
  }
  folder.mkdir(parents=True, exist_ok=True)
  records.Stages(folder, facts)
  features = eagle.published_features(verifier.params.config.num_layers)
  read_rows = jax.jit(lessons.read, static_argnames='layers')
  for name, part in parts.items():
    batches = list(packing.pack(part, _ROWS, length))
    lesson_files.write(
      folder / name,
      tqdm.tqdm(batches, f'{name} is read', unit='batch', disable=None),
      lambda batch: read_rows(verifier.params, *batch, layers=features),
    )
  return tuple(lesson_files.Lessons(folder / name) for name in parts)


def split(
  texts: Sequence[continuations.Continuation], num_held_out: int
) -> tuple[list, list]:
  """Holds out texts, evenly spaced over all.

  Args:
    texts: in any order.
    num_held_out: how many.

  Returns:
    Those to learn from, and those held out.

  Raises:
    ValueError: nothing would be left to learn from.
  """
  if num_held_out >= len(texts):
    raise ValueError(
      f'expected --held_out below {len(texts)}, the number of texts, got '
      f'{num_held_out}'
    )
  held_out = set(np.linspace(0, len(texts) - 1, num_held_out).astype(int))
  parts = [], []
  for index, text in enumerate(texts):
    parts[index in held_out].append(text)
  return parts


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
