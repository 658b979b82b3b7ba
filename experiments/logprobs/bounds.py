"""From totals of log-probs to the curves of `D` against capacity.

Intervals are 95 % of a bootstrap over rows of prompts, as in `curves`.
"""

import functools
from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from experiments import (
  curves,
)
from experiments.logprobs import heads as logprob_heads
from experiments.logprobs import totals as logprob_totals
from specjax.theory import resample, run_bounds, sampled_starts

# The curve of what doubled trees win more.
DOUBLING = 'run(2 N) - run(N)'


def tabulate(
  rows: logprob_totals.Rows,
  heads: logprob_heads.Heads,
  start_rows: np.ndarray,
  walks: sampled_starts.Walks,
  capacities: Sequence[int],
  vocab_size: int,
  seed: int,
) -> tuple[list[dict], dict]:
  """Makes all curves.

  Args:
    rows: totals of R rows of prompts.
    heads: of the laws of all tokens; where they are known there is the curve
      `run_context`, and moments have less noise.
    start_rows: `[M]`, the row of each start.
    walks: of M starts.
    capacities: `[C]`.
    vocab_size: `V`.
    seed: of halves and resamples.

  Returns:
    The table, and facts beside it: `moments` of the law; their `limits` and
    the `missing` mass of the heads, None without heads; what a doubling of the
    capacity buys by `doubling_iid`, `log 2 / mu` tokens, and by
    `doubling_run`, the rows of `DOUBLING`; `num_open` walks.
  """
  num_tokens = rows.num_tokens
  sizes = np.asarray(capacities)
  both = np.concatenate([sizes, 2 * sizes])
  calls, doubled = np.split(_run_calls(rows, both, vocab_size, seed), 2)
  at_starts, num_open = _at_starts(start_rows, walks, capacities, seed)
  sums = heads.sums(len(num_tokens)) if heads.are_known else None
  moments = rows.moments if sums is None else sums.limits.estimate
  intervals = {'run': run_bounds.rate(calls, num_tokens, sizes, seed)}
  if sums is not None:
    calls_context = _context_calls(sums.progress, num_tokens, sizes, seed)
    intervals['run_context'] = run_bounds.rate(
      calls_context, num_tokens, sizes, seed
    )
  intervals |= {**at_starts, **_iid(*moments, num_tokens, sizes, seed)}
  table = []
  for name, interval in intervals.items():
    table += curves.rows_of(name, capacities, interval)
  mean = lambda total: curves.ends(
    'value', *resample.ratio(total, num_tokens, seed)
  )
  gain = _gain(calls, doubled, num_tokens, sizes, seed)
  slope = resample.ratio(np.log(2) * num_tokens, moments[0], seed)
  return table, {
    'moments': _by_name(mean, moments),
    **_limits(sums, mean),
    'doubling_iid': curves.ends('value', *slope),
    'doubling_run': curves.rows_of(DOUBLING, capacities, gain),
    'num_open': num_open,
  }


def _limits(sums, mean_fn):
  """Returns what the heads alone say of the moments, and what they leave."""
  if sums is None:
    return {'limits': None, 'missing': None}
  sides = {'low': sums.limits.low, 'high': sums.limits.high}
  return {
    'limits': {k: _by_name(mean_fn, side) for k, side in sides.items()},
    'missing': mean_fn(sums.limits.missing),
  }


def _by_name(mean_fn, moments):
  """Returns the means of both moments by name."""
  return {
    name: mean_fn(total)
    for name, total in zip(('mu', 'mu2'), moments, strict=True)
  }


def _run_calls(rows, capacities, vocab_size, seed):
  """Returns the least calls `[C, R]` of any run, those of `run_bounds.run`."""
  return run_bounds.run_of_progress(
    jnp.asarray(rows.progress, float),
    jnp.asarray(rows.num_tokens),
    capacities,
    vocab_size,
    seed,
  )


def _gain(calls, doubled, num_tokens, capacities, seed):
  """Returns what twice the capacity adds to the limit of runs, `[C]`."""
  sizes = jnp.asarray(capacities, float)[:, None]
  limit = lambda calls, sizes, counts: jnp.minimum(
    num_tokens @ counts / (calls @ counts), sizes
  )
  return resample.bootstrap(
    lambda counts: (
      limit(doubled, 2 * sizes, counts) - limit(calls, sizes, counts)
    ),
    len(num_tokens),
    seed,
  )


def _context_calls(progress, num_tokens, capacities, seed):
  """Returns the calls `[C, R]` of `run_bounds.run_context`."""
  return run_bounds.run_context_of_progress(
    jnp.asarray(progress, float),
    jnp.asarray(logprob_heads.SURPLUSES),
    jnp.asarray(num_tokens),
    capacities,
    seed,
  )


def _at_starts(rows, walks, capacities, seed):
  """Returns the bounds at the starts, and open walks at each capacity."""
  samples = {'dual': [], 'counting': []}
  for capacity in capacities:
    fitted = sampled_starts.cross_fitted(walks, rows, capacity, seed)
    samples['dual'].append(sampled_starts.dual(walks, capacity, fitted))
    samples['counting'].append(sampled_starts.counting(walks, capacity, fitted))
  num_open = [int(bound.num_open) for bound in samples['dual']]
  intervals = {}
  for name, bounds in samples.items():
    values = jnp.stack([bound.values for bound in bounds])
    # No tree of N nodes wins more than N tokens.
    intervals[name] = resample.Interval(
      *(
        jnp.minimum(end, jnp.asarray(capacities))
        for end in resample.mean(values, rows, seed)
      )
    )
  return intervals, num_open


def _iid(first, second, num_tokens, capacities, seed):
  """Returns the bounds of the i.i.d. model at the moments of all tokens."""
  totals = jnp.stack([jnp.asarray(x) for x in (first, second, num_tokens)])
  sizes = jnp.asarray(capacities, float)[:, None]
  interval = resample.bootstrap(
    functools.partial(_iid_bounds, totals, sizes), len(num_tokens), seed
  )
  of_bounds = zip(*interval, strict=True)
  return {
    name: resample.Interval(*ends)
    for name, ends in zip(curves.IID, of_bounds, strict=True)
  }


@jax.jit
def _iid_bounds(totals, capacities, counts):
  """Returns every bound `[.., C, S]` where rows are drawn `counts [R, S]`."""
  first, second, num_tokens = totals @ counts
  mu, mu2 = first / num_tokens, second / num_tokens
  return jnp.stack([fn(mu, mu2, capacities) for fn in curves.IID.values()])
