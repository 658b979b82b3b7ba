"""The levels of `D` from the printed bound down to a drafter's run.

Each is a function of how often a resample draws every prompt, so that levels
and their differences come from the same resamples.  `C` capacities, `R`
prompts, `T` places of an output, `S` resamples.
"""

import functools
from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from experiments import oracle_runs
from experiments import starts as starts_lib
from specjax.theory import (
  entropy,
  iid_bounds,
  prices,
  resample,
  run_bounds,
)

# Gives `D [C, S]` from `counts [R, S]`, how often a prompt is drawn.
Level = Callable[[jax.Array], jax.Array]

# The vocabulary's size is not on disk; a larger one is valid too, and says the
# same unless caps of log V nats or more are the best.
_ANY_VOCAB = 2**32


def find(
  arrays: Mapping[str, np.ndarray],
  drafter: str,
  known: Sequence[int],
  capacities: Sequence[int],
  max_new_tokens: int,
  seed: int,
) -> dict[str, Level]:
  """Makes the levels, from above.

  Args:
    arrays: of the main job, by names such as `lookup-16/place`.
    drafter: whose run is accounted for.
    known: the capacities of the arrays.
    capacities: `[C]`, those that are wanted.
    max_new_tokens: the limit of the runs, `T` tokens.
    seed: of the halves on which the limits are fitted.

  Returns:
    Name -> level; the names are those of the main job's curves.

  Raises:
    ValueError: a measurement is not among the arrays.
  """
  plain, laws = _part(arrays, 'plain'), _part(arrays, 'laws')
  lengths = np.minimum(plain['num_tokens'], max_new_tokens)
  runs, best_runs = (
    [_part(arrays, f'{name}-{capacity}') for capacity in capacities]
    for name in (drafter, 'oracle_run')
  )
  won = np.stack([starts_lib.won(run, plain) for run in runs])  # [C, R, T]
  oracle = _part(arrays, 'oracle')
  if 'notes' not in oracle:
    raise ValueError(
      'expected a run that keeps the nodes of the best trees, got an older one'
    )
  values = np.stack([oracle['value'][..., known.index(n)] for n in capacities])
  oracle_starts = np.stack([_is_start(run) for run in best_runs])
  priced = prices.run_priced(
    oracle_runs.priced(oracle, lengths), len(lengths), capacities, seed
  )
  return {
    **limits(entropy.LawSummary(**laws), lengths, capacities, seed),
    'run_priced': _limit(priced, lengths, capacities),
    'oracle_run': _rate(best_runs),
    'oracle_at(oracle_run)': _mean(values, oracle_starts),
    f'oracle_at({drafter})': _mean(values, won > 0),
    f'won_at({drafter})': _mean(won, won > 0),
    drafter: _rate(runs),
  }


def limits(
  laws: entropy.LawSummary,
  lengths: np.ndarray,
  capacities: Sequence[int],
  seed: int,
) -> dict[str, Level]:
  """Makes the levels that bound whole runs.

  Args:
    laws: summaries `[R, T]`.
    lengths: `[R]` tokens of the runs.
    capacities: `[C]`.
    seed: of the halves on which the limits are fitted.

  Returns:
    `printed`, `run` and `run_context`.
  """
  sizes = jnp.asarray(capacities, float)[:, None]
  calls = {
    'run': run_bounds.run(
      laws.surprisal, lengths, capacities, _ANY_VOCAB, seed
    ),
    'run_context': run_bounds.run_context(laws, lengths, capacities, seed),
  }

  def printed(counts):
    pooled = lambda values: resample.ratio_of_totals(
      entropy.row_totals(values, lengths), lengths, counts
    )
    return iid_bounds.printed(
      pooled(laws.entropy), pooled(laws.second_moment), sizes
    )

  return {
    'printed': printed,
    **{
      name: _limit(least, lengths, capacities) for name, least in calls.items()
    },
  }


def _limit(calls, lengths, capacities):
  """The limit of runs that need at least `calls [C, R]`, as a level."""
  sizes = np.asarray(capacities, float)[:, None]
  # No tree of N nodes wins more than N tokens.
  return lambda counts: jnp.minimum(
    resample.ratio_of_totals(lengths, calls, counts), sizes
  )


def _part(arrays, name):
  """Returns the arrays of one measurement, by their own names."""
  prefix = f'{name}/'
  part = {
    key.removeprefix(prefix): array
    for key, array in arrays.items()
    if key.startswith(prefix)
  }
  if not part:
    raise ValueError(
      f'expected a run that measured {name!r}, got one that did not, '
      'perhaps of an older version'
    )
  return part


def _is_start(run):
  """Returns `[R, T]`, whether an iteration of the run started at a place."""
  is_start = np.zeros(run['place'].shape, bool)
  for row, places, count in zip(
    is_start, run['place'], run['num_steps'], strict=True
  ):
    row[places[:count]] = True
  return is_start


def _rate(runs):
  """The tokens of runs over their iterations, as a level."""
  tokens, steps = (
    np.stack([run[name] for run in runs])
    for name in ('num_tokens', 'num_steps')
  )
  return functools.partial(resample.ratio_of_totals, tokens, steps)


def _mean(values, is_start):
  """The mean of values over starts, both `[C, R, T]`, as a level."""
  return functools.partial(
    resample.ratio_of_totals,
    np.sum(values * is_start, axis=-1),
    np.sum(is_start, axis=-1),
  )
