"""Which drafter, tree and rule win, and how far are they from the best trees?

Claim: whatever drafts and however drafts are judged, the best trees there are
win several times as much over plain decoding.

  launch/run.sh acceptance                under 10 min on 2 cores
  launch/run.sh acceptance --quick        about 2 min
  launch/run.sh acceptance --drafters=layer_skip,dulled \\
    --trees=chain,sequoia,beam,opt_tree,best_paths --rules=match,block
  launch/run.sh acceptance --flagfile=results/layer_skip_search/RUN/flags.txt

Runs every drafter with every tree and rule that goes with it (see `recipes`)
at every temperature; at temperature 0, where all rules are the same, with
`match` alone.  Behind them stand, for the same texts, the oracle's own run and
the limits of runs of deterministic trees.  Rules other than `match` emit texts
of their own and are no deterministic trees: they may exceed these limits.

A run that goes on with more drafters, trees, rules or temperatures measures
only what is new.  Writes results/acceptance/<run>/: figure.png and figure.pdf,
and record.json with the table.
"""

import sys
from collections.abc import Mapping, Sequence

import jax.numpy as jnp
import numpy as np
import tqdm
from absl import flags

from experiments import (
  acceptance_report,
  common,
  curves,
  draft_flags,
  draft_models,
  drafters,
  model_flags,
  parallel_flags,
  recipes,
  records,
  studies,
)
from experiments import study as study_lib
from specjax import hosts
from specjax.theory import entropy, resample, run_bounds

FLAGS = flags.FLAGS

NAME = 'acceptance'

# Limits of runs that stand behind them.
LIMITS = ('run', 'run_context', 'run_priced')

# What of the flags is in the names of stages, or what they hold of it.
_NAMED = ('drafters', 'trees', 'rules', 'temperatures', 'eagle', 'draft_model')


def main(layout):
  """Runs, sums up, writes, and says what came out."""
  model = model_flags.load(NAME, layout)
  _, ids = common.load_prompts(
    model.tokenizer, FLAGS.prompts, FLAGS.prompts_per_kind, FLAGS.max_length
  )
  if len(ids) < 2:
    raise ValueError('expected 2 prompts or more, to fit on half of them')
  if 0 in FLAGS.temperatures and 'match' not in FLAGS.rules:
    raise ValueError(
      'expected match among --rules at temperature 0, where all rules are the '
      f'same, got {",".join(FLAGS.rules)}'
    )
  found = recipes.combine(FLAGS.drafters, FLAGS.trees, FLAGS.rules)
  draftings = _draftings(found, model, ids)
  folder = common.open_run(NAME)
  record = records.new_record(NAME, common.flag_values())
  table, checks = [], []
  for temperature in FLAGS.temperatures:
    tqdm.tqdm.write(f'temperature {temperature:g}', file=sys.stderr)
    study = studies.open_at(
      model,
      ids,
      draftings,
      temperature,
      folder,
      apart_from=_NAMED,
      layout=layout,
    )
    names = [
      recipe.name
      for recipe in found
      if recipe.rule == 'match' or temperature > 0
    ]
    rows, differences = tabulate(
      {
        name: [study.run(name, capacity) for capacity in study.capacities]
        for name in [*names, study_lib.ORACLE_RUN]
      },
      [recipe.name for recipe in found if recipe.rule == 'match'],
      study.texts,
      study.run_lengths,
      study.oracle,
      study.capacities,
      model.params.config.vocab_size,
      FLAGS.seed,
    )
    label = {'temperature': temperature}
    table += [row | label for row in rows]
    checks += [row | label for row in differences]
  if not hosts.is_first():  # Of what is measured all have their part.
    return
  records.finish_record(
    folder,
    record,
    table,
    checks=checks,
    recipes={recipe.name: recipe._asdict() for recipe in found},
  )
  acceptance_report.show(records.load_record(folder / 'record.json'), folder)


def tabulate(
  runs: Mapping[str, Sequence[study_lib.Arrays]],
  deterministic: Sequence[str],
  texts: entropy.Texts,
  run_lengths: np.ndarray,
  oracle: study_lib.Arrays,
  capacities: Sequence[int],
  vocab_size: int,
  seed: int,
) -> tuple[list[dict], list[dict]]:
  """Makes the curves of one temperature.

  Args:
    runs: the run at each capacity, by name; the oracle's too.
    deterministic: names of runs that the limits hold for, beside the oracle's.
    texts: plain texts with their laws.
    run_lengths: `[R]` tokens of a run over them.
    oracle: the best trees everywhere; see `oracle_runs.everywhere`.
    capacities: `[C]`.
    vocab_size: `V`.
    seed: of halves and resamples.

  Returns:
    The table of runs and, where the laws have entropy, of limits; and the
    paired differences of a limit and a run that it holds for.
  """
  totals = lambda name, key: np.stack([run[key] for run in runs[name]])
  calls = {name: totals(name, 'num_steps') for name in runs}
  tokens = {name: totals(name, 'num_tokens') for name in runs}
  table = []
  for name in runs:
    interval = resample.ratio(tokens[name], calls[name], seed)
    table += curves.rows_of(name, capacities, interval)
  if entropy.moments_of_laws(texts.laws, run_lengths).mu == 0:
    return table, []
  limits = curves.run_limits(
    texts.laws, oracle, run_lengths, capacities, vocab_size, seed
  )
  limits = {name: limits[name] for name in LIMITS}
  for name, least in limits.items():
    interval = run_bounds.rate(least, run_lengths, capacities, seed)
    table += curves.rows_of(name, capacities, interval)
  held = {
    name: (tokens[name], calls[name])
    for name in [*deterministic, study_lib.ORACLE_RUN]
  }
  return table, curves.limit_checks(limits, run_lengths, held, capacities, seed)


def _draftings(found, model, ids):
  """Builds the drafters of all recipes."""
  corpus = common.corpus(model.tokenizer)
  models = draft_models.load(
    FLAGS.drafters,
    model,
    ids,
    jnp.dtype(FLAGS.dtype),
    **draft_flags.of_models(),
  )
  return drafters.make_all(
    {recipe.name: recipe for recipe in found},
    model,
    corpus,
    max_nodes=max(FLAGS.capacities),
    models=models,
  )


if __name__ == '__main__':
  draft_flags.define('temperatures', 'trees', 'rules', *draft_flags.MODELS)
  parallel_flags.define()
  common.run(
    parallel_flags.with_layout(main),
    # The oracle's run is there anyway.
    drafters=[name for name in recipes.NAMES if name != 'oracle'],
    defaults={
      'drafters': ['lookup', 'suffix', 'bigram', 'layer_skip'],
      'prompts_per_kind': 1,
      'capacities': [4, 16, 64],
      'max_new_tokens': 16,
    },
    quick={
      'drafters': ['lookup', 'bigram', 'layer_skip'],
      'max_new_tokens': 8,
      'capacities': [4, 16],
    },
    shared=[
      *model_flags.SHARED_FLAGS,
      *('prompts', 'prompts_per_kind', 'top_k', 'top_p'),
      *('min_p', 'capacities', 'drafters', 'max_new_tokens', 'max_length'),
      *('batch_size', 'seed', 'quick'),
    ],
  )
