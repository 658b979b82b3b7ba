"""Flags of the experiments that train, and the run that they ask for.

Flags are defined by the main that reads them, before `common.run`, so that a
test may import all experiments.
"""

import math
import pathlib
from collections.abc import Callable, Mapping

import chex
from absl import flags

from experiments import common
from specjax.train import fit as fit_lib
from specjax.train import optimizer as optimizer_lib
from specjax.train import step as step_lib

FLAGS = flags.FLAGS


def define(
  *, num_steps: int, learning_rate: float, rows: int, length: int
) -> None:
  """Defines the flags, as flags of the main that runs.

  Args:
    num_steps: default of `--num_steps`, as are those that follow of theirs.
    learning_rate: the highest.
    rows: of a step.
    length: of a row, in tokens.
  """
  with common.flags_of_main():
    _define_int('num_steps', num_steps, 'Steps of the run.')
    _define_int('rows', rows, 'Rows of a step, over all devices.')
    _define_int('length', length, 'Tokens of a row.')
    _define_int(
      'accumulate', 1, "Parts of a device's rows read in turn, for memory."
    )
    flags.DEFINE_float('learning_rate', learning_rate, 'The highest.')
    flags.DEFINE_integer(
      'warmup_steps', 50, 'Steps on which the rate rises.', lower_bound=0
    )
    flags.DEFINE_float('weight_decay', 0.1, 'Of matrices.', lower_bound=0)
    _define_int('save_every', 200, 'Steps from checkpoint to checkpoint.')
    _define_int('eval_every', 200, 'Steps from evaluation to evaluation.')
    _define_int('eval_batches', 32, 'Held-out batches of an evaluation.')
    flags.register_validator(
      'learning_rate',
      lambda rate: 0 < rate < math.inf,
      'expected a finite number above 0',
    )


def fit(
  loss_fn: step_lib.LossFn,
  params: chex.ArrayTree,
  frozen: chex.ArrayTree,
  batches: fit_lib.Batches,
  folder: pathlib.Path,
  evaluate_fn: Callable[[chex.ArrayTree], Mapping[str, float]],
) -> chex.ArrayTree:
  """Trains as the flags say.

  Args:
    loss_fn: what is made small.
    params: before the first step.
    frozen: what the loss reads besides.
    batches: the data.
    folder: of the run.
    evaluate_fn: from parameters to numbers by name.

  Returns:
    The parameters after the last step.
  """
  optimizer = optimizer_lib.adamw(
    optimizer_lib.schedule(
      FLAGS.learning_rate, FLAGS.num_steps, FLAGS.warmup_steps
    ),
    weight_decay=FLAGS.weight_decay,
  )
  state = fit_lib.fit(
    step_lib.make(loss_fn, optimizer, num_accumulate=FLAGS.accumulate),
    step_lib.init(params, optimizer),
    frozen,
    batches,
    folder=folder,
    num_steps=FLAGS.num_steps,
    save_every=FLAGS.save_every,
    evaluate_fn=evaluate_fn,
    eval_every=FLAGS.eval_every,
  )
  return state.params


def _define_int(name: str, default: int, text: str) -> None:
  flags.DEFINE_integer(name, default, text, lower_bound=1)
