"""Work shared out to devices: the only file that names their axes."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import NamedSharding, PartitionSpec

# Rows of a batch are shared out along one axis of devices, a model's arrays
# along the other.
_ROWS, _PARTS = 'data', 'model'

MODES = ('pmap', 'shard_map')


class Layout(NamedTuple):
  """Devices that decode, in groups that hold one copy of the model each.

  Attributes:
    mesh: `[groups, devices of a group]`.
    mode: how work is given to groups, of `MODES`; `pmap` is for groups of one
      device.
  """

  mesh: jax.sharding.Mesh
  mode: str

  @property
  def num_groups(self) -> int:
    """How many groups share out rows."""
    return self.mesh.shape[_ROWS]

  @property
  def num_parts(self) -> int:
    """How many devices of a group share out a model."""
    return self.mesh.shape[_PARTS]


def make_layout(
  mode: str,
  num_parts: int = 1,
  devices: Sequence[jax.Device] | None = None,
) -> Layout:
  """Puts devices into groups.

  Args:
    mode: how work is given to groups, of `MODES`.
    num_parts: devices that share out one copy of the model.
    devices: all of this host by default.

  Returns:
    The groups.

  Raises:
    ValueError: an unknown mode, groups that devices do not fill, or groups of
      several devices with `pmap`.
  """
  if mode not in MODES:
    raise ValueError(f'expected a mode of {MODES}, got {mode!r}')
  devices = jax.local_devices() if devices is None else devices
  if num_parts < 1 or len(devices) % num_parts:
    raise ValueError(
      f'expected a divisor of {len(devices)} devices to share out a model, got '
      f'{num_parts}'
    )
  if mode == 'pmap' and num_parts > 1:
    raise ValueError(
      f'expected shard_map for a model on {num_parts} devices, got pmap'
    )
  grid = np.asarray(devices).reshape(-1, num_parts)
  return Layout(jax.sharding.Mesh(grid, (_ROWS, _PARTS)), mode)


def part(layout: Layout, axis: int | None = None) -> NamedSharding:
  """Where a model's array goes: to every group, in parts or whole.

  Args:
    layout: the devices.
    axis: along which each group shares it out; None to have it whole on every
      device.
  """
  spec = () if axis is None else (*[None] * axis, _PARTS)
  return NamedSharding(layout.mesh, PartitionSpec(*spec))


def spread(tree: chex.ArrayTree, layout: Layout | None) -> chex.ArrayTree:
  """Puts whole arrays on every device.

  Args:
    tree: arrays of any shapes.
    layout: the devices; None leaves arrays where they are.

  Returns:
    The arrays; those that are on these devices already, in whatever parts, are
    not moved.
  """
  if layout is None:
    return tree
  whole = part(layout)
  mesh_of = lambda x: getattr(getattr(x, 'sharding', None), 'mesh', None)
  is_there = lambda x: mesh_of(x) == layout.mesh
  return jax.tree.map(
    lambda x: x if is_there(x) else jax.device_put(x, whole), tree
  )


def put_rows(tree: chex.ArrayTree, layout: Layout | None) -> chex.ArrayTree:
  """Puts an equal share of rows on every group.

  Args:
    tree: arrays whose leading axis is a multiple of the number of groups.
    layout: the devices; None puts all on the default device.

  Returns:
    The arrays.
  """
  if layout is None:
    return jax.tree.map(jnp.asarray, tree)
  rows = NamedSharding(layout.mesh, PartitionSpec(_ROWS))
  return jax.device_put(tree, rows)


def keep_rows(
  tree: chex.ArrayTree, axes: chex.ArrayTree, layout: Layout | None
) -> chex.ArrayTree:
  """Tells the compiler that every group keeps its own rows.

  Args:
    tree: arrays of a program.
    axes: of each array the axis of rows, in the shape of `tree` or of its top.
    layout: the devices; None says nothing.

  Returns:
    The arrays; whether their other axes are shared out is left open.
  """
  if layout is None:
    return tree

  def constrain(x, axis):
    spec = [PartitionSpec.UNCONSTRAINED] * x.ndim
    spec[axis] = _ROWS
    where = NamedSharding(layout.mesh, PartitionSpec(*spec))
    return jax.lax.with_sharding_constraint(x, where)

  return jax.tree.map(constrain, tree, jax.tree.broadcast(axes, tree))


def by_rows(
  fn: Callable[[chex.ArrayTree, chex.ArrayTree], chex.ArrayTree],
  layout: Layout | None,
  axes: chex.ArrayTree = 0,
  out_axes: chex.ArrayTree = 0,
) -> Callable[[chex.ArrayTree, chex.ArrayTree], chex.ArrayTree]:
  """Returns `fn`, run by each group on rows of its own.

  Groups know nothing of one another: each takes as many turns of a loop as its
  own rows need.

  Args:
    fn: from what all share and a group's rows.
    layout: the devices; None returns `fn` itself.
    axes: of each array with rows their axis, or of all below it.
    out_axes: of each result, alike.

  Returns:
    The same function of all rows, to be jitted; their number is a multiple of
    the number of groups.
  """
  if layout is None:
    return fn
  if layout.mode == 'pmap':
    return _pmapped(fn, layout, axes, out_axes)
  spec = lambda axis: PartitionSpec(*[None] * axis, _ROWS)
  return jax.shard_map(
    fn,
    mesh=layout.mesh,
    axis_names={_ROWS},
    in_specs=(PartitionSpec(), jax.tree.map(spec, axes)),
    out_specs=jax.tree.map(spec, out_axes),
    # A loop may begin with constants, and end with rows.
    check_vma=False,
  )


def _pmapped(fn, layout, axes, out_axes):
  """As `by_rows`: `pmap` wants an axis of its own, as long as the devices."""
  each = jax.pmap(
    fn,
    axis_name=_ROWS,
    in_axes=(None, axes),
    out_axes=out_axes,
    devices=list(layout.mesh.devices.flat),
  )

  def split(x, axis):
    shape = (layout.num_groups, -1)
    return x.reshape(*x.shape[:axis], *shape, *x.shape[axis + 1 :])

  def join(x, axis):
    return x.reshape(*x.shape[:axis], -1, *x.shape[axis + 2 :])

  def run(shared, rows):
    found = each(shared, _map(split, rows, axes))
    return _map(join, found, out_axes)

  return run


def _map(fn, tree, axes):
  return jax.tree.map(fn, tree, jax.tree.broadcast(axes, tree))


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
  return jax.pmap(fn, axis_name=_ROWS, in_axes=(None, 0))


def summed(
  fn: Callable[[chex.ArrayTree, chex.ArrayTree], chex.ArrayTree],
  layout: Layout,
) -> Callable[[chex.ArrayTree, chex.ArrayTree], chex.ArrayTree]:
  """Returns `fn`, run by each group on its rows, its results summed.

  Args:
    fn: from what all groups share and a group's rows; its results are sums
      over the rows.
    layout: the devices.

  Returns:
    A function of what is shared and of arrays whose leading axis is a multiple
    of the number of groups, as `spread` and `put_rows` place them; to be
    jitted.
  """

  def run(shared, rows):
    return jax.lax.psum(fn(shared, rows), _ROWS)

  return jax.shard_map(
    run,
    mesh=layout.mesh,
    in_specs=(PartitionSpec(), PartitionSpec(_ROWS)),
    out_specs=PartitionSpec(),
    # Or gradients of what is shared would be summed a second time.
    check_vma=False,
  )
