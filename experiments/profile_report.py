"""What a record of `entropy_profile` says: figure, tables and advice."""

import itertools
import pathlib
from collections.abc import Mapping

import matplotlib.figure

from experiments import curves, figure_files, report
from specjax import plotting

# Colours, lines and markers of the sampled settings, in turn.
_LOOKS = (
  ('black', '-', 'o'),
  ('tab:blue', '--', 's'),
  ('tab:green', '-.', '^'),
  ('tab:purple', ':', 'D'),
  ('tab:red', '-', 'x'),
  ('tab:orange', '--', 'v'),
  ('tab:brown', '-.', 'P'),
)
_MOMENTS = {
  'mu': 'mean entropy mu (nats)',
  'mu2': 'mean squared surprisal mu2 (nats²)',
}

# The limit whose gains are told.
_LIMIT = 'run_context'

# Characters of the columns of the tables.
_NAME, _CELL = 22, 20


def show(record: Mapping, folder: pathlib.Path) -> None:
  """Draws the figure of a run and prints its tables and its advice.

  Args:
    record: of `entropy_profile`.
    folder: of the run; figure.png and figure.pdf are written there.
  """
  figure_files.save(draw(record), folder / 'figure')
  for moment in _MOMENTS:
    print(kinds_text(record, moment), end='\n\n')
  print(contexts_text(record), end='\n\n')
  print(report.table_text(record), end='\n\n')
  print(f'What settings add to {_LIMIT} of {_base(record)}:')
  print(report.table_text({**record, 'table': record['gains']}), end='\n\n')
  print(advice(record))
  print(f'Figure: {folder / "figure.png"}')


def draw(record: Mapping) -> matplotlib.figure.Figure:
  """Draws moments by kind, position and contexts; limits and their gains."""
  figure = matplotlib.figure.Figure(figsize=(14, 8), layout='constrained')
  panels = figure.subplots(2, 3).ravel()
  _draw_kinds(panels[0], record, 'mu')
  _draw_kinds(panels[1], record, 'mu2')
  _draw_stretches(panels[2], record)
  _draw_contexts(panels[3], record)
  _draw_limits(panels[4], record)
  _draw_gains(panels[5], record)
  handles, labels = panels[4].get_legend_handles_labels()
  figure.legend(handles, labels, loc='outside lower center', ncols=len(labels))
  figure.suptitle(
    f'{pathlib.Path(record["flags"]["model"]).name}: entropy and limits by '
    'sampling setting (95 % over prompts)'
  )
  return figure


def kinds_text(record: Mapping, moment: str) -> str:
  """Returns a table of `mu` or `mu2`: a line a setting, a column a kind."""
  kinds = _kinds(record)
  lines = [
    f'{_MOMENTS[moment]} of texts sampled under a setting, 95 % over prompts',
    _line('', [kind or 'all' for kind in kinds]),
  ]
  for name in _sampled(record):
    cells = [_cell(_find(record, name, 'own', moment, kind)) for kind in kinds]
    lines.append(_line(name, cells))
  return '\n'.join(lines)


def contexts_text(record: Mapping) -> str:
  """Returns a table of the moments at the same and at own contexts."""
  base = _base(record)
  lines = [
    f'the laws of a setting at the contexts of {base}, and of its own texts',
    _line('', [f'{m}, {c}' for m in _MOMENTS for c in ('same', 'own')]),
  ]
  for name in _grid(record):
    rows = [
      _find(record, name, contexts, moment)
      for moment in _MOMENTS
      for contexts in (base, 'own')
    ]
    lines.append(_line(name, ['-' if r is None else _cell(r) for r in rows]))
  return '\n'.join(lines)


def advice(record: Mapping) -> str:
  """Says in words what each change of the setting wins, and by which way."""
  base, capacity = _base(record), record['flags']['capacities'][-1]
  text = (
    f'At capacity {capacity} runs under {base} are limited to '
    f'{_cell(_limit(record, base, capacity))} tokens an iteration.'
  )
  gains = [row for row in record['gains'] if row['capacity'] == capacity]
  if gains:
    gains.sort(key=lambda row: row['D'], reverse=True)
    added = ', '.join(f'{row["curve"]} adds {_cell(row)}' for row in gains)
    text += f' To that {added}. {_of_best(record, gains[0])}'
  if record['vacuous']:
    text += f' Without entropy: {", ".join(record["vacuous"])}.'
  return (
    f'{text} At temperature 0 the sampled law is degenerate: mu is 0, and '
    'limits of this kind say nothing.'
  )


def _of_best(record, gain):
  """Advises the change that adds the most, if it is sure to add anything."""
  base, name, capacity = _base(record), gain['curve'], gain['capacity']
  if gain['low'] <= 0:
    return 'None is sure to add anything.'
  limit = _limit(record, base, capacity)['D']
  enough = next(
    size
    for size in record['flags']['capacities']
    if _limit(record, name, size)['D'] >= limit
  )
  mu = lambda setting, contexts: _find(record, setting, contexts, 'mu')['value']
  before, same, after = mu(base, base), mu(name, base), mu(name, 'own')
  way = 'easier' if after < same else 'harder'
  return (
    f'So, where the use allows another law, sample under {name}: at capacity '
    f'{enough} its limit is what that of {base} is at {capacity}, or more. '
    f'The mean entropy falls from {before:.2f} to {same:.2f} nats at the same '
    f'contexts, and is {after:.2f} along its own texts, which visit {way} '
    'contexts.'
  )


def _draw_kinds(axes, record, moment):
  """Draws a moment of each kind of prompt, at each temperature."""
  kinds, names = _kinds(record), record['temperatures']
  for number, name in enumerate(names):
    shift = 0.15 * (number - (len(names) - 1) / 2)
    _draw_ends(
      axes,
      [place + shift for place in range(len(kinds))],
      [_find(record, name, 'own', moment, kind) for kind in kinds],
      _styles(record)[name]._replace(line='none'),
    )
  axes.set_xticks(
    range(len(kinds)), [kind or 'all' for kind in kinds], rotation=30
  )
  axes.set_ylabel(_MOMENTS[moment])
  axes.set_title('by kind of prompt', fontsize=10)


def _draw_stretches(axes, record):
  """Draws the mean entropy by position in the output, at each temperature."""
  for name in record['temperatures']:
    rows = [row for row in record['stretches'] if row['setting'] == name]
    middles = [(row['first'] + row['last']) / 2 for row in rows]
    _draw_ends(axes, middles, rows, _styles(record)[name])
  axes.set_xlabel('position in the output (tokens, from 1)')
  axes.set_ylabel(_MOMENTS['mu'])
  axes.set_title('by position', fontsize=10)


def _draw_contexts(axes, record):
  """Draws mu of every setting at the base's contexts and at its own."""
  names = _grid(record)
  looks = {
    _base(record): plotting.Style(
      f'at the contexts of {_base(record)}', 'black', 'none', 'o'
    ),
    'own': plotting.Style('at those of its own texts', 'tab:red', 'none', 'x'),
  }
  for contexts, style in looks.items():
    found = [_find(record, name, contexts, 'mu') for name in names]
    places = [place for place, row in enumerate(found) if row]
    rows = [row for row in found if row]
    shifted = [place + 0.3 * (contexts == 'own') for place in places]
    _draw_ends(axes, shifted, rows, style, is_upright=False)
  axes.set_yticks(range(len(names)), names, fontsize=8)
  axes.invert_yaxis()
  axes.legend(fontsize=8)
  axes.set_xlabel(_MOMENTS['mu'])
  axes.set_title('by setting', fontsize=10)


def _draw_limits(axes, record):
  """Draws the limit of runs under each setting against capacity."""
  styles = _styles(record)
  plotting.tokens_against_capacity(
    axes,
    record['table'],
    {f'{_LIMIT}({name})': style for name, style in styles.items()},
  )
  axes.set_title('limit of any run, from whole laws', fontsize=10)


def _draw_gains(axes, record):
  """Draws what each change adds to the limit, at the largest capacity."""
  capacity = record['flags']['capacities'][-1]
  rows = [
    {**row, 'value': row['D']}
    for row in record['gains']
    if row['capacity'] == capacity
  ]
  style = plotting.Style('', 'black', 'none', 'o')
  _draw_ends(axes, range(len(rows)), rows, style, is_upright=False)
  axes.set_yticks(range(len(rows)), [row['curve'] for row in rows])
  axes.invert_yaxis()
  axes.axvline(0, color='0.5', linewidth=1)
  axes.set_xlabel('tokens per iteration D')
  axes.set_title(
    f'added to the limit of {_base(record)} at N = {capacity}', fontsize=10
  )


def _draw_ends(axes, places, rows, style, is_upright=True):
  """Draws rows with their intervals, at places of the other axis."""
  value = [_value(row) for row in rows]
  # A single prompt has no interval.
  spread = [
    [
      0.0 if row[end] is None else abs(row[end] - middle)
      for row, middle in zip(rows, value, strict=True)
    ]
    for end in ('low', 'high')
  ]
  x, y, spread_name = (
    (places, value, 'yerr') if is_upright else (value, places, 'xerr')
  )
  axes.errorbar(
    x,
    y,
    **{spread_name: spread},
    color=style.colour,
    linestyle=style.line,
    marker=style.marker,
    label=style.label,
    markersize=5,
    markerfacecolor='none',
    elinewidth=0.8,
  )
  axes.grid(color='0.9')
  axes.set_axisbelow(True)


def _styles(record):
  """Returns the style of each sampled setting."""
  return {
    name: plotting.Style(name, *look, has_band=name == _base(record))
    for name, look in zip(_sampled(record), itertools.cycle(_LOOKS))
  }


def _base(record):
  return record['temperatures'][0]


def _sampled(record):
  return [*record['temperatures'], *record['cuts'][1:]]


def _grid(record):
  """Returns the settings that have moments, in their order."""
  at_base = (r for r in record['moments'] if r['contexts'] == _base(record))
  return list(dict.fromkeys(row['setting'] for row in at_base))


def _kinds(record):
  """Returns the kinds of prompts; None, for all, is the first."""
  return list(dict.fromkeys(row['kind'] for row in record['moments']))


def _find(record, setting, contexts, moment, kind=None):
  """Returns a row of the moments; None for a setting without own texts."""
  wanted = (setting, contexts, moment, kind)
  keys = ('setting', 'contexts', 'moment', 'kind')
  return next(
    (r for r in record['moments'] if tuple(r[k] for k in keys) == wanted), None
  )


def _limit(record, setting, capacity):
  return curves.find(record['table'], f'{_LIMIT}({setting})', capacity)


def _value(row):
  return row['D'] if 'D' in row else row['value']


def _cell(row):
  if row['low'] is None or row['high'] is None:
    return f'{_value(row):.2f}'
  return f'{_value(row):.2f} [{row["low"]:.2f}, {row["high"]:.2f}]'


def _line(name, cells):
  return f'{name:<{_NAME}}' + ''.join(f'{cell:>{_CELL}}' for cell in cells)
