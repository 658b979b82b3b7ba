"""What a record of `plan` says: a figure, a table and sentences."""

import itertools
import pathlib
from collections.abc import Mapping, Sequence

import matplotlib.figure
import matplotlib.patches
import numpy as np

from experiments import figure_files
from specjax.theory import planner

_MOST_COLUMNS = 4
# So dark that black letters can be read.
_DARKEST = 0.55


def show(record: Mapping, folder: pathlib.Path) -> None:
  """Draws the figure of a run and prints its table and its sentences.

  Args:
    record: of `plan`.
    folder: of the run; figure.png and figure.pdf are written there.
  """
  figure_files.show(
    draw(record), folder, title(record), table_text(record), sentence(record)
  )


def title(record: Mapping) -> str:
  """Says what the plans are made of, and whether they are a forecast."""
  context = record['flags']['context']
  times = (
    'FORECAST: pass times by data sheets, which no program reaches'
    if record['table'][0]['is_forecast']
    else 'Pass times as measured'
  )
  return f'{times}; {record["basis"]}; {context} tokens of context.'


def table_text(record: Mapping) -> str:
  """Returns the plans as a table in Markdown."""
  head = (
    '| model | machine | batch | best | N | D | tokens/s | times plain '
    '| ceiling, tokens/s | $ per million, plain | $ per million |'
  )
  lines = [head, '|---' * 11 + '|']
  for row in record['table']:
    cells = [
      row['model'],
      row['machine'],
      str(row['batch']),
      row['name'],
      str(row['capacity']),
      f'{row["D"]:.2f}',
      _cell(row['rate'], '.0f'),
      _cell(row['speedup'], '.2f'),
      _or_dash(row['ceiling'], '.0f'),
      _or_dash(row['plain_price'], '.2f'),
      _or_dash(row['price'], '.2f'),
    ]
    lines.append(f'| {" | ".join(cells)} |')
  return '\n'.join(lines)


def sentence(record: Mapping) -> str:
  """Says for every model where drafting wins most, and what is cheapest."""
  said = []
  for model in _distinct(record['table'], 'model'):
    rows = [row for row in record['table'] if row['model'] == model]
    fastest = max(rows, key=lambda row: row['speedup'][0])
    text = (
      f'{model}: drafting wins most on {_place(fastest)}, '
      f'{fastest["speedup"][0]:.2f} times plain decoding with {_what(fastest)}'
      if fastest['name'] != planner.PLAIN
      else f'{model}: drafting pays nowhere'
    )
    priced = [row for row in rows if row['price'] is not None]
    if priced:
      cheapest = min(priced, key=lambda row: row['price'])
      text += (
        f'; a million tokens cost least on {_place(cheapest)}, '
        f'${cheapest["price"]:.2f} with {_what(cheapest)}'
      )
    said.append(f'{text}.')
  said += [
    f'No plan for {row["model"]} on {_place(row)}: '
    + ('no room.' if record['table'][0]['is_forecast'] else 'not measured.')
    for row in record['left_out']
  ]
  return '\n'.join(said)


def draw(record: Mapping) -> matplotlib.figure.Figure:
  """Draws tokens a second by batch and nodes, a panel a model and machine."""
  surface = record['surface']
  models = _distinct(surface, 'model')
  machines = _distinct(surface, 'machine')
  pairs = [
    pair for pair in itertools.product(models, machines) if _of(surface, *pair)
  ]
  num_columns = min(len(pairs), _MOST_COLUMNS)
  num_rows = -(-len(pairs) // num_columns)
  figure = matplotlib.figure.Figure(
    figsize=(max(6.5, 4 * num_columns), 1.2 + 3.6 * num_rows),
    layout='constrained',
  )
  panels = figure.subplots(num_rows, num_columns, squeeze=False)
  for axes in panels.flat[len(pairs) :]:
    axes.axis('off')
  for axes, (model, machine) in zip(panels.flat, pairs, strict=False):
    _panel(axes, _of(surface, model, machine))
    axes.set_title(f'{model} on {machine}', fontsize=10)
  for axes in panels[:, 0]:
    axes.set_ylabel('batch (rows of a pass)')
  for axes in panels[-1]:
    axes.set_xlabel('capacity N (tokens of a row in one pass)')
  forecast = 'Forecast: ' if record['table'][0]['is_forecast'] else ''
  figure.suptitle(
    f'{forecast}speed over plain decoding of the same batch; darker is more '
    'tokens a second; the frame is the best N of a batch',
    fontsize=11,
    wrap=True,
  )
  return figure


def _panel(axes, rows):
  """Writes the speed-up into every cell, and frames the best of a batch."""
  sizes, batches = (_distinct(rows, name) for name in ('capacity', 'batch'))
  logs = np.full((len(batches), len(sizes)), np.nan)
  for row in rows:
    place = batches.index(row['batch']), sizes.index(row['capacity'])
    logs[place] = np.log(row['rate'])
    axes.text(
      *place[::-1],
      f'{row["speedup"]:.2f}',
      ha='center',
      va='center',
      fontsize=7,
      fontweight='bold' if row['is_best'] else 'normal',
    )
    if row['is_best']:
      corner = (place[1] - 0.46, place[0] - 0.46)
      frame = matplotlib.patches.Rectangle(
        corner, 0.92, 0.92, fill=False, linewidth=1.6
      )
      axes.add_patch(frame)
  low, high = np.nanmin(logs), np.nanmax(logs)
  axes.imshow(
    logs,
    origin='lower',
    aspect='auto',
    cmap='Greys',
    vmin=low,
    vmax=low + max(high - low, 1e-9) / _DARKEST,
  )
  axes.set_xticks(range(len(sizes)), sizes)
  axes.set_yticks(range(len(batches)), batches)


def _of(rows, model, machine):
  return [r for r in rows if (r['model'], r['machine']) == (model, machine)]


def _distinct(rows: Sequence[Mapping], name: str) -> list:
  """The values of a column; numbers rise, names are in order of appearance."""
  values = list(dict.fromkeys(row[name] for row in rows))
  return sorted(values) if isinstance(values[0], int) else values


def _cell(interval, form):
  value, low, high = (format(x, form) for x in interval)
  return value if low == value == high else f'{value} [{low}, {high}]'


def _or_dash(value, form):
  return '-' if value is None else format(value, form)


def _place(row):
  return f'{row["machine"]} with batch {row["batch"]}'


def _what(row):
  return f'{row["name"]} at N = {row["capacity"]}'
