"""One step of training, for any loss: gradients, devices, the optimiser.

A loss comes as a sum over targets and their number, never as a mean: so the
gradient of a batch that is read in parts, or by several devices, is that of the
whole batch, however unequal the parts are.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import chex
import flax.struct
import jax
import jax.numpy as jnp
import optax

from specjax import parallel

# A mean as (total, weight), so that several are averaged without error.
Metrics = Mapping[str, tuple[jax.Array, jax.Array]]

LossFn = Callable[
  [chex.ArrayTree, chex.ArrayTree, chex.ArrayTree],
  tuple[jax.Array, jax.Array, Metrics],
]


@flax.struct.dataclass
class State:
  """What a step changes, and a checkpoint keeps.

  Attributes:
    step: `[]` int32, steps taken.
    params: what is trained.
    opt_state: of the optimiser.
  """

  step: jax.Array
  params: chex.ArrayTree
  opt_state: optax.OptState


class _Totals(NamedTuple):
  """Sums over targets; each field may be added to that of other rows."""

  gradient: chex.ArrayTree
  loss: jax.Array
  num_targets: jax.Array
  metrics: Metrics


StepFn = Callable[
  [State, chex.ArrayTree, chex.ArrayTree], tuple[State, Metrics]
]


def init(
  params: chex.ArrayTree, optimizer: optax.GradientTransformation
) -> State:
  """The state before the first step.

  Args:
    params: what is trained; copied, since a step consumes its state.
    optimizer: of the run.

  Returns:
    The state.
  """
  params = jax.tree.map(jnp.array, params)
  return State(jnp.int32(0), params, optimizer.init(params))


def make(
  loss_fn: LossFn,
  optimizer: optax.GradientTransformation,
  *,
  num_accumulate: int = 1,
  devices: Sequence[jax.Device] | None = None,
) -> StepFn:
  """Makes a jitted step.

  With `l_i` the losses of the batch's `n` targets, the optimiser is given the
  gradient of `sum_i l_i / n` with respect to `params`.  Where targets are
  weighted, `l_i` and their number are.

  Args:
    loss_fn: from `(params, frozen, batch)` to the sum of the losses, the number
      of targets, and further means by name as `(total, weight)`.
    optimizer: turns gradients into updates.
    num_accumulate: parts of a device's rows that are read one after another, to
      save memory.
    devices: that share the rows; all by default.

  Returns:
    `(state, frozen, batch) -> (state, metrics)`.  The given state is consumed;
    `frozen` is whatever else the loss reads, and is best put where it is needed
    by `parallel.spread` before; arrays of `batch` have the rows as leading
    axis.
    `metrics` are those of `loss_fn` and `loss` (nats a target),
    `targets` (a step), `gradient_norm` (before clipping) and `parameter_norm`
    (after the step).

  Raises:
    ValueError: by `make`, for a `num_accumulate` below 1; by the step, for rows
      that devices and parts do not share evenly.
  """
  if num_accumulate < 1:
    raise ValueError(
      f'expected num_accumulate of at least 1, got {num_accumulate}'
    )
  layout = _layout(devices)

  def read(shared, rows):
    return _accumulate(loss_fn, num_accumulate, *shared, rows)

  read_everywhere = parallel.summed(read, layout)

  @jax.jit(donate_argnums=0)
  def update(state, frozen, batch):
    totals = read_everywhere((state.params, frozen), batch)
    return _apply(optimizer, state, totals)

  def step(state, frozen, batch):
    _check_rows(batch, layout.num_groups, num_accumulate)
    return update(
      *parallel.spread((state, frozen), layout),
      parallel.put_rows(batch, layout),
    )

  return step


def make_evaluation(
  loss_fn: LossFn, devices: Sequence[jax.Device] | None = None
) -> Callable[[chex.ArrayTree, chex.ArrayTree, chex.ArrayTree], Metrics]:
  """Makes a jitted look at a batch that changes nothing.

  Args:
    loss_fn: as of `make`.
    devices: that share the rows; all by default.

  Returns:
    `(params, frozen, batch) -> metrics`, those of `loss_fn` and `loss`.
  """
  layout = _layout(devices)

  def read(shared, rows):
    loss, num_targets, metrics = loss_fn(*shared, rows)
    return {**metrics, 'loss': (loss, num_targets)}

  read_everywhere = jax.jit(parallel.summed(read, layout))

  def evaluate(params, frozen, batch):
    _check_rows(batch, layout.num_groups, 1)
    shared = parallel.spread((params, frozen), layout)
    return read_everywhere(shared, parallel.put_rows(batch, layout))

  return evaluate


def means(metrics: Sequence[Metrics]) -> dict[str, float]:
  """Averages metrics of several batches: ratios of totals.

  Args:
    metrics: of each batch, with the same names.

  Returns:
    Name -> mean; NaN where all weights are 0.
  """

  def mean(pairs):
    total, weight = (float(sum(part)) for part in zip(*pairs, strict=True))
    return total / weight if weight else math.nan

  metrics = jax.device_get(list(metrics))
  return {name: mean(found[name] for found in metrics) for name in metrics[0]}


def _accumulate(loss_fn, num_parts, params, frozen, rows):
  """Reads rows part by part and sums what is found."""

  def read(part):
    def loss_of(params):
      loss, num_targets, metrics = loss_fn(params, frozen, part)
      return loss, (num_targets, metrics)

    (loss, (num_targets, metrics)), gradient = jax.value_and_grad(
      loss_of, has_aux=True
    )(params)
    return _Totals(gradient, loss, num_targets, metrics)

  parts = jax.tree.map(lambda x: x.reshape(num_parts, -1, *x.shape[1:]), rows)
  shapes = jax.eval_shape(read, jax.tree.map(lambda x: x[0], parts))
  zeros = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
  add = lambda totals, part: (jax.tree.map(jnp.add, totals, read(part)), None)
  totals, _ = jax.lax.scan(add, zeros, parts)
  return totals


def _apply(optimizer, state, totals):
  """Takes the step that the totals of a batch ask for."""
  # Without targets all totals are 0, and so is the gradient; the number may be
  # weighted, and below 1.
  num_targets = jnp.where(totals.num_targets > 0, totals.num_targets, 1)
  gradient = jax.tree.map(lambda x: x / num_targets, totals.gradient)
  updates, opt_state = optimizer.update(gradient, state.opt_state, state.params)
  params = optax.apply_updates(state.params, updates)
  once = jnp.float32(1)
  metrics = {
    **totals.metrics,
    'loss': (totals.loss, totals.num_targets),
    'targets': (totals.num_targets, once),
    'gradient_norm': (optax.tree.norm(gradient), once),
    'parameter_norm': (optax.tree.norm(params), once),
  }
  return State(state.step + 1, params, opt_state), metrics


def _layout(devices):
  devices = jax.devices() if devices is None else devices
  return parallel.make_layout('shard_map', devices=devices)


def _check_rows(batch, num_devices, num_accumulate):
  for rows in {x.shape[0] for x in jax.tree.leaves(batch)}:
    if rows % (num_devices * num_accumulate):
      raise ValueError(
        f'expected a multiple of {num_devices} devices x {num_accumulate} '
        f'parts rows, got {rows}'
      )
