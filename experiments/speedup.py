"""How much faster is speculation by the clock, and is the planner right?

Claim: on a CPU, drafts that are copied from the prompt pay where answers repeat
it, and pass times with counted tokens say beforehand how much.

  launch/run.sh speedup                   about half an hour on 2 quiet cores
  launch/run.sh speedup --quick           some minutes
  launch/run.sh speedup --latency=results/latency/RUN/record.json
  SPECJAX_EXTRAS=parity,llamacpp launch/run.sh speedup --weights=blocks \\
      --beside=transformers,llama.cpp

Decodes all prompts plainly and with every drafter, tree and capacity, in rounds
that run every way once, all compiled before; speed-ups are taken within a round
on the same prompts, over plain decoding with the same stored weights.  Numbers
are medians over rounds, of decoding alone; the last column of the table has the
reading of the prompts in it.  Intervals (95 %) tell of the machine's noise, not
of other prompts.  All texts have to be those of plain decoding; see
`token_identity`.

Every drafter also takes part with the size of its trees chosen in each
iteration, among --capacities and plain decoding; see `decode.adaptive`.

With --latency, measured with the same model, dtype, weights, order and
temperature, the planner predicts the speed-ups from what drafts won; drafters
that run a model want --draft_costs, as in `plan`, and what they take to read
the prompt is not foreseen.

With --beside other libraries take part, at temperature 0 and batch size 1, with
the threads of ours.  `transformers` decodes plainly, by prompt lookup, and with
the verifier without --skipped_layers as assistant, in float32; it reads a GGUF
file into values.  `llama.cpp` multiplies the file's blocks, as ours does with
--weights=blocks, but rounds otherwise: where it parts from plain decoding is
counted, and is no failure.  Their threads wait for each other, so that a busy
machine slows them many times: use a quiet one.

A run that was killed, or that is to have more --rounds, goes on.  Writes
results/speedup/<run>/: figure.png and figure.pdf, and record.json with the
table.
"""

import functools
import math
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

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
from experiments.speed import (
  beside,
  contest,
  forecast,
  options,
  report,
  rounds,
  tables,
)
from specjax.checkpoint import resolve

FLAGS = flags.FLAGS

NAME = 'speedup'

# Prompts of so many tokens, in the median of their kind, are long.
_LONG_PROMPT = 128

# What stages do not depend on, or have in their names.
_APART = ('rounds', 'latency', 'draft_costs', 'temperatures')


class Field(NamedTuple):
  """Who takes part, and on which prompts.

  Attributes:
    model: the verifier.
    ids: prompts as token ids.
    kinds: of each.
    recipes: by name.
    draftings: what was made of them.
    others: ways of another library.
  """

  model: resolve.Checkpoint
  ids: list[list[int]]
  kinds: list[str]
  recipes: Mapping[str, recipes.Recipe]
  draftings: Mapping[str, drafters.Drafting]
  others: list[rounds.Way]


def main():
  """Times, checks the texts, writes, and says what came out."""
  options.check()
  field = _field()
  # After the order of the model's matrices was chosen.
  machine = options.machine()
  folder = common.open_run(NAME)
  record = records.new_record(NAME, common.flag_values())
  keys = {
    **common.flag_values(),
    'prompt_ids': records.digest(field.ids),
    'draft_files': {name: x.content for name, x in field.draftings.items()},
  }
  stages = records.Stages(
    folder, {k: v for k, v in keys.items() if k not in _APART}
  )
  facts = {'table': [], 'beside': [], 'checks': []}
  for temperature in FLAGS.temperatures:
    parts = _at(temperature, field, stages, machine)
    for name, rows in parts.items():
      facts[name] += [{'temperature': temperature, **row} for row in rows]
  records.finish_record(
    folder, record, **facts, long_kinds=long_kinds(field.ids, field.kinds)
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


def _at(temperature, field, stages, machine) -> Mapping[str, list[dict]]:
  """Returns the parts of the record at a temperature."""
  model, ids, kinds = field.model, field.ids, field.kinds
  limits = {
    'seed': FLAGS.seed,
    'max_new_tokens': FLAGS.max_new_tokens,
    'max_length': FLAGS.max_length,
    'features': drafters.features_of(field.draftings.values()),
  }
  is_exact = jnp.dtype(FLAGS.dtype) == jnp.float32
  compare = functools.partial(
    identity.Comparison, model.params, model.tokenizer.eos_ids, ids, **limits
  )
  comparison = compare(tie=ties.TIE if is_exact else None)
  # What rounds otherwise may part anywhere.
  lenient = compare(tie=math.inf)
  tasks = contest.tasks(
    model, ids, kinds, temperature, batch_size=FLAGS.batch_size, **limits
  )
  ways = contest.ways(
    model,
    field.draftings,
    FLAGS.capacities,
    temperature,
    comparison,
    is_adaptive=FLAGS.adaptive,
  )
  ways += field.others
  samples = _take_rounds(ways, tasks, stages, temperature)
  timed = samples, ways, tasks, tables.groups_of(tasks, long_kinds(ids, kinds))
  rows = tables.speed_rows(*timed, FLAGS.seed)
  if machine is not None:
    # Batches of a kind are made equal.
    batch = max(len(task.rows) for task in tasks)
    _predict(rows, timed, field, machine, batch)
  return {
    'table': rows,
    'beside': tables.beside_rows(*timed, FLAGS.seed),
    'checks': [
      tables.check_row(
        comparison if ways[number].is_exact else lenient,
        samples,
        ways,
        number,
        temperature,
      )
      for number in tqdm.trange(1, len(ways), desc='texts', unit='way')
    ],
  }


def _predict(rows, timed, field, machine, batch):
  """Adds to rows what is predicted, None where something is not known."""
  predicted = tables.predictions(
    *timed,
    _contexts(timed[0], field.ids, field.kinds),
    lambda won, context: forecast.speedups(
      machine, field.recipes, won, batch, context
    ),
  )
  for row in rows:
    way = row['name'], row['capacity']
    row['predicted'] = predicted[row['kind']].get(way)


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


def _field():
  """Loads the model, the prompts and all that takes part."""
  model = model_flags.load(NAME)
  prompts, ids = common.load_prompts(
    model.tokenizer, FLAGS.prompts, FLAGS.prompts_per_kind, FLAGS.max_length
  )
  combined = recipes.combine(FLAGS.drafters, FLAGS.trees, ['match'])
  found = {recipe.name: recipe for recipe in combined}
  models = draft_models.load(
    FLAGS.drafters,
    model,
    ids,
    jnp.dtype(FLAGS.dtype),
    **draft_flags.of_models(),
  )
  draftings = drafters.make_all(
    found,
    model,
    common.corpus(model.tokenizer),
    max_nodes=max(FLAGS.capacities),
    models=models,
  )
  others = []
  if FLAGS.beside:
    others = beside.ways(
      FLAGS.beside,
      FLAGS.model,
      FLAGS.dtype,
      model,
      ids,
      skipped_layers=FLAGS.skipped_layers,
      max_new_tokens=FLAGS.max_new_tokens,
      max_length=FLAGS.max_length,
    )
  kinds = [prompt.kind for prompt in prompts]
  return Field(model, ids, kinds, found, draftings, others)


if __name__ == '__main__':
  options.define()
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
