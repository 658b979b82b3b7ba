"""The bounds of `start_bounds` from log-probs of sampled tokens alone.

Where no law is known, the term of each depth is its sample:

  dual      N e^-t + sum_{n = 0}^{N - 1} (1 - e^(S_n - t))_+,
  counting  (N - 1) e^-t + #{n < N : S_n <= t},

whose means over the text after a start bound `E[D | start]`; the proofs are
those of `start_bounds`, which takes part of the mean exactly and so has less
noise.  Which token ends a text is not known either: one that is recorded counts
as any other, which can only lift the bound.

A walk stops where its text ends.  Where a text was cut, the walk is held at its
last sum, the worst case, to the last depth that a tree can have.
"""

from collections.abc import Sequence

import chex
import flax
import jax
import jax.numpy as jnp
import numpy as np

from specjax.theory import resample, start_bounds

# Thresholds are tried from 0 to log N + _MARGIN: the least probable node of the
# best tree has about `1 / (N mu)`.
_NUM_THRESHOLDS = 64
_MARGIN = 3.0


@flax.struct.dataclass
class Walks:
  """What followed each of M starts.

  Attributes:
    sums: `[M, W]` nats, `S_0 = 0` to `S_(W - 2)`, and a last column for all
      depths past it: inf after an end, held at the last sum after a cut.
    lengths: `[M]` int32, recorded tokens of each walk.
    has_ended: `[M]` bool, the text ended after them and was not cut.
  """

  sums: jax.Array
  lengths: jax.Array
  has_ended: jax.Array


def of_surprisals(
  surprisals: Sequence[np.ndarray], has_ended: Sequence[bool]
) -> Walks:
  """Returns the walks along what was recorded after each start.

  Args:
    surprisals: M arrays `[L_i]` of nats, of the tokens after each start; for
      trees of `N` nodes the first `N - 1` are enough.
    has_ended: `[M]`, whether the text ended after its last recorded token;
      without meaning where there are `N - 1` tokens.
  """
  lengths = np.array([len(s) for s in surprisals], np.int32)
  has_ended = np.asarray(has_ended, bool)
  sums = np.zeros((len(lengths), max(lengths, default=0) + 2), np.float32)
  for row, values, is_end in zip(sums, surprisals, has_ended, strict=True):
    row[1 : len(values) + 1] = np.cumsum(values)
    row[len(values) + 1 :] = np.inf if is_end else row[len(values)]
  return Walks(jnp.asarray(sums), jnp.asarray(lengths), jnp.asarray(has_ended))


def dual(
  walks: Walks, capacity: int, thresholds: jax.Array
) -> start_bounds.StartBound:
  """Returns samples of the dual bound on `D`, in tokens.

  `N e^-t + sum over n < N of (1 - e^(S_n - t))_+`.

  Args:
    walks: of M starts.
    capacity: `N >= 1`.
    thresholds: `[]` or `[M]` nats, t; functions of what precedes the start.

  Raises:
    ValueError: the capacity is below 1 or a threshold is negative.
  """
  thresholds = _check(walks, capacity, thresholds)
  return _dual(walks, capacity, thresholds)


def counting(
  walks: Walks, capacity: int, thresholds: jax.Array
) -> start_bounds.StartBound:
  """Returns samples of the counting bound on `D`, in tokens.

  `(N - 1) e^-t + #{n < N : S_n <= t}`; never below `dual` at the same t.
  Arguments and errors are those of `dual`.
  """
  thresholds = _check(walks, capacity, thresholds)
  return _counting(walks, capacity, thresholds)


def cross_fitted(
  walks: Walks, rows: jax.Array, capacity: int, seed: int = 0
) -> jax.Array:
  """Returns thresholds `[M]` in nats, one constant for each half of the rows.

  Each minimises the mean of `dual` over the starts of the other half: a minimum
  over the same starts would be biased low.

  Args:
    walks: of M starts.
    rows: `[M]` int32, the row that each start belongs to; at least two.
    capacity: `N >= 1`.
    seed: draws the halves.

  Raises:
    ValueError: the capacity is below 1, or there are fewer than two rows.
  """
  _check(walks, capacity, 0.0)
  is_first = resample.halves(rows, seed)
  grid = jnp.linspace(0.0, np.log(capacity) + _MARGIN, _NUM_THRESHOLDS)
  table = _dual_table(walks.sums, capacity, grid)
  best = lambda half: grid[jnp.argmin(table @ half.astype(float))]
  return jnp.where(is_first, best(~is_first), best(is_first))


@jax.jit
def _dual(walks, capacity, thresholds):
  """`dual` after its checks."""
  values = _dual_values(walks.sums, capacity, thresholds)
  return start_bounds.StartBound(values, _is_open(walks, capacity, thresholds))


@jax.jit
def _counting(walks, capacity, thresholds):
  """`counting` after its checks."""
  is_counted = walks.sums <= thresholds[:, None]
  num_counted = is_counted @ _depths(walks.sums, capacity)
  values = (capacity - 1) * jnp.exp(-thresholds) + num_counted
  return start_bounds.StartBound(values, _is_open(walks, capacity, thresholds))


@jax.jit
def _dual_table(sums, capacity, grid):
  """Returns `[G, M]` samples, each threshold being used at all starts."""
  at = lambda t: _dual_values(sums, capacity, jnp.full(len(sums), t))
  return jax.lax.map(at, grid)


def _dual_values(sums, capacity, thresholds):
  """Returns `[M]` samples of the dual bound."""
  excess = -jnp.expm1(jnp.minimum(sums - thresholds[:, None], 0.0))
  return capacity * jnp.exp(-thresholds) + excess @ _depths(sums, capacity)


def _depths(sums, capacity):
  """Returns `[W]`: how many depths below `N` each column stands for."""
  num_columns = sums.shape[1]
  others = capacity - jnp.arange(num_columns)
  return jnp.clip(others, 0, 1).at[-1].set(jnp.maximum(others[-1], 0)) * 1.0


def _is_open(walks, capacity, thresholds):
  """Returns `[M]` bool: the walk outlived its text below its threshold."""
  is_cut = ~walks.has_ended & (walks.lengths < capacity - 1)
  return is_cut & (walks.sums[:, -1] <= thresholds)


def _check(walks, capacity, thresholds):
  """Returns thresholds `[M]`, or raises."""
  if capacity < 1:
    raise ValueError(f'expected capacity >= 1, got {capacity}')
  chex.assert_equal_shape([walks.sums[:, 0], walks.lengths, walks.has_ended])
  thresholds = jnp.asarray(thresholds, float)
  if not np.all(thresholds >= 0.0):
    raise ValueError(f'expected thresholds >= 0, got {np.min(thresholds)}')
  return jnp.broadcast_to(thresholds, walks.lengths.shape)
