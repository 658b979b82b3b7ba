"""What a record of `evaluate_drafter` says: a figure, tables and sentences."""

import pathlib
from collections.abc import Mapping

from experiments import curves, figure_files, records
from experiments import report as report_lib
from experiments.evaluation import figure as figure_lib
from experiments.evaluation import one_temperature

_MOMENTS = {
  'mean': 'E_p[-log q] (nats)',
  'divergence': 'KL(p || q) (nats)',
  'missed': 'share of p that q cannot draft',
}
_SLOPES = ('predicted', 'measured', 'difference')


def show(record: Mapping, folder: pathlib.Path) -> None:
  """Draws the figure of a run and prints its tables and sentences.

  Args:
    record: of `evaluate_drafter`.
    folder: of the run; figure.png and figure.pdf are written there.
  """
  paragraphs = [
    f'temperature {temperature:g}:\n{text(record, temperature)}'
    for temperature in record['flags']['temperatures']
  ]
  if not record['has_law']:
    paragraphs.append(
      f'{record["drafter"]} is no model and has no law: nothing is said of its '
      'KL, its reliability or the slope that they would predict.'
    )
  figure_files.show(figure_lib.draw(record), folder, *paragraphs)


def text(record: Mapping, temperature: float) -> str:
  """Returns the tables and sentences of a temperature.

  Args:
    record: of `evaluate_drafter`.
    temperature: one of the record's.
  """
  at = {
    name: records.select(rows, temperature=temperature)
    for name, rows in record.items()
    if isinstance(rows, list)
  }
  total = records.select(at['table'], kind=None)
  return '\n'.join(
    [
      report_lib.table_text(record | {'table': total}),
      *_kinds(at['table'], record),
      *_depths(at['depths'], record),
      *_reliability(at['reliability']),
      *(_law(at, name) for name in _names(at['slopes'])),
    ]
  )


def _kinds(table, record):
  """A line for each kind of prompt, at the largest capacity."""
  capacity = record['flags']['capacities'][-1]
  for kind in filter(None, dict.fromkeys(row['kind'] for row in table)):
    rows = records.select(table, kind=kind)
    cells = [
      f'{name} {report_lib.cell(curves.find(rows, name, capacity))}'
      for name in one_temperature.shown(record['drafter'])
    ]
    yield f'{kind}, N = {capacity}: {", ".join(cells)}'


def _depths(rows, record):
  """A line for each drafter: the shares accepted from depth 1 on."""
  capacity = record['flags']['capacities'][-1]
  for name in _names(rows):
    shares = ', '.join(
      f'{report_lib.cell(row)} of {row["tokens"]}'
      for row in records.select(rows, curve=name)
    )
    yield f'drafts at depth 1, 2, ..., N = {capacity}: {name} {shares} tokens'


def _reliability(rows):
  """A line for each drafter: what was said, and what came."""
  for name in _names(rows):
    bins = ', '.join(
      f'{row["said"]:.3f} {report_lib.cell(row, 3)} of {row["count"]}'
      for row in records.select(rows, curve=name)
    )
    yield f'probability said, share that came next: {name} {bins}'


def _law(at, name):
  """Says how far a drafter's law is from the verifier's, and what it wins."""
  moments = {
    row['moment']: row for row in records.select(at['moments'], curve=name)
  }
  slopes = {
    row['slope']: row for row in records.select(at['slopes'], curve=name)
  }
  said = [
    f'{words} {report_lib.cell(moments[k])}' for k, words in _MOMENTS.items()
  ]
  told = [f'{k} {report_lib.cell(slopes[k])}' for k in _SLOPES]
  return (
    f'{name}: {", ".join(said)}; slope of D in log N, tokens per nat: '
    f'{", ".join(told)}'
  )


def _names(rows):
  return list(dict.fromkeys(row['curve'] for row in rows))
