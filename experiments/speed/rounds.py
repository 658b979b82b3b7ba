"""Ways of decoding, timed in turns: every round runs every way once.

Machines are noisy and their speed drifts.  What is compared runs close
together: a round takes the batches of prompts in an order that is drawn, reads
one and decodes it in all ways, in an order that is drawn too.  The seconds of
two ways in one round, on the same prompts, are a pair.
"""

import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import jax
import numpy as np

from specjax.decode import prefill

Arrays = Mapping[str, np.ndarray]


class Task(NamedTuple):
  """Prompts of one kind that are decoded together.

  Attributes:
    kind: of the prompts.
    rows: `[B]`, which of all prompts they are.
    read_fn: reads them.
  """

  kind: str
  rows: np.ndarray
  read_fn: Callable[[], prefill.Batch]


class Output(NamedTuple):
  """What a way emitted for a prompt.

  Attributes:
    tokens: ids.
    num_steps: passes of the verifier that they took, 0 where nobody says.
  """

  tokens: list[int]
  num_steps: int


class Way(NamedTuple):
  """A way of decoding.

  Attributes:
    name: of drafter and tree.
    capacity: `N` of its trees.
    decode_fn: from the prompts of a task and what was read of them to what was
      emitted, in their order.
    go_on_fn: `(place, row, text) -> tokens`: decodes what follows the first
      tokens of a text behind a prompt; None for plain decoding, with whose
      texts those of others are compared.
    is_whole: whether it reads the prompts itself, so that its seconds hold
      that too.
    is_adaptive: whether it chooses up to how many of its nodes are read.
    is_exact: whether it rounds no more than plain decoding, so that its texts
      part from those at ties alone.
  """

  name: str
  capacity: int
  decode_fn: Callable[[np.ndarray, prefill.Batch], list[Output]]
  go_on_fn: Callable[[int, int, list[int]], list[int]] | None = None
  is_whole: bool = False
  is_adaptive: bool = False
  is_exact: bool = True


def warm_up(ways: Sequence[Way], tasks: Sequence[Task]) -> None:
  """Runs every way on the first task of each kind, so that all is compiled.

  Args:
    ways: those that will be timed.
    tasks: alike; all of a kind have one shape.
  """
  for kind in dict.fromkeys(task.kind for task in tasks):
    task = next(task for task in tasks if task.kind == kind)
    batch = task.read_fn()
    for way in ways:
      way.decode_fn(task.rows, batch)


def take(
  ways: Sequence[Way],
  tasks: Sequence[Task],
  seed: Sequence[int],
  max_new_tokens: int,
  on_done: Callable[[], None] = lambda: None,
  clock_fn: Callable[[], float] = time.perf_counter,
) -> Arrays:
  """Takes a round.

  Args:
    ways: `W` of them, compiled.
    tasks: `G` of them, which have `P` prompts together.
    seed: of the orders.
    max_new_tokens: `T`, most tokens of an output.
    on_done: called whenever a way is done with a task.
    clock_fn: the time in seconds.

  Returns:
    `reading [G]` and `seconds [W, G]`, in seconds; of the outputs `tokens [W,
    P, T]`, padded with 0, `num_tokens [W, P]` and `num_steps [W, P]`.
  """
  rng = np.random.default_rng(seed)
  shape = len(ways), sum(len(task.rows) for task in tasks)
  reading, seconds = np.empty(len(tasks)), np.empty((len(ways), len(tasks)))
  tokens = np.zeros((*shape, max_new_tokens), np.int32)
  num_tokens, num_steps = np.zeros(shape, np.int32), np.zeros(shape, np.int32)
  for g in rng.permutation(len(tasks)):
    rows = tasks[g].rows
    batch, reading[g] = _timed(tasks[g].read_fn, clock_fn)
    for w in rng.permutation(len(ways)):
      decode = functools.partial(ways[w].decode_fn, rows, batch)
      outputs, seconds[w, g] = _timed(decode, clock_fn)
      for row, output in zip(rows, outputs, strict=True):
        tokens[w, row, : len(output.tokens)] = output.tokens
        num_tokens[w, row] = len(output.tokens)
        num_steps[w, row] = output.num_steps
      on_done()
  return {
    'reading': reading,
    'seconds': seconds,
    'tokens': tokens,
    'num_tokens': num_tokens,
    'num_steps': num_steps,
  }


def _timed(run, clock_fn):
  """Returns what a function gives, and the seconds until it was there."""
  begin = clock_fn()
  result = jax.block_until_ready(run())
  return result, clock_fn() - begin
