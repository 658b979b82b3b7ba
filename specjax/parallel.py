"""Work shared out to devices: the only file that names their axis."""

from collections.abc import Callable

import chex
import jax

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
