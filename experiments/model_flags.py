"""The model that the flags of an experiment tell of."""

import pathlib

import jax.numpy as jnp
from absl import flags, logging

from experiments import records
from specjax import parallel
from specjax.checkpoint import resolve

FLAGS = flags.FLAGS

# The shared flags that are read here.
SHARED_FLAGS = ('model', 'dtype', 'weights', 'order')


def load(
  experiment: str | None = None, layout: parallel.Layout | None = None
) -> resolve.Checkpoint:
  """Loads the model; the order that it has is the value of --order then.

  A run that goes on keeps the order it was begun with: `auto` might choose
  another one now, for it times products, and stages are those of one order.

  Args:
    experiment: whose run `--run_name` names; None where there is no run.
    layout: devices whose groups share out a copy of the parameters each; None
      for one device.

  Raises:
    ValueError: as `resolve.load`.
  """
  order = FLAGS.order
  if order == 'auto' and experiment and FLAGS.run_name:
    folder = pathlib.Path(FLAGS.results_dir, experiment, FLAGS.run_name)
    order = records.begun_with(folder, 'order') or order
  model = resolve.load(
    FLAGS.model,
    jnp.dtype(FLAGS.dtype),
    layout,
    blocks=FLAGS.weights == 'blocks',
    order=order,
  )
  logging.info('the model is loaded, order %s', model.order)
  # Stages and records are of that order.
  FLAGS.order = model.order
  return model
