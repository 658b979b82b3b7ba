"""Where do the tokens go, from the printed bound down to what was achieved?

Claim: between the printed bound and a drafter's run lie losses of different
kinds, and each of them can be measured by itself.

  launch/run.sh speed_of_light --run_name=NAME
  launch/run.sh where_tokens_go --run_name=NAME     some seconds

Nothing is run but this: it reads what the main job measured.  `D` goes down by
these levels, at one capacity, and is lost on the way from each to the next by

  printed                  leading term of the bound of the i.i.d. model
    model assumption
  run                      limit of any run, from log-probs of sampled tokens
    knowledge of the laws
  run_context              limit of any run, from whole laws
    knowledge of the trees
  run_priced               limit of any run, from the best trees everywhere
    beyond best trees        what no run is known to reach
  oracle_run               run of the best trees
    end of the oracle's run  the limit cuts the last iteration of every text
  oracle_at(oracle_run)    expectation of the best trees where they start
    start bias               a gain: short steps start at easier places too
  oracle_at(drafter)       expectation of the best trees where it starts
    drafted trees
  won_at(drafter)          the drafter's own trees there
    end of the run
  drafter                  tokens over iterations of its run

A tree's value is the sum of p(w) over its nodes.  For the oracle's it is
exact; for the drafter's, whose nodes the verifier does not value, it is the
mean of what the sampled texts took, which has that expectation.  Likewise what
the oracle's run loses at its end is told from one sample of its texts.

Writes results/where_tokens_go/NAME/: figure.png and figure.pdf, record.json.
"""

import itertools
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np
from absl import flags

from experiments import common, curves, records, waterfall
from experiments import levels as levels_lib
from specjax.theory import resample

FLAGS = flags.FLAGS

NAME = 'where_tokens_go'

# The experiment whose runs are read.
SOURCE = 'speed_of_light'

# What takes a level below the one before it.
CAUSES = (
  'model assumption',
  'knowledge of the laws',
  'knowledge of the trees',
  'beyond best trees',
  "end of the oracle's run",
  'start bias',
  'drafted trees',
  'end of the run',
)


def main():
  """Reads, tells the losses apart, writes, and says what came out."""
  source = find_run(FLAGS.results_dir, FLAGS.run_name)
  measured = records.load_record(source / 'record.json')
  known = measured['flags']['capacities']
  capacities = FLAGS.capacities or known[-1:]
  if not set(capacities) <= set(known):
    raise ValueError(
      f'expected capacities that {source} has, of {known}, got {capacities}'
    )
  with np.load(source / 'arrays.npz') as file:
    arrays = dict(file)
  levels = levels_lib.find(
    arrays,
    measured['best_drafter'],
    known,
    capacities,
    measured['flags']['max_new_tokens'],
    measured['seed'],
  )
  levels = {k: v for k, v in levels.items() if k not in measured['vacuous']}
  num_prompts = len(arrays['plain/num_tokens'])
  table, losses = tabulate(levels, capacities, num_prompts, measured['seed'])
  folder = common.open_run(NAME)
  record = records.new_record(
    NAME, {**measured['flags'], 'capacities': capacities}
  )
  records.finish_record(
    folder,
    record,
    table,
    losses=losses,
    best_drafter=measured['best_drafter'],
    measured_by=measured['commit'],
  )
  waterfall.show(records.load_record(folder / 'record.json'), folder)


def find_run(results_dir: str, run_name: str | None) -> pathlib.Path:
  """Returns the folder of a finished run of the main job.

  Args:
    results_dir: the folder of all results.
    run_name: name of the run.

  Raises:
    ValueError: there is none of that name; names those that there are.
  """
  folder = pathlib.Path(results_dir) / SOURCE
  finished = sorted(path.parent.name for path in folder.glob('*/record.json'))
  if run_name not in finished:
    raise ValueError(
      f'expected --run_name of a finished run of {SOURCE} in '
      f'{results_dir}, of {finished}, got {run_name!r}'
    )
  return folder / run_name


def tabulate(
  levels: Mapping[str, levels_lib.Level],
  capacities: Sequence[int],
  num_prompts: int,
  seed: int,
) -> tuple[list[dict], list[dict]]:
  """Puts levels and losses in rows, with 95 % intervals over prompts.

  Args:
    levels: from above; those that say nothing are left out at the top.
    capacities: `[C]`.
    num_prompts: `R`.
    seed: of the resamples, the same for all.

  Returns:
    Rows of the levels, and of what is lost from each to the next by each of
    `CAUSES`; a gain is negative.
  """
  rows_of = lambda name, statistic: curves.rows_of(
    name, capacities, resample.bootstrap(statistic, num_prompts, seed)
  )
  table = [row for name in levels for row in rows_of(name, levels[name])]
  steps = list(itertools.pairwise(levels.values()))
  losses = []
  for cause, (upper, lower) in zip(CAUSES[-len(steps) :], steps, strict=True):
    losses += rows_of(
      cause, lambda counts, u=upper, v=lower: u(counts) - v(counts)
    )
  return table, losses


if __name__ == '__main__':
  common.run(main, defaults={'capacities': None})
