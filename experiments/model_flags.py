"""The model that the flags of an experiment tell of."""

import jax.numpy as jnp
from absl import flags

from specjax import parallel
from specjax.checkpoint import resolve

FLAGS = flags.FLAGS

# The shared flags that are read here.
SHARED_FLAGS = ('model', 'dtype', 'weights', 'order')


def load(layout: parallel.Layout | None = None) -> resolve.Checkpoint:
  """Loads the model; the order that it chose is the value of --order then.

  Args:
    layout: devices whose groups share out a copy of the parameters each; None
      for one device.

  Raises:
    ValueError: as `resolve.load`.
  """
  model = resolve.load(
    FLAGS.model,
    jnp.dtype(FLAGS.dtype),
    layout,
    blocks=FLAGS.weights == 'blocks',
    order=FLAGS.order,
  )
  # Stages and records are of that order.
  FLAGS.order = model.order
  return model
