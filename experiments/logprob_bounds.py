"""From totals of log-probs to the curves of `D` against capacity.

Intervals are 95 % of a bootstrap over rows of prompts, as in `curves`.
"""

from collections.abc import Sequence

import jax
import jax.numpy as jnp
import numpy as np

from experiments import curves, logprob_totals
from specjax.theory import resample, run_bounds, sampled_starts


def tabulate(
  rows: logprob_totals.Rows,
  start_rows: np.ndarray,
  walks: sampled_starts.Walks,
  capacities: Sequence[int],
  vocab_size: int,
  seed: int,
) -> tuple[list[dict], dict]:
  """Makes all curves.

  Args:
    rows: totals of R rows of prompts.
    start_rows: `[M]`, the row of each start.
    walks: of M starts.
    capacities: `[C]`.
    vocab_size: `V`.
    seed: of halves and resamples.

  Returns:
    The table, and facts beside it: `moments` of the law, what a doubling of
    the capacity buys by `doubling_iid`, `log 2 / mu` tokens, and by
    `doubling_run`, the rows of `run(2 N) - run(N)`, and `num_open` walks.
  """
  num_tokens = rows.num_tokens
  sizes = np.asarray(capacities)
  both = np.concatenate([sizes, 2 * sizes])
  calls, doubled = np.split(_run_calls(rows, both, vocab_size, seed), 2)
  at_starts, num_open = _at_starts(start_rows, walks, capacities, seed)
  intervals = {
    'run': run_bounds.rate(calls, num_tokens, sizes, seed),
    **at_starts,
    **_iid(rows, sizes, seed),
  }
  table = []
  for name, interval in intervals.items():
    table += curves.rows_of(name, capacities, interval)
  mu, mu2 = zip(*resample.ratio(rows.moments, num_tokens, seed), strict=True)
  gain = resample.ratio_difference(
    (num_tokens, num_tokens), (doubled, calls), seed
  )
  slope = resample.ratio(np.log(2) * num_tokens, rows.moments[0], seed)
  return table, {
    'moments': {'mu': _ends(mu), 'mu2': _ends(mu2)},
    'doubling_iid': _ends(slope),
    'doubling_run': curves.rows_of('run(2 N) - run(N)', capacities, gain),
    'num_open': num_open,
  }


def _ends(interval):
  """Returns an interval of one number by name; None for inf."""
  finite = lambda x: float(x) if np.isfinite(x) else None
  return dict(zip(('value', 'low', 'high'), map(finite, interval), strict=True))


def _run_calls(rows, capacities, vocab_size, seed):
  """Returns the least calls `[C, R]` of any run, those of `run_bounds.run`."""
  caps = jnp.asarray(run_bounds.CAPS)[:, None]
  ceilings = jnp.minimum(
    run_bounds.split_ceiling(caps, capacities),
    run_bounds.moment_ceiling(caps, capacities, vocab_size),
  )
  return run_bounds.fitted_calls(
    jnp.asarray(rows.progress, float),
    ceilings,
    jnp.asarray(rows.num_tokens),
    jnp.asarray(capacities, float),
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


def _iid(rows, capacities, seed):
  """Returns the bounds of the i.i.d. model at the moments of all tokens."""
  first, second = rows.moments
  sizes = jnp.asarray(capacities, float)[:, None]

  @jax.jit
  def statistic(counts):
    total = rows.num_tokens @ counts
    mu, mu2 = first @ counts / total, second @ counts / total
    return jnp.stack([bound(mu, mu2, sizes) for bound in curves.IID.values()])

  interval = resample.bootstrap(statistic, len(rows.num_tokens), seed)
  of_bounds = zip(*interval, strict=True)
  return {
    name: resample.Interval(*ends)
    for name, ends in zip(curves.IID, of_bounds, strict=True)
  }
