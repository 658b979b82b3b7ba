"""Engines of other libraries as ways of decoding: ids in, ids out."""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

from experiments.speed import rounds


class Engine(NamedTuple):
  """Greedy decoding of one prompt by another library.

  Attributes:
    name: of the library, and of what it does.
    capacity: most tokens of a pass behind the prompt.
    generate_fn: `(prompt, max_new_tokens) -> tokens`, ids; a text ends with the
      token that ends it.
    is_exact: whether it rounds no more than we do.
  """

  name: str
  capacity: int
  generate_fn: Callable[[list[int], int], list[int]]
  is_exact: bool = True


def way(
  engine: Engine,
  ids: Sequence[Sequence[int]],
  max_new_tokens: int,
  max_length: int,
) -> rounds.Way:
  """Returns an engine as a way that reads the prompts itself, one at a time.

  Args:
    engine: takes part.
    ids: prompts as token ids.
    max_new_tokens: most tokens of an output.
    max_length: most tokens of prompt and output.
  """

  def generate(row, begin=()):
    prompt = [*ids[row], *begin]
    room = min(max_new_tokens - len(begin), max_length - len(prompt))
    return engine.generate_fn(prompt, room)

  return rounds.Way(
    engine.name,
    engine.capacity,
    functools.partial(_decode, generate),
    lambda place, row, text: generate(row, text[:place]),
    is_whole=True,
    is_exact=engine.is_exact,
  )


def _decode(generate, rows, batch):
  del batch  # What we read of the prompts.
  return [rounds.Output(generate(row), 0) for row in rows]
