"""How near do drafters come to what any draft tree can win?

Claim: on a real model, tokens per verifier pass grow with the logarithm of the
tree's size, and entropy alone says how fast, whatever drafts.

  launch/run.sh speed_of_light            12 prompts, under 10 min on 2 cores
  launch/run.sh speed_of_light --quick    6 prompts, under 2 min

Writes results/speed_of_light/<run>/: figure.png and figure.pdf, record.json
with the table of the figure, arrays.npz with what was measured.
"""

from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np
from absl import flags

from experiments import common, curves, drafters, records, report
from experiments import study as study_lib
from specjax import sampling as sampling_lib
from specjax.checkpoint import resolve

FLAGS = flags.FLAGS

_ORACLE_STARTS = flags.DEFINE_integer(
  'oracle_starts',
  None,
  'Starts of the best drafter that are drawn for the oracle; all if none.',
  lower_bound=2,
)

NAME = 'speed_of_light'

Arrays = study_lib.Arrays


def main():
  """Measures, bounds, writes, and says what came out."""
  model = resolve.load(FLAGS.model, jnp.dtype(FLAGS.dtype))
  _, ids = common.load_prompts(
    model.tokenizer, FLAGS.prompts, FLAGS.prompts_per_kind, FLAGS.max_length
  )
  if len(ids) < 2:
    raise ValueError('expected 2 prompts or more, to fit on half of them')
  folder = records.open_run(FLAGS.results_dir, NAME, FLAGS.run_name)
  record = records.new_record(NAME, common.flag_values())
  study = study_lib.Study(
    model,
    ids,
    sampling_lib.make(
      len(ids), FLAGS.temperature, FLAGS.top_k, FLAGS.top_p, FLAGS.min_p
    ),
    records.Stages(folder, common.flag_values()),
    seed=FLAGS.seed,
    capacities=FLAGS.capacities,
    max_new_tokens=FLAGS.max_new_tokens,
    max_length=FLAGS.max_length,
    batch_size=FLAGS.batch_size,
  )
  runs = {
    name: [study.run(name, capacity) for capacity in study.capacities]
    for name in [*FLAGS.drafters, study_lib.ORACLE_RUN]
  }
  best = min(FLAGS.drafters, key=lambda name: runs[name][-1]['num_steps'].sum())
  starts = draw_starts(
    runs[best], study.max_new_tokens, _ORACLE_STARTS.value, FLAGS.seed
  )
  starts['values'] = study.oracle['value'][starts['rows'], starts['places']].T

  table, facts = curves.tabulate(
    study.texts,
    study.run_lengths,
    runs,
    starts,
    best,
    study.capacities,
    model.params.config.vocab_size,
    FLAGS.seed,
  )
  facts['partings'] = count_partings(study, runs)
  records.write_npz(folder / 'arrays.npz', **flat_arrays(study, runs, starts))
  records.finish_record(folder, record, table, best_drafter=best, **facts)
  report.show(records.load_record(folder / 'record.json'), folder)


def draw_starts(
  runs: Sequence[Arrays], max_new_tokens: int, num_starts: int | None, seed: int
) -> dict[str, np.ndarray]:
  """Draws starts that a drafter visited, at any of its capacities.

  Those of them that it visited at one capacity are a uniform draw of all that
  it visited there.

  Args:
    runs: the drafter's at each capacity.
    max_new_tokens: tokens of a run.
    num_starts: how many to draw, all if none or if there are fewer.
    seed: of the draw.

  Returns:
    `rows [M]` and `places [M]` of the starts, and `visited [C, M]` bool.

  Raises:
    ValueError: all starts of a capacity are of one prompt.
  """
  visited = np.stack([was_start(run, max_new_tokens) for run in runs])
  rows, places = np.nonzero(visited.any(axis=0))
  drawn = np.random.default_rng(seed).permutation(len(rows))[:num_starts]
  rows, places = rows[np.sort(drawn)], places[np.sort(drawn)]
  visited = visited[:, rows, places]
  # Bounds at starts are fitted on half of the prompts.
  if any(len(np.unique(rows[here])) < 2 for here in visited):
    raise ValueError(
      'expected starts of 2 prompts or more at every capacity, got fewer; '
      f'draw more than --oracle_starts={num_starts}'
    )
  return {'rows': rows, 'places': places, 'visited': visited}


def was_start(run: Arrays, max_new_tokens: int) -> np.ndarray:
  """`[R, max_new_tokens]` bool: an iteration of a run started there."""
  starts = np.zeros((len(run['num_steps']), max_new_tokens), bool)
  for row, count in enumerate(run['num_steps']):
    starts[row, run['place'][row, :count]] = True
  return starts


def count_partings(study, runs) -> dict[str, int]:
  """Counts texts that are not those of plain decoding, by drafter and size.

  In float32 two scores within rounding of each other may be told apart in
  either way; nothing else makes a difference.
  """
  plain = study.plain['tokens'][:, : study.max_new_tokens]
  return {
    f'{name}-{capacity}': int(np.any(run['tokens'] != plain, axis=1).sum())
    for name in FLAGS.drafters
    for capacity, run in zip(study.capacities, runs[name], strict=True)
  }


def flat_arrays(study, runs, starts) -> dict[str, np.ndarray]:
  """Gathers what was measured, by names such as `lookup-16/place`."""
  arrays = {f'plain/{k}': v for k, v in study.plain.items()}
  laws = vars(study.texts.laws)
  arrays |= {f'laws/{k}': np.asarray(v) for k, v in laws.items()}
  arrays |= {f'oracle/{k}': v for k, v in study.oracle.items()}
  arrays |= {f'starts/{k}': v for k, v in starts.items()}
  for name, at_capacities in runs.items():
    for capacity, run in zip(study.capacities, at_capacities, strict=True):
      arrays |= {f'{name}-{capacity}/{k}': v for k, v in run.items()}
  return arrays


if __name__ == '__main__':
  common.run(
    main,
    drafters=drafters.NAMES,
    defaults={'prompts_per_kind': 2},
    quick={
      'prompts_per_kind': 1,
      'max_new_tokens': 16,
      'capacities': [1, 4, 16],
    },
  )
