"""What a record of `speedup` says: a figure, tables and sentences."""

import pathlib
from collections.abc import Mapping, Sequence

import matplotlib.figure
import numpy as np

from experiments import figure_files, text_tables
from experiments.speed import ratios
from specjax.theory import planner

# A drafter each; capacities fill the mark more and more.
_LOOKS = (
  ('tab:blue', 'o'),
  ('tab:orange', 's'),
  ('tab:green', '^'),
  ('tab:purple', 'D'),
  ('tab:brown', 'v'),
  ('tab:red', 'P'),
)
_FILLS = ('none', 'bottom', 'full', 'left', 'top', 'right')

# Predictions so near are right.
_NEAR = 0.10


def show(record: Mapping, folder: pathlib.Path) -> None:
  """Draws the figure of a run and prints its tables and its sentences.

  Args:
    record: of `speedup`.
    folder: of the run; figure.png and figure.pdf are written there.
  """
  paragraphs = []
  for temperature in record['flags']['temperatures']:
    here = at(record, temperature)
    paragraphs += [
      f'temperature {temperature:g}: times plain decoding\n{table_text(here)}',
      *filter(None, [forecast_text(here), beside_text(here)]),
      ' '.join(
        filter(None, [sentence(here), verdict(here), forecast_words(here)])
      ),
    ]
  figure_files.show(draw(record), folder, *paragraphs)


def at(record: Mapping, temperature: float) -> dict:
  """Returns the record, as far as it is of one temperature.

  Args:
    record: of `speedup`.
    temperature: one of the record's.
  """
  kept = {
    name: [row for row in record[name] if row['temperature'] == temperature]
    for name in ('table', 'beside', 'checks')
  }
  return {**record, **kept}


def table_text(record: Mapping) -> str:
  """Returns the speed-ups, a line a way; of plain decoding tokens a second.

  The last column is that of all kinds with the reading of prompts.

  Args:
    record: of one temperature.
  """
  kinds = _kinds(record)
  lines = [['way', 'N', *kinds, f'{ratios.ALL}, prompts read']]
  for way in _ways(record):
    rows = [_find(record, way, kind) for kind in kinds]
    is_plain = way[0] == planner.PLAIN
    cells = [
      _cell(row['rate'], '.1f') if is_plain else _cell(row['speedup'])
      for row in rows
    ]
    whole = '' if is_plain else _cell(_find(record, way, ratios.ALL)['whole'])
    name = 'plain, tokens/s' if is_plain else way[0]
    lines.append([name, str(way[1]), *cells, whole])
  return text_tables.aligned(lines)


def forecast_text(record: Mapping) -> str:
  """Returns predicted beside measured speed-ups, '' without predictions.

  Args:
    record: of one temperature.
  """
  rows = [row for row in _predicted(record) if row['name'] != planner.PLAIN]
  lines = [['way', 'N', 'kinds', 'D', 'predicted', 'measured', 'off by']]
  lines += [
    [
      row['name'],
      str(row['capacity']),
      row['kind'],
      f'{row["D"]:.2f}',
      _cell(row['predicted']),
      _cell(row['speedup']),
      f'{_error(row):+.1%}',
    ]
    for row in rows
    if row['kind'] in (ratios.ALL, ratios.LONG)
  ]
  return text_tables.aligned(lines) if rows else ''


def beside_text(record: Mapping) -> str:
  """Returns our ways beside those of another library, '' without any.

  Args:
    record: of one temperature.
  """
  rows = record['beside']
  kinds = _kinds(record)
  lines = [['whole generations, prompts read', 'N', *kinds]]
  for other in dict.fromkeys(row['other'] for row in rows):
    of_other = [row for row in rows if row['other'] == other]
    rates = [
      next(_cell(row['rate'], '.1f') for row in of_other if row['kind'] == kind)
      for kind in kinds
    ]
    lines.append([f'{other}, tokens/s', '', *rates])
    for name, capacity in _ways(record):
      ratio = {
        row['kind']: _cell(row['ratio'])
        for row in of_other
        if (row['name'], row['capacity']) == (name, capacity)
      }
      cells = [ratio[kind] for kind in kinds]
      lines.append([f'  {name} over it', str(capacity), *cells])
  return text_tables.aligned(lines) if rows else ''


def sentence(record: Mapping) -> str:
  """Says which fixed choice is fastest, over all and with long prompts.

  Args:
    record: of one temperature.
  """
  kinds = len(_kinds(record)) - 1 - bool(record['long_kinds'])
  best = _best(record, ratios.ALL)
  text = (
    f'Over all {kinds} kinds of prompts {_way_words(best)} is fastest, '
    f'{_cell(best["speedup"])} times plain decoding (geometric mean)'
  )
  if record['long_kinds']:
    best = _best(record, ratios.LONG)
    text += (
      f'; with long prompts ({", ".join(record["long_kinds"])}) '
      f'{_way_words(best)}, {_cell(best["speedup"])} times'
    )
  return f'{text}.'


def verdict(record: Mapping) -> str:
  """Says whether the texts are those of plain decoding.

  Args:
    record: of one temperature.
  """
  checks = record['checks']
  total = lambda name: sum(row[name] for row in checks)
  if total('failures'):
    names = [_way_words(row) for row in checks if row['failures']]
    return (
      f'FAILURE: {total("failures")} texts part from those of plain decoding '
      f'where no tie excuses it, with {", ".join(names)}.'
    )
  text = f'All {total("tokens")} tokens are those of plain decoding'
  if not total('partings'):
    return f'{text}.'
  widest = max(row['widest_gap'] for row in checks)
  return f'{text} but at {total("partings")} ties, the widest of {widest:.1e}.'


def forecast_words(record: Mapping) -> str:
  """Says how well the planner did, '' if it was not asked.

  Args:
    record: of one temperature.
  """
  rows = [row for row in _predicted(record) if row['kind'] == ratios.ALL]
  drafted = [row for row in rows if row['name'] != planner.PLAIN]
  if not drafted:
    return ''
  near = sum(abs(_error(row)) <= _NEAR for row in drafted)
  chosen = max(rows, key=lambda row: row['predicted'][0])
  share = chosen['speedup'][0] / _best(record, ratios.ALL)['speedup'][0]
  return (
    f'The planner is within {_NEAR:.0%} for {near} of {len(drafted)} choices; '
    f'it chooses {_way_words(chosen)}, which reaches {share:.1%} of the '
    'fastest.'
  )


def draw(record: Mapping) -> matplotlib.figure.Figure:
  """Draws speed-ups by kind, a panel a temperature and a mark a way.

  Args:
    record: of `speedup`.
  """
  temperatures = record['flags']['temperatures']
  figure = matplotlib.figure.Figure(
    figsize=(11, 1.4 + 4 * len(temperatures)), layout='constrained'
  )
  panels = figure.subplots(len(temperatures), 1, squeeze=False)[:, 0]
  for axes, temperature in zip(panels, temperatures, strict=True):
    _panel(axes, at(record, temperature))
    if len(temperatures) > 1:
      axes.set_title(f'temperature {temperature:g}', fontsize=10)
  handles, labels = panels[0].get_legend_handles_labels()
  figure.legend(handles, labels, loc='outside right upper', fontsize=8)
  flags = record['flags']
  figure.suptitle(
    f'{pathlib.Path(flags["model"]).name}, {flags["dtype"]}, '
    f'{record["device"]["kind"]}: speed over plain decoding '
    f'(medians of {flags["rounds"]} pairs, 95 %)',
    fontsize=11,
  )
  return figure


def _panel(axes, record):
  """Draws the ways of every group side by side, in the order of the legend."""
  kinds = _kinds(record)
  ways = [way for way in _ways(record) if way[0] != planner.PLAIN]
  names = list(dict.fromkeys(name for name, _ in ways))
  sizes = sorted({capacity for _, capacity in ways})
  for place, way in enumerate(ways):
    colour, marker = _LOOKS[names.index(way[0]) % len(_LOOKS)]
    speedups = [_find(record, way, kind)['speedup'] for kind in kinds]
    value, low, high = np.array(speedups).T
    axes.errorbar(
      np.arange(len(kinds)) + 0.8 * ((place + 0.5) / len(ways) - 0.5),
      value,
      [value - low, high - value],
      linestyle='none',
      marker=marker,
      fillstyle=_FILLS[sizes.index(way[1]) % len(_FILLS)],
      markerfacecoloralt='white',
      color=colour,
      markersize=6,
      elinewidth=1,
      capsize=2,
      label=_way_words({'name': way[0], 'capacity': way[1]}),
    )
  axes.axhline(1, color='black', linewidth=1, linestyle='--')
  for edge in range(1, len(kinds)):
    is_mean = kinds[edge] == ratios.ALL
    axes.axvline(
      edge - 0.5, color='black' if is_mean else '0.85', linewidth=0.8
    )
  axes.set_xticks(range(len(kinds)), [_kind_words(record, k) for k in kinds])
  axes.set_xlim(-0.5, len(kinds) - 0.5)
  axes.set_ylabel('tokens a second, times plain decoding')
  axes.grid(color='0.92', axis='y')
  axes.set_axisbelow(True)


def _kind_words(record, kind):
  if kind in (ratios.ALL, ratios.LONG):
    return f'{kind},\ngeometric\nmean'
  return f'{kind}\n(long)' if kind in record['long_kinds'] else kind


def _way_words(row):
  name, capacity = row['name'], row['capacity']
  is_plain = name == planner.PLAIN
  return 'plain decoding' if is_plain else f'{name} at N = {capacity}'


def _kinds(record) -> list[str]:
  return list(dict.fromkeys(row['kind'] for row in record['table']))


def _ways(record) -> list[tuple[str, int]]:
  found = ((row['name'], row['capacity']) for row in record['table'])
  return list(dict.fromkeys(found))


def _find(record, way, kind):
  return next(
    row
    for row in record['table']
    if (row['name'], row['capacity'], row['kind']) == (*way, kind)
  )


def _best(record, kind):
  rows = [row for row in record['table'] if row['kind'] == kind]
  return max(rows, key=lambda row: row['speedup'][0])


def _predicted(record) -> Sequence[Mapping]:
  return [row for row in record['table'] if row.get('predicted')]


def _error(row):
  """By how much a prediction is too high, as a share."""
  return row['predicted'][0] / row['speedup'][0] - 1


def _cell(interval, form='.2f'):
  value, low, high = (format(x, form) for x in interval)
  return f'{value} [{low}, {high}]'
