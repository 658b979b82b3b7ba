"""Seconds from the start of an experiment to its first tokens, by its words.

An experiment that is run with `--verbosity=0` says when it has come where; its
first tokens are seen in the progress bar of plain decoding.
"""

import functools
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

# What is over when these words are read.
MARKS = {
  'imports': re.compile(b'main begins'),
  'model': re.compile(b'the model is loaded'),
  'prompts': re.compile(b'the prompts are read'),
  'first_tokens': re.compile(rb'plain: +[1-9]\d*%'),
}

_MOST_BYTES = 2**16
_MOST_TOLD = 1000


def seconds(
  experiment: str, arguments: Sequence[str], environment: Mapping[str, str]
) -> dict[str, float]:
  """Starts an experiment, and ends it when its first tokens have come.

  Args:
    experiment: its name, such as `speed_of_light`.
    arguments: of its command line.
    environment: variables that are added to those of this process.

  Returns:
    Mark of `MARKS` -> seconds from the start of the process.

  Raises:
    ValueError: it ended before, and what it said last.
  """
  words = [sys.executable, '-P', '-m', f'experiments.{experiment}']
  begin = time.monotonic()
  with subprocess.Popen(
    [*words, *arguments, '--verbosity=0'],
    env=os.environ | environment,
    stdout=subprocess.DEVNULL,
    stderr=subprocess.PIPE,
  ) as child:
    # Not line by line: a bar that moves ends none.
    read = functools.partial(child.stderr.read1, _MOST_BYTES)
    try:
      return read_marks(iter(read, b''), lambda: time.monotonic() - begin)
    finally:
      child.kill()


def read_marks(
  pieces: Iterable[bytes], clock_fn: Callable[[], float]
) -> dict[str, float]:
  """Reads what an experiment says up to its first tokens.

  Args:
    pieces: of it, as they come.
    clock_fn: tells the seconds since the start.

  Returns:
    As `seconds`.

  Raises:
    ValueError: alike.
  """
  found, said = {}, b''
  for piece in pieces:
    said += piece
    for name, words in MARKS.items():
      if name not in found and words.search(said):
        found[name] = clock_fn()
    if len(found) == len(MARKS):
      return found
  raise ValueError(
    f'expected an experiment that comes to {", ".join(MARKS)}, got '
    f'{", ".join(found) or "none"} and {said.decode()[-_MOST_TOLD:]}'
  )
