"""Work shared out to devices: the only file that names their axis."""

from collections.abc import Callable, Sequence

import chex
import jax
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

AXIS = 'devices'


def on_devices(
  fn: Callable[[chex.ArrayTree, jax.Array], chex.ArrayTree],
) -> Callable[[chex.ArrayTree, jax.Array], chex.ArrayTree]:
  """Returns `fn`, run once on each local device.

  Args:
    fn: from what all devices share and what is a device's own.

  Returns:
    A function of what is shared, and of arrays with a leading axis of
    `jax.local_device_count()`; its results have that axis too.  Each call of
    `on_devices` compiles anew.
  """
  return jax.pmap(fn, axis_name=AXIS, in_axes=(None, 0))


def summed(
  fn: Callable[[chex.ArrayTree, chex.ArrayTree], chex.ArrayTree],
  devices: Sequence[jax.Device],
) -> Callable[[chex.ArrayTree, chex.ArrayTree], chex.ArrayTree]:
  """Returns `fn`, run by each device on its rows, its results summed.

  Args:
    fn: from what all devices share and a device's rows; its results are sums
      over the rows.
    devices: that share the rows.

  Returns:
    A function of what is shared and of arrays whose leading axis is a multiple
    of the number of devices, as `copy` and `share_out` place them; to be
    jitted.
  """

  def run(shared, rows):
    return jax.lax.psum(fn(shared, rows), AXIS)

  return jax.shard_map(
    run,
    mesh=_mesh(devices),
    in_specs=(PartitionSpec(), PartitionSpec(AXIS)),
    out_specs=PartitionSpec(),
    # Or gradients of what is shared would be summed a second time.
    check_vma=False,
  )


def copy(tree: chex.ArrayTree, devices: Sequence[jax.Device]) -> chex.ArrayTree:
  """Puts the whole of each array on every device.

  Args:
    tree: arrays of any shapes.
    devices: where they go.

  Returns:
    The arrays; those that are there already are not moved.
  """
  return jax.device_put(tree, NamedSharding(_mesh(devices), PartitionSpec()))


def share_out(
  tree: chex.ArrayTree, devices: Sequence[jax.Device]
) -> chex.ArrayTree:
  """Puts an equal share of the rows of each array on every device.

  Args:
    tree: arrays whose leading axis is a multiple of the number of devices.
    devices: where they go.

  Returns:
    The arrays.
  """
  rows = NamedSharding(_mesh(devices), PartitionSpec(AXIS))
  return jax.device_put(tree, rows)


def _mesh(devices):
  return jax.sharding.Mesh(np.asarray(devices), (AXIS,))
