"""The loop over devices: each decodes rows of its own, to their own end."""

import functools
from collections.abc import Callable

from specjax import parallel, programs
from specjax.decode import rows as rows_lib
from specjax.draft import base

# A loop as `(params, state, max_steps) -> state`.
RunFn = Callable[[base.Params, rows_lib.DecodeState, int], rows_lib.DecodeState]


@functools.partial(programs.jit, static_argnums=(0, 1), donate_argnums=3)
def run(
  run_fn: RunFn,
  layout: parallel.Layout,
  params: base.Params,
  state: rows_lib.DecodeState,
  max_steps: int,
) -> rows_lib.DecodeState:
  """Runs a loop on every device, which takes as many steps as its rows need.

  Args:
    run_fn: the loop; the same object, or every call compiles anew.
    layout: the devices.
    params: whole on every device, or in parts on every group.
    state: the rows, a multiple of the number of groups; donated.
    max_steps: most steps of this call.

  Returns:
    The rows after their last step.
  """

  def run_group(shared, rows):
    verifier, drafter, max_steps = shared
    sampling, state = rows
    return run_fn(base.Params(verifier, drafter, sampling), state, max_steps)

  rows = (params.sampling, state)
  axes = rows_lib.row_axes(rows)
  run_all = parallel.by_rows(run_group, layout, axes, axes[1])
  return run_all((params.verifier, params.drafter, max_steps), rows)
