"""Which threshold makes the dual bound tight: chosen on other texts.

`t(c) = (a + b log p_max(c))_+`, where `p_max` is the largest probability of the
root's law.  With b = 0 the threshold is one constant, and the bound covers
every rule of mean size at most `N`; else it covers the rules with at most `N`
nodes at every context.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from specjax.theory import entropy as entropy_lib
from specjax.theory import resample, start_bounds

# Slopes b to choose from.
CONSTANT = (0.0,)
BY_ROOT = (-2.0, -1.5, -1.25, -1.0, -0.75, -0.5, -0.25, 0.0, 0.25, 0.5)

# Intercepts are tried from 0 to log N + _MARGIN: the least probable node of the
# best tree has about `1 / (N mu)`.
_NUM_INTERCEPTS = 64
_MARGIN = 3.0


def cross_fitted(
  texts: entropy_lib.Texts,
  rows: jax.Array,
  positions: jax.Array,
  capacity: int,
  slopes: Sequence[float] = CONSTANT,
  seed: int = 0,
) -> jax.Array:
  """Returns thresholds `[M]` in nats for `start_bounds.dual`.

  a and b minimise the mean bound over the starts of one half of the texts and
  are used for those of the other half: a minimum over the same starts would be
  biased low.

  Args:
    texts: sampled texts with their laws.
    rows: `[M]` int32, the text of each start; at least two different ones.
    positions: `[M]` int32, the first token after each start's root.
    capacity: `N >= 1`.
    slopes: values of b to choose from.
    seed: draws the halves.

  Raises:
    ValueError: as `start_bounds.dual` and `resample.halves` do.
  """
  is_first = resample.halves(rows, seed)
  grid = jnp.linspace(0.0, np.log(capacity) + _MARGIN, _NUM_INTERCEPTS)
  table = jnp.stack(
    [
      start_bounds.dual(texts, rows, positions, capacity, threshold).values
      for threshold in grid
    ]
  )
  log_p_max = texts.laws.top_log_p[rows, positions, 0]
  fits = [
    _fit(table, grid, log_p_max, jnp.asarray(slopes), half)
    for half in (~is_first, is_first)
  ]
  of_halves = [intercept + slope * log_p_max for intercept, slope in fits]
  return jnp.maximum(jnp.where(is_first, *of_halves), 0.0)


@jax.jit
def _fit(table, grid, log_p_max, slopes, is_used):
  """Returns the best intercept and slope for the starts that are used.

  A threshold between two of the grid is taken at the nearer one: any function
  of the context is a valid choice, and the fit needs no more.

  Args:
    table: `[G, M]`, the bound's samples at each threshold of the grid.
    grid: `[G]` thresholds, evenly spaced from 0; also the intercepts tried.
    log_p_max: `[M]`.
    slopes: `[J]`.
    is_used: `[M]` bool.
  """
  starts = jnp.arange(table.shape[1])

  def total(intercept, slope):
    place = jnp.round((intercept + slope * log_p_max) / grid[1])
    place = jnp.clip(place, 0, len(grid) - 1).astype(jnp.int32)
    return jnp.sum(jnp.where(is_used, table[place, starts], 0.0))

  def best_intercept(slope):
    totals = jax.lax.map(lambda intercept: total(intercept, slope), grid)
    return jnp.min(totals), grid[jnp.argmin(totals)]

  totals, intercepts = jax.lax.map(best_intercept, slopes)
  best = jnp.argmin(totals)
  return intercepts[best], slopes[best]
