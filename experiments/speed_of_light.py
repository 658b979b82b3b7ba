"""How near do drafters come to what any draft tree can win?

Claim: on a real model the tokens per verifier pass of drafters, and of the best
trees there are, lie under limits that come from the laws of its own texts
alone.

  launch/run.sh speed_of_light            12 prompts, under 10 min on 2 cores
  launch/run.sh speed_of_light --quick    6 prompts, under 2 min
  launch/run.sh speed_of_light --drafters=lookup,eagle
  launch/run.sh speed_of_light --model=FOLDER --drafters=lookup,model \\
    --draft_model=SMALLER

Writes results/speed_of_light/<run>/: figure.png and figure.pdf, record.json
with the table of the figure, arrays.npz with what was measured.
"""

import jax.numpy as jnp
import numpy as np
from absl import flags

from experiments import (
  common,
  curves,
  draft_flags,
  draft_models,
  drafters,
  model_flags,
  parallel_flags,
  posterior_curves,
  recipes,
  records,
  report,
  studies,
)
from experiments import proposals as proposals_lib
from experiments import starts as starts_lib
from experiments import study as study_lib
from specjax import hosts

FLAGS = flags.FLAGS

_ORACLE_STARTS = flags.DEFINE_integer(
  'oracle_starts',
  None,
  'Starts of the best drafter that are drawn for the oracle; all if none.',
  lower_bound=2,
)

NAME = 'speed_of_light'


def main(layout):
  """Measures, bounds, writes, and says what came out."""
  model = model_flags.load(NAME, layout)
  _, ids = common.load_prompts(
    model.tokenizer, FLAGS.prompts, FLAGS.prompts_per_kind, FLAGS.max_length
  )
  if len(ids) < 2:
    raise ValueError('expected 2 prompts or more, to fit on half of them')
  draftings = _draftings(model, ids)
  folder = common.open_run(NAME)
  record = records.new_record(NAME, common.flag_values())
  study = studies.open_study(
    model,
    ids,
    draftings,
    (FLAGS.temperature, FLAGS.top_k, FLAGS.top_p, FLAGS.min_p),
    folder,
    # Starts are drawn after all stages; names tell what drafters are made of.
    apart_from=['oracle_starts', 'draft_model', 'eagle'],
    layout=layout,
  )
  if standing := records.standing(folder):
    print(standing, flush=True)
  runs = {
    name: [study.run(name, capacity) for capacity in study.capacities]
    for name in [*FLAGS.drafters, study_lib.ORACLE_RUN]
  }
  proposals = {
    name: study.proposals(name)
    for name in FLAGS.drafters
    if name in proposals_lib.ORIGINS
  }
  texts, oracle = study.texts, study.oracle
  if not hosts.is_first():  # Of what is measured all have their part.
    return
  best = min(FLAGS.drafters, key=lambda name: runs[name][-1]['num_steps'].sum())
  won = [starts_lib.won(run, study.plain) for run in runs[best]]
  starts = starts_lib.draw(won, _ORACLE_STARTS.value, FLAGS.seed)
  starts['values'] = oracle['value'][starts['rows'], starts['places']].T

  table, facts = curves.tabulate(
    texts,
    study.run_lengths,
    runs,
    oracle,
    starts,
    best,
    study.capacities,
    model.params.config.vocab_size,
    FLAGS.seed,
  )
  of_posterior, checks = posterior_curves.tabulate(
    proposals, study.run_lengths, starts, study.capacities, FLAGS.seed
  )
  table += of_posterior
  facts['checks'] += checks
  facts['partings'] = num_partings(study, runs)
  records.write_npz(
    folder / 'arrays.npz', **flat_arrays(study, runs, proposals, starts)
  )
  records.finish_record(folder, record, table, best_drafter=best, **facts)
  report.show(records.load_record(folder / 'record.json'), folder)


def _draftings(model, ids):
  """Builds the drafters by name."""
  corpus = common.corpus(model.tokenizer)
  models = draft_models.load(
    FLAGS.drafters,
    model,
    ids,
    jnp.dtype(FLAGS.dtype),
    draft_model=FLAGS.draft_model,
    eagle=FLAGS.eagle,
  )
  return drafters.make_all(
    {name: recipes.MAIN_JOB[name] for name in FLAGS.drafters},
    model,
    corpus,
    max_nodes=max(FLAGS.capacities),
    models=models,
  )


def num_partings(study, runs) -> dict[str, int]:
  """Counts the texts that are not the plain ones, by run."""
  return {
    f'{name}-{capacity}': int(
      (starts_lib.partings(run, study.plain) < study.max_new_tokens).sum()
    )
    for name, at_capacities in runs.items()
    if name != study_lib.ORACLE_RUN
    for capacity, run in zip(study.capacities, at_capacities, strict=True)
  }


def flat_arrays(study, runs, proposals, starts) -> dict[str, np.ndarray]:
  """Gathers what was measured, by names such as `lookup-16/place`."""
  arrays = {f'plain/{k}': v for k, v in study.plain.items()}
  laws = vars(study.texts.laws)
  arrays |= {f'laws/{k}': np.asarray(v) for k, v in laws.items()}
  arrays |= {f'oracle/{k}': v for k, v in study.oracle.items()}
  arrays |= {f'starts/{k}': v for k, v in starts.items()}
  for name, proposed in proposals.items():
    arrays |= {f'{name}-proposals/{k}': v for k, v in proposed.items()}
  for name, at_capacities in runs.items():
    for capacity, run in zip(study.capacities, at_capacities, strict=True):
      arrays |= {f'{name}-{capacity}/{k}': v for k, v in run.items()}
  return arrays


if __name__ == '__main__':
  draft_flags.define('draft_model', 'eagle')
  parallel_flags.define()
  common.run(
    parallel_flags.with_layout(main),
    drafters=tuple(recipes.MAIN_JOB),
    defaults={'drafters': ['lookup', 'bigram'], 'prompts_per_kind': 2},
    quick={
      'prompts_per_kind': 1,
      'max_new_tokens': 16,
      'capacities': [1, 4, 16],
    },
  )
