"""What a record of `study_cost` says: a table and sentences."""

import collections
import math
from collections.abc import Mapping, Sequence

from experiments import records
from experiments.planning import study_flags, study_passes

NOTES = """\
Passes are counted at most: each output is as long as it may be, each tree of
the oracle takes N - 1 passes, no draft is accepted.  What is no pass of a model
is left out: drawing tokens, sums over laws, loading and compiling."""


def title(record: Mapping) -> str:
  """Says what the forecast is made of."""
  flags = record['flags']
  return (
    f'FORECAST of {flags["grid"]}: hours of {flags["num_chips"]} x '
    f'{record["chip"]} by data sheets, which no program reaches; '
    f'{flags["prompts_per_set"]} prompts a data set, {flags["context"]} tokens '
    'of context.'
  )


def table_text(record: Mapping) -> str:
  """Returns hours and dollars by model and experiment, in Markdown."""
  table = record['table']
  names = [
    name
    for name in study_flags.DEFAULTS
    if any(row['experiment'] == name for row in table)
  ]
  models = list(dict.fromkeys(row['model'] for row in table))
  lines = [
    f'| model | {" | ".join(names)} | all |',
    '|---' * (len(names) + 2) + '|',
  ]
  for head, of_model in [
    *((model, records.select(table, model=model)) for model in models),
    ('all', table),
  ]:
    cells = [records.select(of_model, experiment=name) for name in names]
    words = ' | '.join(map(sum_text, [*cells, of_model]))
    lines.append(f'| {head} | {words} |')
  return '\n'.join(lines)


def sentence(record: Mapping) -> str:
  """Says where the hours go, what is left out, and what has no forecast."""
  table = record['table']
  spent = {
    kind: math.fsum(row['seconds'][kind] for row in table)
    for kind in study_passes.KINDS
  }
  whole = math.fsum(spent.values())
  shares = ', '.join(
    f'{kind} {seconds / whole:.0%}'
    for kind, seconds in sorted(spent.items(), key=lambda item: -item[1])
  )
  said = [f'{len(table)} runs: {sum_text(table)}; of the hours, {shares}.']
  if record['left_out']:
    counts = collections.Counter(record['left_out'])
    said.append(f'Left out, taken to be small: {_runs_text(counts)}.')
  if record['unknown']:
    counts = collections.Counter(row['model'] for row in record['unknown'])
    said.append(
      f'No forecast for models without a preset: {_runs_text(counts)}.'
    )
  if crowded := [row['model'] for row in table if not row['is_room']]:
    said.append(
      'No room where a prompt is so long that --max_length is reached, since '
      'all batches are held: '
      f'{_runs_text(collections.Counter(crowded))}.'
    )
  return '\n'.join(said)


def sum_text(rows: Sequence[Mapping]) -> str:
  """Returns hours and dollars of runs.

  Args:
    rows: of the table.
  """
  if not rows:
    return '-'
  add = lambda name: math.fsum(row[name] for row in rows)
  hours = add('hours')
  return f'{hours:{".2g" if hours < 1 else ".1f"}} h, ${add("dollars"):.0f}'


def _runs_text(counts):
  return ', '.join(
    f'{name} ({count} run{"s" if count > 1 else ""})'
    for name, count in counts.items()
  )
