"""Curves of what drafters could win with what they know.

A verifier at temperature 0 has no entropy, and bounds from its laws say
nothing.  What a drafter knows of the nodes that it proposes does: the
probability that it gives each, and where the node comes from.  Calibrated on
other prompts these become chances (see `posterior`), and of four times as many
nodes as the largest tree has, for each drafter,

  posterior_best   are the chances of the best `N`: what policies can win that
                   see these chances alone, choose among these nodes, and have
                   at most `N` of them at every start
  posterior_won    is what those trees really took there.  A limit lies between
                   the two: chances that were learnt flatter the trees that
                   they choose, and those trees are one such policy
  posterior_dual   bounds those that have `N` nodes in the mean, many where
                   chances are good; they judge each node by its own chance
  posterior_run    is a whole run of the trees of `posterior_best`: no limit,
                   but what is achieved by choosing them

The first three are taken at the starts that the best drafter visited, and
learnt at such starts: an iteration starts where the one before was refused, at
harder places than a text holds on average.  For the same reason nothing here
limits whole runs: where a run starts tells more of what follows than chances
say.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from experiments import curves, measure, oracle_runs
from specjax.theory import posterior, resample

# What bounds what was won at the same starts.
LIMITS = ('posterior_best', 'posterior_dual')

NAMES = ('posterior_best', 'posterior_won', 'posterior_dual', 'posterior_run')


def tabulate(
  proposals: Mapping[str, measure.Arrays],
  run_lengths: np.ndarray,
  starts: measure.Arrays,
  capacities: Sequence[int],
  seed: int,
) -> tuple[list[dict], list[dict]]:
  """Makes the curves of all drafters.

  Args:
    proposals: for each drafter what `proposals.everywhere` gave, `[R, T, ...]`.
    run_lengths: `[R]` tokens of the runs.
    starts: `rows [M]`, `places [M]` and `won [C, M]` of starts of the best
      drafter; `won` is 0 where a capacity did not visit a start.
    capacities: `[C]`.
    seed: of halves and resamples.

  Returns:
    The table, and the checks, paired differences that no limit may have below
    0, both as rows of `curves`.
  """
  table, checks = [], []
  for drafter, arrays in proposals.items():
    found = [
      _at_capacity(arrays, run_lengths, starts, i, capacity, seed)
      for i, capacity in enumerate(capacities)
    ]
    named = lambda name, drafter=drafter: f'{name}({drafter})'
    for name in NAMES:
      interval = curves.stack([values[name] for values, _ in found])
      table += curves.rows_of(named(name), capacities, interval)
    for name in LIMITS:
      interval = curves.stack([above[name] for _, above in found])
      curve = f'{named(name)} - {named("posterior_won")}'
      checks += curves.rows_of(curve, capacities, interval)
  return table, checks


def _at_capacity(arrays, run_lengths, starts, index, capacity, seed):
  """Returns intervals by `NAMES`, and how far `LIMITS` are above what was won.

  Args:
    arrays: of one drafter, `[R, T, ...]`.
    run_lengths: `[R]`.
    starts: as for `tabulate`.
    index: of the capacity.
    capacity: `N`.
    seed: of halves and resamples.
  """
  shape = arrays['num_nodes'].shape
  is_place = np.arange(shape[1]) < run_lengths[:, None]
  is_visited = np.zeros(shape, bool)
  is_visited[starts['rows'], starts['places']] = starts['won'][index] > 0
  is_visited = is_visited[is_place]
  trees = posterior.Proposals(
    **{name: values[is_place] for name, values in arrays.items()},
    rows=np.nonzero(is_place)[0],
  )
  chances = posterior.cross_fitted(trees, is_visited, seed)
  told, took = (
    np.asarray(posterior.best_trees(chances, worths)[:, capacity - 1])
    for worths in (chances, trees.is_accepted)
  )
  rows = trees.rows[is_visited]
  samples = {
    'posterior_best': told[is_visited],
    'posterior_won': took[is_visited],
    'posterior_dual': posterior.dual(chances[is_visited], rows, capacity, seed),
  }
  mean = lambda values: resample.mean(values, rows, seed)
  lengths = np.zeros(shape, int)
  lengths[is_place] = took
  run = oracle_runs.run(lengths, run_lengths, shape[1])
  intervals = {name: mean(values) for name, values in samples.items()}
  intervals['posterior_run'] = resample.ratio(
    run['num_tokens'], run['num_steps'], seed
  )
  above = {
    name: mean(samples[name] - samples['posterior_won']) for name in LIMITS
  }
  return intervals, above
