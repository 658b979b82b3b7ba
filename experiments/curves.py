"""From measured arrays to the curves of `D` against capacity, with intervals.

All arrays hold one row a prompt, `R` of them; a curve is a list of table rows
`{capacity, curve, D, low, high}`, its interval 95 % of a bootstrap over
prompts.  `None` stands for a bound that says nothing.
"""

from collections.abc import Mapping, Sequence

import jax.numpy as jnp
import numpy as np

from experiments import oracle_runs
from specjax.theory import (
  entropy,
  iid_bounds,
  prices,
  resample,
  run_bounds,
  start_bounds,
  thresholds,
)

IID = {
  'printed': iid_bounds.printed,
  'lorden': iid_bounds.lorden,
  'lorden_dual': iid_bounds.lorden_dual,
  'sharp': iid_bounds.sharp,
  'achievable': iid_bounds.achievable,
}

# Start bounds by the slopes that their thresholds may have.
DUALS = {'dual': thresholds.CONSTANT, 'dual_context': thresholds.BY_ROOT}

BOUNDS = (*DUALS, 'run', 'run_context', 'run_priced', 'leaf', *IID)

Arrays = Mapping[str, np.ndarray]


def tabulate(
  texts: entropy.Texts,
  run_lengths: np.ndarray,
  runs: Mapping[str, Sequence[Arrays]],
  oracle: Arrays,
  starts: Arrays,
  best: str,
  capacities: Sequence[int],
  vocab_size: int,
  seed: int,
) -> tuple[list[dict], dict]:
  """Makes all curves of a study.

  Args:
    texts: whole texts with their laws, going on past the end of the runs.
    run_lengths: `[R]` tokens of the runs.
    runs: for each drafter and the oracle, the run at each capacity.
    oracle: the best trees everywhere; see `oracle_runs.everywhere`.
    starts: `rows [M]`, `places [M]`, `won [C, M]` and the oracle's `values
      [C, M]`, of starts of the best drafter; `won` is 0 where a capacity did
      not visit a start.
    best: name of the best drafter.
    capacities: `[C]`.
    vocab_size: `V`.
    seed: of halves and resamples.

  Returns:
    The table, and facts beside it: `moments` of the law, `num_open` walks, the
    `vacuous` bounds, and `checks`, the paired differences that no bound may
    have below 0.
  """
  laws = texts.laws
  calls = {
    name: np.stack([run['num_steps'] for run in at_capacities])
    for name, at_capacities in runs.items()
  }
  tokens = {
    name: np.stack([run['num_tokens'] for run in at_capacities])
    for name, at_capacities in runs.items()
  }
  intervals = {
    name: resample.ratio(tokens[name], calls[name], seed) for name in runs
  }
  at_starts, checks, num_open = _at_starts(texts, starts, capacities, seed)
  intervals[f'won_at({best})'] = at_starts.pop('won_at')
  intervals[f'oracle_at({best})'] = at_starts.pop('oracle_at')
  intervals |= at_starts
  limits = run_limits(laws, oracle, run_lengths, capacities, vocab_size, seed)
  intervals |= {
    name: run_bounds.rate(limit, run_lengths, capacities, seed)
    for name, limit in limits.items()
  }
  intervals |= _iid(laws, run_lengths, capacities, seed)
  totals = {name: (tokens[name], calls[name]) for name in runs}
  checks += limit_checks(limits, run_lengths, totals, capacities, seed)
  moments = entropy.moments_of_laws(laws, run_lengths)
  facts = {
    'moments': {'mu': float(moments.mu), 'mu2': float(moments.mu2)},
    'num_open': num_open,
    'vacuous': list(BOUNDS) if moments.mu == 0 else [],
    'checks': checks,
  }
  table = []
  for name, interval in intervals.items():
    table += rows_of(name, capacities, interval)
  return table, facts


def find(table: Sequence[Mapping], curve: str, capacity: int) -> Mapping:
  """Returns the row of a curve at a capacity."""
  return next(
    row
    for row in table
    if row['curve'] == curve and row['capacity'] == capacity
  )


def rows_of(
  curve: str, capacities: Sequence[int], interval: resample.Interval
) -> list[dict]:
  """Makes the table rows of one curve; the interval is `[C]`."""
  return [
    {'capacity': capacity, 'curve': curve, **ends('D', *at_capacity)}
    for capacity, *at_capacity in zip(capacities, *interval, strict=True)
  ]


def ends(
  name: str, value: np.ndarray, low: np.ndarray, high: np.ndarray
) -> dict:
  """Makes a row of one number and its interval; None for inf.

  Args:
    name: of the number.
    value: `[]`.
    low: `[]`.
    high: `[]`.

  Returns:
    The number under its name, `low` and `high`.
  """
  finite = lambda x: float(x) if np.isfinite(x) else None
  return {name: finite(value), 'low': finite(low), 'high': finite(high)}


def stack(intervals: Sequence[resample.Interval]) -> resample.Interval:
  """Returns one interval `[C]` of those of `C` capacities."""
  return resample.Interval(*map(np.stack, zip(*intervals, strict=True)))


def _at_starts(texts, starts, capacities, seed):
  """Drafter, oracle and dual bounds at the starts that a capacity visited.

  Returns:
    Intervals `[C]` by name, checks, and the number of open walks `[C]`.
  """
  intervals = {name: [] for name in ['won_at', 'oracle_at', *DUALS]}
  checks, num_open = [], []
  rows, places = jnp.asarray(starts['rows']), jnp.asarray(starts['places'])
  for capacity, won, values in zip(
    capacities, starts['won'], starts['values'], strict=True
  ):
    visited = won > 0
    mean = lambda x, here=visited: resample.mean(
      np.asarray(x)[here], starts['rows'][here], seed
    )
    intervals['won_at'].append(mean(won))
    intervals['oracle_at'].append(mean(values))
    opens = 0
    for name, slopes in DUALS.items():
      # Fitted on the starts of all capacities, so that one shape serves them.
      fitted = thresholds.cross_fitted(
        texts, rows, places, capacity, slopes, seed
      )
      bound = start_bounds.dual(texts, rows, places, capacity, fitted)
      opens = max(opens, int(bound.is_open[visited].sum()))
      # No tree of N nodes wins more than N tokens.
      intervals[name].append(
        resample.Interval(
          *(jnp.minimum(x, capacity) for x in mean(bound.values))
        )
      )
      checks += rows_of(
        f'{name} - oracle_at',
        [capacity],
        stack([mean(bound.values - values)]),
      )
    num_open.append(opens)
  return {k: stack(v) for k, v in intervals.items()}, checks, num_open


def run_limits(
  laws: entropy.LawSummary,
  oracle: Arrays,
  num_tokens: np.ndarray,
  capacities: Sequence[int],
  vocab_size: int,
  seed: int,
) -> dict:
  """Returns the least calls `[C, R]` of any run over texts, by bound.

  Args:
    laws: summaries `[R, T]`.
    oracle: the best trees everywhere; see `oracle_runs.everywhere`.
    num_tokens: `[R]` tokens of a run.
    capacities: `[C]`.
    vocab_size: `V`.
    seed: of the halves on which the limits are fitted.
  """
  return {
    'run': run_bounds.run(
      laws.surprisal, num_tokens, capacities, vocab_size, seed
    ),
    'run_context': run_bounds.run_context(laws, num_tokens, capacities, seed),
    'leaf': run_bounds.leaf(
      laws.entropy, num_tokens, capacities, vocab_size, seed
    ),
    'run_priced': prices.run_priced(
      oracle_runs.priced(oracle, num_tokens), len(num_tokens), capacities, seed
    ),
  }


def limit_checks(
  limits: Arrays,
  run_lengths: np.ndarray,
  runs: Mapping[str, tuple[np.ndarray, np.ndarray]],
  capacities: Sequence[int],
  seed: int,
) -> list[dict]:
  """Makes the rows of limits less the runs that they hold for, all pairs.

  Args:
    limits: least calls `[C, R]`, by bound.
    run_lengths: `[R]` tokens that they are for.
    runs: tokens and calls, `[C, R]` each, by name.
    capacities: `[C]`.
    seed: of the resamples.
  """
  rows = []
  for name, least in limits.items():
    for run, (tokens, calls) in runs.items():
      difference = resample.ratio_difference(
        (run_lengths, tokens), (least, calls), seed
      )
      rows += rows_of(f'{name} - {run}', capacities, difference)
  return rows


def _iid(laws, num_tokens, capacities, seed):
  """Bounds of the i.i.d. model at moments pooled over the runs' tokens."""
  first = entropy.row_totals(laws.entropy, num_tokens)
  second = entropy.row_totals(laws.second_moment, num_tokens)
  sizes = jnp.asarray(capacities, float)[:, None]

  def interval(bound_fn):
    def statistic(counts):
      total = jnp.asarray(num_tokens, float) @ counts
      return bound_fn(first @ counts / total, second @ counts / total, sizes)

    return resample.bootstrap(statistic, len(num_tokens), seed)

  return {name: interval(bound_fn) for name, bound_fn in IID.items()}
