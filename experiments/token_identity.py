"""Does tree decoding emit the text of plain decoding, token for token?

Claim: in float32 it does, greedy and sampled, for every drafter and shape, at
every capacity and batch size; in bfloat16 it does but for ties.

  launch/run.sh token_identity            6 prompts, some minutes on 2 cores
  launch/run.sh token_identity --prompts_per_kind=7 --max_new_tokens=64 \\
    --capacities=4,16                     42 prompts
  launch/run.sh token_identity --dtype=bfloat16 --drafters=lookup,oracle \\
    --batch_sizes=8

`--trees` are tried with every drafter that takes them; see `recipes`.

Where the best scores (logits at temperature 0, else log-probabilities with
their noise) are a tie, rounding decides and the texts may part: it is counted,
and the rest of the text is compared behind it.  Parting anywhere else is a
failure, and the exit code is 1.  A tie in float32 is a gap below 1e-3.  In
bfloat16, whose passes of different width differ a hundred times as much, the
limit is measured at each parting; see `ties`.  The table says how wide the
widest tie was, and which share of its limit the one nearest to it.

Writes results/token_identity/<run>/record.json with the table.
"""

import functools
import itertools
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
  number_flags,
  recipes,
  records,
  ties,
)
from specjax.theory import resample

FLAGS = flags.FLAGS

NAME = 'token_identity'

# Shared flags that leave no choice here.
_FIXED = ('temperature', 'top_k', 'top_p', 'min_p')

_BATCH_SIZES = number_flags.define_integers(
  'batch_sizes',
  [8, 1],
  'Prompts decoded at a time by speculation; plainly it is --batch_size.',
)


class Way(NamedTuple):
  """A way of decoding that has to equal plain decoding."""

  drafter: str
  temperature: float
  capacity: int
  batch_size: int


def main():
  """Decodes in every way, compares, writes, and says what came out."""
  for name in _FIXED:
    if FLAGS[name].value != FLAGS[name].default:
      raise ValueError(
        f'expected --{name}={FLAGS[name].default} in this experiment, '
        f'got {FLAGS[name].value}'
      )
  dtype = jnp.dtype(FLAGS.dtype)
  model = model_flags.load(NAME)
  _, ids = common.load_prompts(
    model.tokenizer, FLAGS.prompts, FLAGS.prompts_per_kind, FLAGS.max_length
  )
  found = recipes.combine(FLAGS.drafters, FLAGS.trees, ['match'])
  models = draft_models.load(
    FLAGS.drafters,
    model,
    ids,
    dtype,
    **draft_flags.of_models(),
  )
  draftings = drafters.make_all(
    {recipe.name: recipe for recipe in found},
    model,
    ids,
    max_nodes=max(FLAGS.capacities),
    models=models,
  )
  folder = common.open_run(NAME)
  record = records.new_record(NAME, common.flag_values())
  comparison = identity.Comparison(
    model.params,
    model.tokenizer.eos_ids,
    ids,
    seed=FLAGS.seed,
    max_new_tokens=FLAGS.max_new_tokens,
    max_length=FLAGS.max_length,
    features=drafters.features_of(draftings.values()),
    tie=ties.TIE if dtype == jnp.float32 else None,
  )
  stages = records.Stages(
    folder, {**common.flag_values(), 'prompt_ids': records.digest(ids)}
  )
  table = _compare_all(comparison, stages, draftings)
  records.finish_record(folder, record, table)
  print(table_text(table))
  print()
  print(sentence(table))
  if any(row['failures'] for row in table):
    sys.exit(1)


def _compare_all(comparison, stages, draftings):
  """Compares every way that the flags ask for; a row of the table for each."""
  no_progress = lambda num_tokens: None
  plain = {
    t: stages.arrays(
      f'plain-{t:g}',
      functools.partial(comparison.plain, t, FLAGS.batch_size, no_progress),
    )
    for t in FLAGS.temperatures
  }
  # Prompts are read once a batch size, so that it changes last.
  ways = [
    Way(drafter, temperature, capacity, batch_size)
    for batch_size, drafter, capacity, temperature in itertools.product(
      _BATCH_SIZES.value,
      draftings,
      FLAGS.capacities,
      FLAGS.temperatures,
    )
  ]
  ends = np.cumsum([plain[way.temperature]['num_tokens'].sum() for way in ways])
  table = []
  with tqdm.tqdm(total=int(ends[-1]), unit='tok') as bar:
    for way, end in zip(ways, ends, strict=True):
      drafting = draftings[way.drafter]
      stage = drafting.stage('-'.join(map(str, way)))
      bar.set_description('-'.join(map(str, way)))
      compute = functools.partial(
        comparison.compare,
        plain[way.temperature],
        drafting,
        temperature=way.temperature,
        num_nodes=way.capacity,
        batch_size=way.batch_size,
        progress_fn=bar.update,
      )
      arrays = stages.arrays(stage, compute)
      bar.update(int(end) - bar.n)
      table.append(table_row(way, arrays, FLAGS.seed))
  return table


def table_row(way: Way, arrays: identity.Arrays, seed: int) -> dict:
  """Counts what a comparison found.

  Args:
    way: how was decoded.
    arrays: what `Comparison.compare` returned.
    seed: of the resamples behind the interval of `D`.

  Returns:
    The way's fields, `prompts`, `tokens` compared, `partings` at ties,
    `failures`, `widest_gap` of a tie and `widest_share` of its limit, both 0
    without ties, and `D` with its 95 % interval over prompts, `low` to `high`.
  """
  is_tie = arrays['gap'] < arrays['limit']
  gaps, limits = arrays['gap'][is_tie], arrays['limit'][is_tie]
  interval = resample.ratio(arrays['num_tokens'], arrays['num_steps'], seed)
  return {
    **way._asdict(),
    'prompts': len(arrays['num_tokens']),
    'tokens': int(arrays['num_compared'].sum()),
    'partings': int(is_tie.sum()),
    'failures': int((~is_tie).sum()),
    'widest_gap': float(gaps.max(initial=0.0)),
    'widest_share': float((gaps / limits).max(initial=0.0)),
    'D': float(interval.value),
    'low': float(interval.low),
    'high': float(interval.high),
  }


def table_text(table: Sequence[Mapping]) -> str:
  """Returns the table, a line a way of decoding."""
  counts = ('capacity', 'batch_size', 'prompts', 'tokens', 'partings')
  counts = (*counts, 'failures')
  head = f'{"drafter":<22}{"temperature":>11}'
  head += ''.join(f'{name:>11}' for name in counts)
  lines = [f'{head}{"widest gap":>18}{"D":>22}']
  for row in table:
    line = f'{row["drafter"]:<22}{row["temperature"]:>11g}'
    line += ''.join(f'{row[name]:>11}' for name in counts)
    gap = ''
    if row['partings']:
      gap = f'{row["widest_gap"]:.1e} ({row["widest_share"]:.0%})'
    interval = f'{row["D"]:.2f} [{row["low"]:.2f}, {row["high"]:.2f}]'
    lines.append(f'{line}{gap:>18}{interval:>22}')
  return '\n'.join(lines)


def sentence(table: Sequence[Mapping]) -> str:
  """Says in words whether the texts are the same."""
  total = lambda name: sum(row[name] for row in table)
  if total('failures'):
    return (
      f'FAILURE: {total("failures")} texts part from those of plain decoding '
      f'where no tie excuses it; the stages of the run say at which places.'
    )
  text = (
    f'{len(table)} ways of decoding emitted {total("tokens")} tokens as plain '
    f'decoding does'
  )
  if not total('partings'):
    return f'{text}, without exception.'
  widest = lambda name: max(row[name] for row in table)
  return (
    f'{text}; they parted at {total("partings")} ties, the widest of '
    f'{widest("widest_gap"):.1e} and none wider than '
    f'{widest("widest_share"):.0%} of its limit, and agreed again behind each '
    f'of them.'
  )


if __name__ == '__main__':
  draft_flags.define('temperatures', 'trees', *draft_flags.MODELS)
  common.run(
    main,
    drafters=recipes.NAMES,
    defaults={
      'prompts_per_kind': 1,
      'drafters': ['lookup', 'suffix', 'bigram', 'layer_skip', 'oracle'],
      'trees': ['chain', '2_ary', 'best_first', 'beam'],
      'max_new_tokens': 16,
      'capacities': [4],
    },
    quick={'max_new_tokens': 8, 'batch_sizes': [8]},
  )
