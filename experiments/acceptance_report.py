"""What a record of `acceptance` says: a figure, tables and sentences."""

import pathlib
from collections.abc import Mapping, Sequence

import matplotlib.figure

from experiments import curves, figure_files, recipes, report
from experiments import study as study_lib
from specjax import plotting

# Curves of a panel at most, beside the oracle and the limits.
_MOST_CURVES = 8

_LOOKS = (
  ('tab:blue', 'o'),
  ('tab:orange', 's'),
  ('tab:green', '^'),
  ('tab:purple', 'v'),
  ('tab:brown', 'X'),
  ('tab:pink', 'P'),
  ('tab:cyan', '*'),
  ('tab:olive', 'd'),
)
# Who draws drafts is told by the line, for it is no deterministic tree.
_LINES = {
  'match': '-',
  'with_replacement': ':',
  'without_replacement': '--',
  'block': '-.',
}
_ORACLE = plotting.Style("the oracle's own run", 'black', '--', 'D')
_LIMITS = {
  'run_context': plotting.Style(
    'limit of runs, from whole laws', 'tab:red', '-', '', False
  ),
  'run_priced': plotting.Style(
    'limit of runs, from best trees', 'tab:red', '--', '', False
  ),
}


def show(record: Mapping, folder: pathlib.Path) -> None:
  """Draws the figure of a run and prints its tables and sentences.

  Args:
    record: of `acceptance`.
    folder: of the run; figure.png and figure.pdf are written there.
  """
  paragraphs = []
  for temperature in record['flags']['temperatures']:
    table = report.table_text(record | {'table': at(record, temperature)})
    paragraphs += [
      f'temperature {temperature:g}:\n{table}',
      sentence(record, temperature),
    ]
  paragraphs.append(report.verdict(record))
  figure_files.show(draw(record), folder, *paragraphs)


def at(record: Mapping, temperature: float) -> list[Mapping]:
  """Returns the rows of the table at a temperature."""
  return [r for r in record['table'] if r['temperature'] == temperature]


def draw(record: Mapping) -> matplotlib.figure.Figure:
  """Draws `D` against capacity, a column of panels for each temperature.

  Above each drafter with the tree and rule that served it best, under what the
  best trees win; below the trees and rules of one drafter.

  Args:
    record: of `acceptance`.
  """
  temperatures = record['flags']['temperatures']
  detailed = _most_varied(record)
  figure = matplotlib.figure.Figure(
    figsize=(6.5 * len(temperatures), 8.5), layout='constrained'
  )
  panels = figure.subplots(2, len(temperatures), squeeze=False)
  for column, temperature in enumerate(temperatures):
    table = at(record, temperature)
    limits = {name: _LIMITS[name] for name in _LIMITS if _has(table, name)}
    # Where no limit says anything the oracle knows the text and wins all of it.
    behind = {study_lib.ORACLE_RUN: _ORACLE, **limits} if limits else {}
    _panel(
      panels[0, column],
      table,
      _styles(record, _best_of_each(record, table)) | behind,
      f'temperature {temperature:g}: drafters, each at its best',
    )
    _panel(
      panels[1, column],
      table,
      _styles(record, _falling(table, detailed)[:_MOST_CURVES]),
      f'temperature {temperature:g}: trees and rules of '
      f'{record["recipes"][detailed[0]]["drafter"]}',
    )
  model = pathlib.Path(record['flags']['model']).name
  figure.suptitle(f'{model}: what drafters, trees and rules win')
  return figure


def sentence(record: Mapping, temperature: float) -> str:
  """Says which drafter and tree win at each capacity, and how far they get.

  Args:
    record: of `acceptance`.
    temperature: one of the record's.
  """
  table = at(record, temperature)
  methods = [
    name
    for name, recipe in record['recipes'].items()
    if recipe['drafter'] not in recipes.YARDSTICKS
  ]
  methods = _falling(table, methods)
  if not methods:
    return 'No drafter was run but those that are there to measure with.'
  parts = []
  for capacity in record['flags']['capacities']:
    row = lambda name, n=capacity: curves.find(table, name, n)
    best = max(methods, key=lambda name: row(name)['D'])
    oracle = row(study_lib.ORACLE_RUN)
    parts.append(
      f'at N = {capacity} {best} wins most, {report.cell(row(best))} tokens '
      f'an iteration, where the oracle wins {report.cell(oracle)}: '
      f'{report.share(row(best), oracle)} of what that wins over plain decoding'
    )
  return f'Temperature {temperature:g}: {"; ".join(parts)}.'


def _panel(axes, table, styles, title):
  """Draws curves in a frame as high as they need."""
  plotting.tokens_against_capacity(axes, table, styles)
  tops = [
    row['high' if styles[row['curve']].has_band else 'D']
    for row in table
    if row['curve'] in styles
  ]
  axes.set_ylim(0.9, 1.1 * max(tops))
  axes.set_title(title, fontsize=10)
  axes.legend(fontsize=8)


def _has(table, curve):
  return any(row['curve'] == curve for row in table)


def _styles(record, names):
  """Styles of runs: who draws is told by its line, the rest by its look."""
  styles = {}
  for place, name in enumerate(names):
    colour, marker = _LOOKS[place % len(_LOOKS)]
    line = _LINES[record['recipes'][name]['rule']]
    styles[name] = plotting.Style(name, colour, line, marker, has_band=False)
  return styles


def _falling(table: Sequence[Mapping], names: Sequence[str]) -> list[str]:
  """Returns those names that the table has, the best in the mean first."""
  sums = {
    name: sum(row['D'] for row in table if row['curve'] == name)
    for name in names
  }
  return sorted(filter(sums.get, sums), key=lambda name: -sums[name])


def _groups(record):
  """Returns the recipes' names by drafter."""
  groups = {}
  for name, recipe in record['recipes'].items():
    groups.setdefault(recipe['drafter'], []).append(name)
  return groups


def _best_of_each(record, table):
  """Returns the best recipe of every drafter."""
  return [_falling(table, names)[0] for names in _groups(record).values()]


def _most_varied(record):
  """Returns the recipes of the drafter that has most of them."""
  return max(_groups(record).values(), key=len)
