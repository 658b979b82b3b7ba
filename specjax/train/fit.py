"""A run of training that can be killed at any time and goes on exactly."""

import contextlib
import pathlib
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import chex
import tqdm
from absl import logging

from specjax.train import checkpoints, log
from specjax.train import step as step_lib


class Batches(Protocol):
  """An endless source of batches that knows where it stands."""

  def __next__(self) -> chex.ArrayTree:
    """Gives the next batch."""

  def get_state(self) -> Any:
    """Says in JSON values which batch is next."""

  def set_state(self, state: Any) -> None:
    """Goes where `get_state` said that it was."""


def fit(
  step_fn: step_lib.StepFn,
  state: step_lib.State,
  frozen: chex.ArrayTree,
  batches: Batches,
  *,
  folder: pathlib.Path,
  num_steps: int,
  save_every: int,
  keep: int = 2,
  log_every: int = 10,
  evaluate_fn: Callable[[chex.ArrayTree], Mapping[str, float]] | None = None,
  eval_every: int | None = None,
) -> step_lib.State:
  """Trains, or goes on with the training that `folder` holds.

  A run that was stopped and started again takes the very steps of one that was
  not: parameters, optimiser, number of steps and data are those of the last
  checkpoint.  SIGTERM saves and ends the process; one process trains.

    checkpoints/     the newest `keep`
    train.csv        means over the steps since the row before, and seconds
    evaluation.csv   what `evaluate_fn` gave
    tensorboard/     the same

  Args:
    step_fn: as `step.make` returns it.
    state: before the first step; it is consumed.
    frozen: what the loss reads besides what is trained.
    batches: the data, from the beginning.
    folder: of the run.
    num_steps: of the whole run.
    save_every: steps from checkpoint to checkpoint; the last step is saved
      too.
    keep: how many checkpoints.
    log_every: steps from row to row of `train.csv`; each checkpoint and each
      evaluation has a row too.
    evaluate_fn: from what is trained to numbers by name.
    eval_every: steps from evaluation to evaluation, the first before any step;
      the last step is evaluated too.

  Returns:
    The state after the last step.

  Raises:
    ValueError: arguments that do not fit; a loss, or a norm of gradient or
      parameters, that is not finite; checkpoints none of which can be read.
    SystemExit: after SIGTERM.
  """
  _check(save_every, log_every, evaluate_fn, eval_every)
  folder = pathlib.Path(folder)
  with (
    checkpoints.Store(folder / 'checkpoints', keep) as store,
    _noting_sigterm() as sigterm,
  ):
    if found := store.restore(state):
      state, data_state = found
      batches.set_state(data_state)
    start = int(state.step)
    with log.Log(folder, start) as out, _bar(start, num_steps) as bar:
      if evaluate_fn and start == 0:
        out.evaluation(0, evaluate_fn(state.params))
      pending = []
      for number in range(start + 1, num_steps + 1):
        state, metrics = step_fn(state, frozen, next(batches))
        pending.append(metrics)
        bar.update()
        is_ending = sigterm.is_set()
        is_due = lambda every, n=number: n % every == 0 or n == num_steps
        is_saved = is_ending or is_due(save_every)
        is_evaluated = evaluate_fn and is_due(eval_every)
        if is_saved or is_evaluated or is_due(log_every):
          means = out.train(number, pending)
          bar.set_postfix(loss=f'{means["loss"]:.3f}')
          pending = []
        if is_evaluated:
          out.evaluation(number, evaluate_fn(state.params))
        if is_saved:
          store.save(state, batches.get_state())
        if is_ending:
          logging.warning('SIGTERM: step %d is saved in %s', number, folder)
          raise SystemExit(128 + signal.SIGTERM)
  return state


@contextlib.contextmanager
def _noting_sigterm() -> Iterator[threading.Event]:
  """Notes a SIGTERM, so that the step at hand is finished and saved."""
  noted = threading.Event()
  before = signal.signal(signal.SIGTERM, lambda *_: noted.set())
  try:
    yield noted
  finally:
    signal.signal(signal.SIGTERM, before)


def _bar(start, num_steps):
  return tqdm.tqdm(total=num_steps, initial=start, unit='step', disable=None)


def _check(save_every, log_every, evaluate_fn, eval_every):
  if min(save_every, log_every, eval_every or 1) < 1:
    raise ValueError(
      'expected save_every, log_every and eval_every of at least 1, got '
      f'{save_every}, {log_every} and {eval_every}'
    )
  if (evaluate_fn is None) != (eval_every is None):
    raise ValueError(
      'expected evaluate_fn and eval_every, or neither, got '
      f'{evaluate_fn} and {eval_every}'
    )
