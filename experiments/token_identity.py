"""Does tree decoding emit the text of plain decoding, token for token?

Claim: in float32 it does, greedy and sampled, for every drafter and shape, at
every capacity and batch size.

  launch/run.sh token_identity            6 prompts, some minutes on 2 cores
  launch/run.sh token_identity --prompts_per_kind=7 --max_new_tokens=64 \\
    --capacities=4,16                     42 prompts

`--trees` are tried with every drafter that takes them; see `recipes`.

Where the best scores (logits at temperature 0, else log-probabilities with
their noise) lie closer than 1e-3, rounding decides and the texts may part: such
a tie is counted, and the rest of the text is compared behind it.  Parting
anywhere else is a failure, and the exit code is 1.

Writes results/token_identity/<run>/record.json with the table.
"""

import functools
import itertools
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
  drafters,
  identity,
  recipes,
  records,
)
from specjax.checkpoint import resolve
from specjax.theory import resample

FLAGS = flags.FLAGS

NAME = 'token_identity'

# Shared flags that leave no choice here.
_FIXED = ('dtype', 'temperature', 'top_k', 'top_p', 'min_p')

_BATCH_SIZES = flags.DEFINE(
  draft_flags.ListParser(flags.IntegerParser(lower_bound=1)),
  'batch_sizes',
  [8, 1],
  'Prompts decoded at a time by speculation; plainly it is --batch_size.',
  serializer=flags.ListSerializer(','),
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
  model = resolve.load(FLAGS.model, jnp.float32)
  _, ids = common.load_prompts(
    model.tokenizer, FLAGS.prompts, FLAGS.prompts_per_kind, FLAGS.max_length
  )
  draftings = {
    recipe.name: drafters.make(
      recipe,
      model.params,
      ids,
      max_nodes=max(FLAGS.capacities),
      eos_ids=model.tokenizer.eos_ids,
      skipped_layers=FLAGS.skipped_layers,
    )
    for recipe in recipes.combine(FLAGS.drafters, FLAGS.trees, ['match'])
  }
  folder = records.open_run(FLAGS.results_dir, NAME, FLAGS.run_name)
  record = records.new_record(NAME, common.flag_values())
  comparison = identity.Comparison(
    model.params,
    model.tokenizer.eos_ids,
    ids,
    seed=FLAGS.seed,
    max_new_tokens=FLAGS.max_new_tokens,
    max_length=FLAGS.max_length,
  )
  table = _compare_all(
    comparison,
    records.Stages(folder, common.flag_values()),
    draftings,
  )
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
      bar.set_description('-'.join(map(str, way)))
      compute = functools.partial(
        comparison.compare,
        plain[way.temperature],
        draftings[way.drafter],
        temperature=way.temperature,
        num_nodes=way.capacity,
        batch_size=way.batch_size,
        progress_fn=bar.update,
      )
      arrays = stages.arrays('-'.join(map(str, way)), compute)
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
    `failures`, `widest_gap` (None where a text ended elsewhere), and `D` with
    its 95 % interval over prompts, `low` to `high`.
  """
  is_tie = arrays['gap'] < identity.TIE
  widest = float(arrays['gap'].max(initial=0.0))
  interval = resample.ratio(arrays['num_tokens'], arrays['num_steps'], seed)
  return {
    **way._asdict(),
    'prompts': len(arrays['num_tokens']),
    'tokens': int(arrays['num_compared'].sum()),
    'partings': int(is_tie.sum()),
    'failures': int((~is_tie).sum()),
    'widest_gap': widest if math.isfinite(widest) else None,
    'D': float(interval.value),
    'low': float(interval.low),
    'high': float(interval.high),
  }


def table_text(table: Sequence[Mapping]) -> str:
  """Returns the table, a line a way of decoding."""
  counts = ('capacity', 'batch_size', 'prompts', 'tokens', 'partings')
  counts = (*counts, 'failures')
  head = f'{"drafter":<22}{"temperature":>11}'
  lines = [head + ''.join(f'{name:>11}' for name in counts) + f'{"D":>20}']
  for row in table:
    line = f'{row["drafter"]:<22}{row["temperature"]:>11g}'
    line += ''.join(f'{row[name]:>11}' for name in counts)
    interval = f'{row["D"]:.2f} [{row["low"]:.2f}, {row["high"]:.2f}]'
    lines.append(f'{line}{interval:>20}')
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
  widest = max(row['widest_gap'] for row in table)
  return (
    f'{text}; they parted at {total("partings")} ties, the widest of '
    f'{widest:.1e}, and agreed again behind each of them.'
  )


if __name__ == '__main__':
  draft_flags.define('temperatures', 'trees', 'skipped_layers')
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
