"""Means and their spreads over any number of tokens, in bounded memory.

A batch of tokens becomes `Totals`, and totals add up: over the batches of a
file, over hosts, over the runs of a sweep.

  parts = (streaming.of_batch(*batch) for batch in batches)
  totals = functools.reduce(streaming.add, parts)
  mu = streaming.bootstrap(totals, lambda means: means.mu)

Each token brings values (say, `entropy.Moments`), its prompt and a cell, the
group it is counted in: a kind of prompt, a range of positions.  Spreads are
over prompts, for the tokens of one prompt are not independent, and a prompt's
tokens may come in several batches.  Its weights in all resamples, and its block
of the jackknife, are therefore hashed from its id: they are the same wherever
it is met, and nothing is kept of it.  For one prompt's own moments let the cell
be the prompt, and stretches of its text take the part of prompts.

Sums are kept in float64 on the host.  A statistic is a function of means, so
that it is a ratio of totals, never a mean of ratios.
"""

import hashlib
from collections.abc import Callable
from typing import NamedTuple

import chex
import jax
import numpy as np
from scipy import sparse, special, stats

from specjax.theory import resample

_NUM_RESAMPLES = 400
_NUM_BLOCKS = 64
_COVERAGE = 0.95

# Chances that a Poisson variable of mean 1 is at most 0, 1, ...
_POISSON_CDF = stats.poisson.cdf(np.arange(20), 1.0)

# A statistic `[..., S]` of means, whose leaves are `[..., C, S]`.
StatisticFn = Callable[[chex.ArrayTree], jax.Array]


class Totals(NamedTuple):
  """Sums over tokens, of C cells.

  The last axis of each is 1 + J + S: the plain sum, the sums of the jackknife's
  J blocks of prompts, and the sums of S resamples.

  Attributes:
    counts: `[C, 1 + J + S]` tokens.
    sums: pytree of `[..., C, 1 + J + S]`, of each of the values.
  """

  counts: np.ndarray
  sums: chex.ArrayTree


def prompt_id(name: str) -> int:
  """Returns a number below 2^64 for a prompt's name, the same in every run."""
  digest = hashlib.blake2b(name.encode(), digest_size=8).digest()
  return int.from_bytes(digest, 'little')


def of_batch(
  values: chex.ArrayTree,
  prompt_ids: np.ndarray,
  cells: np.ndarray | None = None,
  num_cells: int = 1,
  seed: int = 0,
) -> Totals:
  """Returns the totals of a batch of tokens.

  While it is summed it takes about 10 kB for each of its prompts.

  Args:
    values: pytree of `[..., M]`, what each token brings.
    prompt_ids: `[M]` integers, the prompt of each token.
    cells: `[M]` int, the cell of each token; all in cell 0 if not given.
    num_cells: `C`.
    seed: one seed, one set of resamples.

  Raises:
    ValueError: lengths differ, a cell is outside [0, C), or a value is not
      finite.
  """
  prompt_ids = np.asarray(prompt_ids)
  cells = np.zeros(len(prompt_ids), int) if cells is None else np.asarray(cells)
  values = jax.tree.map(lambda x: np.asarray(x, np.float64), values)
  _check(values, prompt_ids, cells, num_cells)
  prompts, place = np.unique(prompt_ids, return_inverse=True)
  weights = _weights(prompts, seed)

  def total(values):
    of_prompts = sparse.coo_array(
      (values, (cells, place)), shape=(num_cells, len(prompts))
    )
    return of_prompts.tocsr() @ weights

  def totals(values):
    rows = values.reshape(-1, values.shape[-1])
    shape = (*values.shape[:-1], num_cells, weights.shape[-1])
    return np.array([total(row) for row in rows]).reshape(shape)

  return Totals(
    counts=total(np.ones(len(prompt_ids))), sums=jax.tree.map(totals, values)
  )


def add(first: Totals, second: Totals) -> Totals:
  """Returns the totals of both batches; the same seed made them."""
  return jax.tree.map(np.add, first, second)


def num_tokens(totals: Totals) -> np.ndarray:
  """Returns `[C]`: the tokens of each cell."""
  return totals.counts[:, 0]


def means(totals: Totals) -> chex.ArrayTree:
  """Returns the mean of each value over each cell's tokens, `[..., C]`.

  NaN in a cell without tokens.
  """
  plain = jax.tree.map(lambda x: x[..., :1], totals)
  return jax.tree.map(lambda x: x[..., 0], _means(*plain))


def bootstrap(totals: Totals, statistic_fn: StatisticFn) -> resample.Interval:
  """Returns a statistic with its 95 % Poisson bootstrap interval, `[...]`.

  Each resample gives each prompt a Poisson weight of mean 1, which is the limit
  of drawing as many prompts as there are, with replacement (N. Chamandy et al.,
  "Estimating uncertainty for massive data streams", 2012).  A resample that
  drew no prompt of a cell says nothing and is counted on both outer sides:
  fewer than 4 prompts have no limits.

  Args:
    totals: of all tokens.
    statistic_fn: from means, leaves `[..., C, S]`, to the statistic `[..., S]`.
  """
  value = _plain(totals, statistic_fn)
  resamples = jax.tree.map(lambda x: x[..., 1 + _NUM_BLOCKS :], totals)
  drawn = np.asarray(statistic_fn(_means(*resamples)))
  outside = int(_NUM_RESAMPLES * (1.0 - _COVERAGE) / 2.0)
  ranked = lambda unknown: np.sort(
    np.where(np.isnan(drawn), unknown, drawn), axis=-1
  )
  return resample.Interval(
    value=value,
    low=ranked(-np.inf)[..., outside],
    high=ranked(np.inf)[..., -1 - outside],
  )


def jackknife(totals: Totals, statistic_fn: StatisticFn) -> resample.Interval:
  """Returns a statistic with its 95 % jackknife interval, `[...]`.

  `value +- t sqrt((J - 1) / J sum_j (x_j - mean x)^2)`, where x_j leaves out
  the j-th block of prompts and t is Student's quantile of J - 1 degrees; blocks
  without tokens do not count.  No limits if fewer than two blocks have tokens,
  or the statistic needs a block.

  Args:
    totals: of all tokens.
    statistic_fn: from means, leaves `[..., C, S]`, to the statistic `[..., S]`.
  """
  value = _plain(totals, statistic_fn)
  is_used = np.any(totals.counts[:, 1 : 1 + _NUM_BLOCKS] > 0, axis=0)
  num_used = np.sum(is_used)
  if num_used < 2:
    unknown = np.full_like(value, np.inf)
    return resample.Interval(value, -unknown, unknown)
  others = jax.tree.map(
    lambda x: x[..., :1] - x[..., 1 : 1 + _NUM_BLOCKS][..., is_used], totals
  )
  left = np.asarray(statistic_fn(_means(*others)))
  error = np.sqrt((num_used - 1.0) * np.var(left, axis=-1))
  error = np.where(np.isnan(error), np.inf, error)
  reach = error * special.stdtrit(num_used - 1, (1.0 + _COVERAGE) / 2.0)
  return resample.Interval(value, value - reach, value + reach)


def tokens_needed(
  interval: resample.Interval, num_tokens: np.ndarray, half_width: float
) -> np.ndarray:
  """Returns how many tokens give an interval of the wanted half width.

  `n (width / wanted)^2`, for further prompts of the same kinds and lengths: the
  spread falls with the square root of their number.

  Args:
    interval: of the statistic, `[...]`.
    num_tokens: `[...]`, the tokens n that it rests on.
    half_width: in the statistic's unit.

  Raises:
    ValueError: the half width is not positive.
  """
  if not half_width > 0.0:
    raise ValueError(f'expected half_width > 0, got {half_width}')
  found = (np.asarray(interval.high) - np.asarray(interval.low)) / 2.0
  return np.ceil(num_tokens * (found / half_width) ** 2)


def _check(values, prompt_ids, cells, num_cells):
  """Raises a ValueError for a batch that cannot be summed."""
  size = len(prompt_ids)
  for leaf in (cells, *jax.tree.leaves(values)):
    if leaf.shape[-1:] != (size,):
      raise ValueError(
        f'expected values and cells of {size} tokens, got shape {leaf.shape}'
      )
  outside = (cells < 0) | (cells >= num_cells)
  if np.any(outside):
    raise ValueError(
      f'expected cells in [0, {num_cells}), got {cells[outside][0]}'
    )
  for leaf in jax.tree.leaves(values):
    if not np.all(np.isfinite(leaf)):
      raise ValueError(
        f'expected finite values, got {leaf[~np.isfinite(leaf)][0]}'
      )


def _weights(prompts, seed):
  """Returns `[P, 1 + J + S]`: what each prompt counts in each of the sums."""
  start = _mix(np.array([seed], np.uint64))
  hashes = _mix(prompts.astype(np.uint64) ^ start)
  block = hashes % np.uint64(_NUM_BLOCKS)
  streams = _mix(np.arange(1, 1 + _NUM_RESAMPLES, dtype=np.uint64))
  uniform = (_mix(hashes[:, None] ^ streams) >> np.uint64(11)) * 2.0**-53
  return np.concatenate(
    [
      np.ones((len(prompts), 1)),
      block[:, None] == np.arange(_NUM_BLOCKS),
      np.searchsorted(_POISSON_CDF, uniform, side='right'),
    ],
    axis=1,
  )


def _mix(x):
  """Returns SplitMix64 of uint64 numbers (G. Steele et al., 2014)."""
  x = x + np.uint64(0x9E3779B97F4A7C15)
  x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
  x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
  return x ^ (x >> np.uint64(31))


def _means(counts, sums):
  """Returns sums by counts, NaN without tokens."""
  is_known = counts > 0.5
  counts = np.where(is_known, counts, 1.0)
  return jax.tree.map(lambda x: np.where(is_known, x / counts, np.nan), sums)


def _plain(totals, statistic_fn):
  """Returns the statistic `[...]` of all tokens."""
  plain = jax.tree.map(lambda x: x[..., :1], totals)
  return np.asarray(statistic_fn(_means(*plain)))[..., 0]
