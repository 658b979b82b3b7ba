"""Which bounds hold, and how far are they from the best trees?

Claim: where positions are independent the printed bound is loose by a factor
that tends to `1 + mu2 / mu`, and `sharp` is right up to o(1); where every
prompt keeps a law of its own the best trees win more, in the mean over starts,
than bounds of the pooled moments allow, and `dual` still holds.

  launch/run.sh brw_vs_bounds             about a minute on 2 cores
  launch/run.sh brw_vs_bounds --quick     seconds

Best trees are simulated exactly as branching random walks: one for each fixed
law, the mean over `--replicas` starts where laws are drawn at every node.
`dual` is estimated from `--walks` sampled texts; its thresholds are fitted on
halves of them.

Writes results/brw_vs_bounds/<run>/: figure.png and figure.pdf, record.json.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np
from absl import flags

from experiments import brw_report, common, curves, records
from specjax.theory import (
  brw,
  dirichlet,
  environment,
  laws,
  process,
  resample,
  sampled_starts,
)

FLAGS = flags.FLAGS

_REPLICAS = flags.DEFINE_integer(
  'replicas', 64, 'Starts of best trees in random environments.', lower_bound=2
)
_MAX_NODES = flags.DEFINE_integer(
  'max_random_nodes',
  8192,
  'Largest tree in random environments.',
  lower_bound=1,
)
_WALKS = flags.DEFINE_integer('walks', 2000, 'Sampled texts.', lower_bound=2)
_WALK_LENGTH = flags.DEFINE_integer(
  'walk_length', 512, 'Tokens of a sampled text.', lower_bound=1
)

NAME = 'brw_vs_bounds'

# What results depend on; the other shared flags have no meaning here.
_FLAGS = (
  'capacities',
  'max_random_nodes',
  'replicas',
  'seed',
  'walk_length',
  'walks',
)


class Case(NamedTuple):
  """An environment and how its best trees are found.

  Attributes:
    env: the environment.
    parts: environments of equal shares of its starts.
    is_fixed: one tree says all about a part.
  """

  env: environment.Environment
  parts: tuple[environment.Environment, ...]
  is_fixed: bool


def cases() -> dict[str, Case]:
  """Returns the environments by name."""
  fixed = lambda p: Case(laws.fixed(p), (laws.fixed(p),), True)
  drawn = dirichlet.make(np.full(50, 0.3))
  prompts = [
    np.append(0.97, np.full(30, 0.001)),
    np.append(laws.uniform(20), np.zeros(11)),
  ]
  return {
    'zipf': fixed(laws.zipf(1.5, 50)),
    'peaked': fixed(np.append(0.85, np.full(30, 0.005))),
    'dirichlet': Case(drawn, (drawn,), False),
    'mixture': Case(
      laws.mixture(prompts), tuple(map(laws.fixed, prompts)), True
    ),
  }


def main():
  """Simulates, bounds, writes, and says what came out."""
  folder = records.open_run(FLAGS.results_dir, NAME, FLAGS.run_name)
  values = common.flag_values()
  record = records.new_record(NAME, {name: values[name] for name in _FLAGS})
  table, moments = [], {}
  for name, case in cases().items():
    limit = FLAGS.capacities[-1] if case.is_fixed else _MAX_NODES.value
    rows = tabulate(
      case,
      [n for n in FLAGS.capacities if n <= limit],
      1 if case.is_fixed else _REPLICAS.value,
      _WALKS.value,
      _WALK_LENGTH.value,
      FLAGS.seed,
    )
    table += [{'environment': name, **row} for row in rows]
    moments[name] = case.env.moments()._asdict()
  records.finish_record(folder, record, table, moments=moments)
  brw_report.show(records.load_record(folder / 'record.json'), folder)


def tabulate(
  case: Case,
  capacities: Sequence[int],
  num_replicas: int,
  num_walks: int,
  walk_length: int,
  seed: int,
) -> list[dict]:
  """Makes the curves of one environment, in rows with 95 % intervals.

  Args:
    case: the environment.
    capacities: `[C]`, rising.
    num_replicas: best trees to grow of each part.
    num_walks: texts to sample for `dual`.
    walk_length: tokens of a text.  A walk that is still below its threshold at
      the end counts its worst case.
    seed: of trees, texts, halves and resamples.
  """
  key_trees, key_walks = jax.random.split(jax.random.key(seed))
  sample = process.sample(case.env, key_walks, num_walks, walk_length, 1)
  surprisals = np.asarray(sample.texts.laws.surprisal)
  mean = lambda x: resample.ratio(x, np.ones_like(x), seed)
  intervals = {
    'best': mean(best_trees(case.parts, key_trees, num_replicas, capacities)),
    'dual': mean(duals(surprisals, capacities, seed)),
  }
  moments = case.env.moments()
  for name, bound_fn in curves.IID.items():
    value = bound_fn(moments.mu, moments.mu2, np.array(capacities, float))
    intervals[name] = resample.Interval(value, value, value)
  return [
    row
    for name, interval in intervals.items()
    for row in curves.rows_of(name, capacities, interval)
  ]


def best_trees(
  parts: Sequence[environment.Environment],
  key: jax.Array,
  num_replicas: int,
  capacities: Sequence[int],
) -> np.ndarray:
  """Returns `[C, R]`: `D` in tokens of best trees, the mean over parts.

  Args:
    parts: environments of equal shares.
    key: consumed.
    num_replicas: `R`, trees of each part.
    capacities: `[C]`, rising.
  """
  grown = [
    brw.curves(part, key, num_replicas, capacities[-1]) for part in parts
  ]
  return np.mean(grown, axis=0)[:, np.array(capacities) - 1].T


def duals(
  surprisals: np.ndarray, capacities: Sequence[int], seed: int
) -> np.ndarray:
  """Returns `[C, R]` samples of `dual`, in tokens, at the start of each text.

  Args:
    surprisals: `[R, T]` nats.
    capacities: `[C]`.
    seed: of the halves on which thresholds are fitted.
  """
  rows = np.arange(len(surprisals))
  walks = sampled_starts.of_surprisals(surprisals, np.zeros(len(rows), bool))
  fitted = [
    sampled_starts.cross_fitted(walks, rows, n, seed) for n in capacities
  ]
  return np.stack(
    [
      sampled_starts.dual(walks, n, t).values
      for n, t in zip(capacities, fitted, strict=True)
    ]
  )


if __name__ == '__main__':
  common.run(
    main,
    defaults={'capacities': [2 * 4**k for k in range(9)]},
    quick={
      'capacities': [2, 8, 32, 128, 512],
      'replicas': 16,
      'walks': 500,
      'walk_length': 128,
    },
  )
