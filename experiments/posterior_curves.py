"""Curves of what drafters could win with what they know.

A verifier at temperature 0 has no entropy, and bounds from its laws say
nothing.  What a drafter knows of the nodes that it proposes does: the
probability that it gives each, and where the node comes from.  Calibrated on
other prompts these become chances (see `posterior`), and of four times as many
nodes as the largest tree has, for each drafter,

  posterior_dual   limits rules that judge each node by its own chance alone and
                   have `N` nodes in the mean, many where chances are good
  posterior_best   is what the chances promise for the best `N` nodes of every
                   start.  No limit: which these are depends on all chances of a
                   start, and shapes of trees may tell more than chances do
  posterior_won    is what those nodes really took there
  posterior_excess is how far the promise was above that, 0 if all that can be
                   known of a node is its chance
  posterior_run    is a whole run of those trees: no limit either, but what is
                   achieved by choosing them

All but the last are taken at the starts that the best drafter visited, and
learnt at such starts: an iteration starts where the one before was refused, at
harder places than a text holds on average.  For the same reason nothing here
limits whole runs: where a run starts tells more of what follows than chances
say.  Where the other half of the prompts has no nodes of some kind, chances
count the worst case; from few texts that lifts the limit and the promise.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from experiments import curves, measure, oracle_runs
from specjax.theory import posterior, resample

NAMES = (
  'posterior_dual',
  'posterior_best',
  'posterior_won',
  'posterior_excess',
  'posterior_run',
)


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
    The table, and the checks, both as rows of `curves`: how far each dual is
    above `posterior_taken`, what the rule won that fills its budget.
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
    curve = f'{named("posterior_dual")} - {named("posterior_taken")}'
    interval = curves.stack([above for _, above in found])
    checks += curves.rows_of(curve, capacities, interval)
  return table, checks


def _at_capacity(arrays, run_lengths, starts, index, capacity, seed):
  """Returns intervals by `NAMES`, and how far the dual is above its rule.

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
  rows = trees.rows[is_visited]
  chances = posterior.cross_fitted(trees, is_visited, seed)
  told, took = (
    np.asarray(posterior.best_trees(chances, worths)[:, capacity - 1])
    for worths in (chances, trees.is_accepted)
  )
  limit, taken = (
    posterior.dual(
      chances[is_visited], worths[is_visited], rows, capacity, seed
    )
    for worths in (chances, trees.is_accepted)
  )
  mean = lambda values: resample.mean(values, rows, seed)
  intervals = {
    'posterior_dual': mean(limit),
    'posterior_best': mean(told[is_visited]),
    'posterior_won': mean(took[is_visited]),
    'posterior_excess': mean((told - took)[is_visited]),
    'posterior_run': _run(took, is_place, run_lengths, seed),
  }
  return intervals, mean(limit - taken)


def _run(took, is_place, run_lengths, seed):
  """Returns tokens an iteration of runs that take `took` at each place."""
  lengths = np.zeros(is_place.shape, int)
  lengths[is_place] = took
  run = oracle_runs.run(lengths, run_lengths, lengths.shape[1])
  return resample.ratio(run['num_tokens'], run['num_steps'], seed)
