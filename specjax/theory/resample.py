"""Spreads and halves over prompts.

Tokens of one prompt are not independent, so a row, which is all that came from
one prompt, is drawn or left out as a whole.  One seed gives one set of
resamples: intervals of different curves of the same rows are paired.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

_NUM_RESAMPLES = 2000
_COVERAGE = 0.95


class Interval(NamedTuple):
  """A value with its 95 % interval, all of one shape."""

  value: jax.Array
  low: jax.Array
  high: jax.Array


def halves(rows: jax.Array, seed: int) -> jax.Array:
  """Returns `[M]` bool: which entries belong to a random half of the rows.

  What is fitted on one half and evaluated on the other is not flattered by the
  noise that it was fitted to.

  Args:
    rows: `[M]` int32, the row of each entry.
    seed: one seed, one split.

  Raises:
    ValueError: the entries are of fewer than two rows.
  """
  distinct = np.unique(np.asarray(rows))
  if len(distinct) < 2:
    raise ValueError(
      f'expected at least 2 prompts to fit on one half of them, got'
      f' {len(distinct)}'
    )
  shuffled = np.random.default_rng(seed).permutation(distinct)
  return jnp.asarray(np.isin(rows, shuffled[: len(distinct) // 2]))


def bootstrap(
  statistic_fn: Callable[[jax.Array], jax.Array], num_rows: int, seed: int
) -> Interval:
  """Returns a statistic of the rows, with its bootstrap interval.

  Args:
    statistic_fn: from `counts [R, S]`, how often each row is drawn in each of S
      resamples, to the statistic `[..., S]`.
    num_rows: `R`.
    seed: one seed, one set of resamples.
  """
  value = statistic_fn(jnp.ones((num_rows, 1)))[..., 0]
  counts = np.random.default_rng(seed).multinomial(
    num_rows, np.full(num_rows, 1.0 / num_rows), size=_NUM_RESAMPLES
  )
  resampled = jnp.sort(statistic_fn(jnp.asarray(counts.T, float)), axis=-1)
  # Order statistics, not interpolated: infinities may be among them.
  outside = int(_NUM_RESAMPLES * (1.0 - _COVERAGE) / 2.0)
  return Interval(
    value=value, low=resampled[..., outside], high=resampled[..., -1 - outside]
  )


def ratio(
  numerators: jax.Array, denominators: jax.Array, seed: int
) -> Interval:
  """Returns the ratio of totals `sum a / sum b`, with its bootstrap interval.

  Args:
    numerators: `[..., R]`, a row's share of the numerator.
    denominators: `[..., R]`, likewise; a total of 0 gives inf.
    seed: one seed, one set of resamples.
  """
  return bootstrap(
    lambda counts: ratio_of_totals(numerators, denominators, counts),
    jnp.shape(denominators)[-1],
    seed,
  )


def ratio_difference(
  numerators: tuple[jax.Array, jax.Array],
  denominators: tuple[jax.Array, jax.Array],
  seed: int,
) -> Interval:
  """Returns the difference of two ratios of totals over the same rows.

  `sum a_0 / sum b_0 - sum a_1 / sum b_1`, both from the same resampled rows.

  Args:
    numerators: two arrays `[..., R]`.
    denominators: two arrays `[..., R]`, of positive totals.
    seed: one seed, one set of resamples.
  """
  return bootstrap(
    lambda counts: (
      ratio_of_totals(numerators[0], denominators[0], counts)
      - ratio_of_totals(numerators[1], denominators[1], counts)
    ),
    jnp.shape(denominators[0])[-1],
    seed,
  )


def mean(values: jax.Array, rows: jax.Array, seed: int) -> Interval:
  """Returns the mean over entries; their rows are resampled as a whole.

  A paired comparison is the mean of differences.

  Args:
    values: `[..., M]`.
    rows: `[M]` int32, the row of each entry.
    seed: one seed, one set of resamples.
  """
  distinct, group = np.unique(np.asarray(rows), return_inverse=True)
  belongs = jax.nn.one_hot(group, len(distinct))
  return ratio(values @ belongs, jnp.sum(belongs, axis=0), seed)


def ratio_of_totals(
  numerators: jax.Array, denominators: jax.Array, counts: jax.Array
) -> jax.Array:
  """Returns `[..., S]`, the ratio of totals in each resample.

  A total that is not positive, as sampled lower bounds may have, gives inf.

  Args:
    numerators: `[..., R]`.
    denominators: `[..., R]`.
    counts: `[R, S]`, how often each row was drawn.
  """
  total = jnp.asarray(denominators, float) @ counts
  ratios = (jnp.asarray(numerators, float) @ counts) / total
  return jnp.where(total > 0.0, ratios, jnp.inf)
