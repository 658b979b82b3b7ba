"""What a record of `entropy_profile` says: tables and advice in words."""

import pathlib
from collections.abc import Mapping

from experiments import curves, figure_files, report
from experiments.profile import figure as profile_figure
from experiments.profile import tables as profile_tables

# The bound on runs whose gains are told.
_LIMIT = 'run_context'

_MOMENTS = {'mu': 'mu (nats)', 'mu2': 'mu2 (nats squared)'}

# Characters of the columns of tables.
_NAME, _CELL = 22, 22


def show(record: Mapping, folder: pathlib.Path) -> None:
  """Draws the figure of a run and prints its tables and its advice.

  Args:
    record: of `entropy_profile`.
    folder: of the run; figure.png and figure.pdf are written there.
  """
  gains = report.table_text({**record, 'table': record['gains']})
  figure_files.show(
    profile_figure.draw(record),
    folder,
    *(kinds_text(record, moment) for moment in _MOMENTS),
    contexts_text(record),
    report.table_text(record),
    f'Added to {_LIMIT} of {record["sampled"][0]}, in\n{gains}',
    advice(record),
  )


def kinds_text(record: Mapping, moment: str) -> str:
  """Returns a table of `mu` or `mu2`: a line a setting, a column a kind."""
  kinds = dict.fromkeys(row['kind'] for row in record['moments'])
  lines = [
    f'{_MOMENTS[moment]} of texts by kind of prompt, 95 % over prompts',
    _line('', [kind or 'all' for kind in kinds]),
  ]
  for name in record['sampled']:
    rows = [
      profile_tables.find(record, name, 'own', moment, kind) for kind in kinds
    ]
    lines.append(_line(name, map(report.cell, rows)))
  return '\n'.join(lines)


def contexts_text(record: Mapping) -> str:
  """Returns a table of moments at the base's contexts and at a setting's own.

  A line a setting; those without texts of their own have `-` there.
  """
  base = record['sampled'][0]
  columns = [(m, c) for m in _MOMENTS for c in (base, 'own')]
  lines = [
    f'moments of laws at the contexts of {base}, and along texts of their own',
    _line('', [f'{moment}, {contexts}' for moment, contexts in columns]),
  ]
  for name in record['grid']:
    rows = [profile_tables.find(record, name, c, m) for m, c in columns]
    cells = ['-' if row is None else report.cell(row) for row in rows]
    lines.append(_line(name, cells))
  return '\n'.join(lines)


def advice(record: Mapping) -> str:
  """Says in words what each change of the setting wins, and in which way."""
  base, capacity = record['sampled'][0], record['flags']['capacities'][-1]
  sentences = [
    f'At capacity {capacity} runs under {base} are limited to '
    f'{report.cell(_limit(record, base, capacity))} tokens an iteration.'
  ]
  gains = [row for row in record['gains'] if row['capacity'] == capacity]
  gains.sort(key=lambda row: row['D'], reverse=True)
  if gains:
    added = [f'{row["curve"]} adds {report.cell(row)}' for row in gains]
    sentences += [f'To that {", ".join(added)}.', _of_sure(record, gains)]
  if record['vacuous']:
    sentences.append(f'No entropy is left by {", ".join(record["vacuous"])}.')
  sentences.append(
    'At temperature 0 the sampled law is degenerate: mu is 0, and limits of '
    'this kind say nothing.'
  )
  return ' '.join(sentences)


def _of_sure(record, gains):
  """Advises the first change that is sure to add anything, if there is one."""
  gain = next((row for row in gains if row['low'] > 0), None)
  if gain is None:
    return 'None is sure to add anything.'
  base, name, capacity = record['sampled'][0], gain['curve'], gain['capacity']
  limit = _limit(record, base, capacity)['D']
  enough = next(
    size
    for size in record['flags']['capacities']
    if _limit(record, name, size)['D'] >= limit
  )
  before, after = (
    report.cell(profile_tables.find(record, setting, base, 'mu'))
    for setting in (base, name)
  )
  drift = next(r for r in record['drifts'] if r['setting'] == name)
  return (
    f'So, where another law will do, sample under {name}: at capacity '
    f'{enough} its limit is that of {base} at {capacity}, or more. It takes mu '
    f'from {before} to {after} nats at the same contexts; along its own texts, '
    f'which visit others, mu differs from that by {report.cell(drift)}.'
  )


def _limit(record, setting, capacity):
  return curves.find(record['table'], f'{_LIMIT}({setting})', capacity)


def _line(name, cells):
  return f'{name:<{_NAME}}' + ''.join(f'{cell:>{_CELL}}' for cell in cells)
