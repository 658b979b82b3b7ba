"""How much faster is speculation by the clock, and is the planner right?

Claim: on a CPU, drafts that are copied from the prompt pay where answers repeat
it, and pass times with counted tokens say beforehand how much.

  launch/run.sh speedup                   about half an hour on 2 quiet cores
  launch/run.sh speedup --quick           some minutes
  launch/run.sh speedup --latency=results/latency/RUN/record.json
  SPECJAX_EXTRAS=parity launch/run.sh speedup --beside=transformers

Decodes all prompts plainly and with every drafter, tree and capacity, in rounds
that run every way once, all compiled before; speed-ups are taken within a round
on the same prompts, over plain decoding with the same stored weights.  Numbers
are medians over rounds, of decoding alone; the last column of the table has the
reading of the prompts in it.  Intervals (95 %) tell of the machine's noise, not
of other prompts.  All texts have to be those of plain decoding; see
`token_identity`.

With --latency, measured with the same model, dtype, weights, order and
temperature, the planner predicts the speed-ups from what drafts won; drafters
that run a model want --draft_costs, as in `plan`.  With --beside the library
`transformers` takes part, at temperature 0 and batch size 1, with the dtype and
the threads of ours; it reads a GGUF file into values.

A run that was killed, or that is to have more --rounds, goes on.  Writes
results/speedup/<run>/: figure.png and figure.pdf, and record.json with the
table.
"""

import functools
import pathlib
import sys
from collections.abc import Mapping, Sequence

import jax.numpy as jnp
import numpy as np
import tqdm
from absl import flags

from experiments import (
  common,
  draft_flags,
  draft_models,
  drafters,
  identity,
  model_flags,
  recipes,
  records,
  ties,
)
from experiments.planning import sources
from experiments.speed import (
  beside,
  contest,
  forecast,
  report,
  rounds,
  tables,
)

FLAGS = flags.FLAGS

NAME = 'speedup'

# Prompts of so many tokens, in the median of their kind, are long.
_LONG_PROMPT = 128

# What stages do not depend on, or have in their names.
_APART = ('rounds', 'latency', 'draft_costs', 'temperatures')


def main():
  """Times, checks the texts, writes, and says what came out."""
  _check_flags()
  machine = _machine()
  model = model_flags.load()
  prompts, ids = common.load_prompts(
    model.tokenizer, FLAGS.prompts, FLAGS.prompts_per_kind, FLAGS.max_length
  )
  kinds = [prompt.kind for prompt in prompts]
  found = recipes.combine(FLAGS.drafters, FLAGS.trees, ['match'])
  draftings = _draftings(found, model, ids)
  others = []
  if FLAGS.beside:
    library = beside.Library(FLAGS.model, FLAGS.dtype, model)
    others = library.ways(ids, FLAGS.max_new_tokens)
  folder = records.open_run(FLAGS.results_dir, NAME, FLAGS.run_name)
  record = records.new_record(NAME, common.flag_values())
  keys = {
    **common.flag_values(),
    'prompt_ids': records.digest(ids),
    'draft_files': {name: made.content for name, made in draftings.items()},
  }
  stages = records.Stages(
    folder, {k: v for k, v in keys.items() if k not in _APART}
  )
  facts = {'table': [], 'beside': [], 'checks': []}
  for temperature in FLAGS.temperatures:
    parts = _at(
      temperature, model, ids, kinds, found, draftings, others, stages, machine
    )
    for name, rows in parts.items():
      facts[name] += [{'temperature': temperature, **row} for row in rows]
  records.finish_record(
    folder, record, **facts, long_kinds=long_kinds(ids, kinds)
  )
  report.show(records.load_record(folder / 'record.json'), folder)
  if any(row['failures'] for row in facts['checks']):
    sys.exit(1)


def long_kinds(ids: Sequence[Sequence[int]], kinds: Sequence[str]) -> list[str]:
  """Returns the kinds whose prompts are long.

  Args:
    ids: prompts as token ids.
    kinds: of each.
  """
  lengths = lambda kind: [
    len(prompt)
    for prompt, other in zip(ids, kinds, strict=True)
    if other == kind
  ]
  return [
    kind
    for kind in dict.fromkeys(kinds)
    if np.median(lengths(kind)) >= _LONG_PROMPT
  ]


def _at(
  temperature, model, ids, kinds, found, draftings, others, stages, machine
) -> Mapping[str, list[dict]]:
  """Returns the parts of the record at a temperature."""
  features = drafters.features_of(draftings.values())
  options = {
    'seed': FLAGS.seed,
    'max_new_tokens': FLAGS.max_new_tokens,
    'max_length': FLAGS.max_length,
    'features': features,
  }
  is_exact = jnp.dtype(FLAGS.dtype) == jnp.float32
  comparison = identity.Comparison(
    model.params,
    model.tokenizer.eos_ids,
    ids,
    tie=ties.TIE if is_exact else None,
    **options,
  )
  tasks = contest.tasks(
    model, ids, kinds, temperature, batch_size=FLAGS.batch_size, **options
  )
  ways = contest.ways(
    model, draftings, FLAGS.capacities, temperature, comparison
  )
  ways += others
  samples = _take_rounds(ways, tasks, stages, temperature)
  groups = tables.groups_of(tasks, long_kinds(ids, kinds))
  timed = (samples, ways, tasks, groups)
  rows = tables.speed_rows(*timed, FLAGS.seed)
  if machine is not None:
    recipes_by_name = {recipe.name: recipe for recipe in found}
    predicted = tables.predictions(
      *timed,
      _contexts(samples, ids, kinds),
      lambda won, context: forecast.speedups(
        machine, recipes_by_name, won, FLAGS.batch_size, context
      ),
    )
    for row in rows:
      way = row['name'], row['capacity']
      row['predicted'] = predicted[row['kind']].get(way)
  numbers = range(1, len(ways))
  return {
    'table': rows,
    'beside': tables.beside_rows(*timed, FLAGS.seed),
    'checks': [
      tables.check_row(comparison, samples, ways, number, temperature)
      for number in tqdm.tqdm(numbers, desc='texts', unit='way')
    ],
  }


def _take_rounds(ways, tasks, stages, temperature):
  """Takes the rounds that are not there yet; `[R, ...]` of all."""
  warm_up = functools.cache(lambda: rounds.warm_up(ways, tasks))

  def compute(number):
    warm_up()
    return rounds.take(
      ways, tasks, (FLAGS.seed, number), FLAGS.max_new_tokens, bar.update
    )

  found, size = [], len(ways) * len(tasks)
  label = f'T={temperature:g}'
  with tqdm.tqdm(total=size * FLAGS.rounds, desc=label, unit='run') as bar:
    for number in range(FLAGS.rounds):
      one_round = functools.partial(compute, number)
      found.append(stages.arrays(f'{label}-{number}', one_round))
      bar.update(size * (number + 1) - bar.n)
  return {k: np.stack([arrays[k] for arrays in found]) for k in found[0]}


def _contexts(samples, ids, kinds):
  """Tokens of a row while it is decoded, in the mean, by kind."""
  lengths = np.array([len(prompt) for prompt in ids])
  of_rows = lengths + samples['num_tokens'][0, 0] / 2
  return {
    kind: float(np.mean(of_rows[[other == kind for other in kinds]]))
    for kind in dict.fromkeys(kinds)
  }


def _draftings(found, model, ids):
  """Builds the drafters of all recipes."""
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
    common.corpus(model.tokenizer),
    max_nodes=max(FLAGS.capacities),
    models=models,
  )


def _machine():
  """Returns the pass times that plans are made from, None without any."""
  if not FLAGS.latency:
    return None
  [temperature] = FLAGS.temperatures
  flags_of_model = {
    name: FLAGS[name].value for name in model_flags.SHARED_FLAGS
  }
  return forecast.of_record(
    records.load_record(pathlib.Path(FLAGS.latency), sources.LATENCY_COLUMNS),
    flags_of_model | {'temperature': temperature},
    sources.parse_costs(FLAGS.draft_costs),
  )


def _check_flags():
  if FLAGS.capacities == [1]:
    raise ValueError('expected --capacities above 1, got plain decoding alone')
  if FLAGS.latency and len(FLAGS.temperatures) > 1:
    raise ValueError(
      f'expected one of --temperatures with --latency, got {FLAGS.temperatures}'
    )
  if FLAGS.beside and (FLAGS.batch_size, FLAGS.temperatures) != (1, [0]):
    raise ValueError(
      'expected --batch_size=1 and --temperatures=0 with --beside, got '
      f'{FLAGS.batch_size} and {FLAGS.temperatures}'
    )


def _define_flags():
  """Defines what other experiments have flags of the same name for."""
  with common.flags_of_main():
    flags.DEFINE_integer(
      'rounds', 15, 'Each runs every way once.', lower_bound=2
    )
    flags.DEFINE_string(
      'latency', None, 'record.json of latency, to predict speed-ups from.'
    )
    flags.DEFINE_list(
      'draft_costs',
      [],
      'NAME:SHARE of a plain pass that a level of the trees of NAME takes.',
    )
    flags.DEFINE_enum(
      'beside', None, ['transformers'], 'A library that takes part.'
    )


if __name__ == '__main__':
  _define_flags()
  draft_flags.define('temperatures', 'trees', *draft_flags.MODELS)
  common.run(
    main,
    drafters=[name for name in recipes.NAMES if name != 'oracle'],
    defaults={
      'temperatures': [0.0],
      'drafters': ['lookup', 'suffix', 'bigram', 'eagle'],
      'trees': ['best_first'],
      'capacities': [4, 8, 16],
      'prompts_per_kind': 2,
      'batch_size': 1,
    },
    quick={
      'rounds': 3,
      'drafters': ['lookup', 'bigram'],
      'capacities': [4, 8],
      'prompts_per_kind': 1,
      'max_new_tokens': 16,
    },
    shared=[
      *model_flags.SHARED_FLAGS,
      *('prompts', 'prompts_per_kind', 'capacities', 'drafters'),
      *('max_new_tokens', 'max_length', 'batch_size', 'seed', 'quick'),
    ],
  )
