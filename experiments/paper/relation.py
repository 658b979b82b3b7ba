"""What bounds allow against what was achieved, over models and data sets."""

import itertools

import matplotlib.figure
import matplotlib.lines
import matplotlib.ticker
import numpy as np

from experiments.paper import cells as cells_lib
from experiments.paper import curves, tables

# The axes of the panels, the sharpest bound first.
BOUNDS = ('run_priced', 'run_context', 'printed')

_HEADS = {
  'model': 'model',
  'data': 'data',
  'capacity': '$N$',
  'recipe': 'best drafter',
  'D': '$D$',
  **{name: tables.latex_cell(curves.BOUNDS[name].label) for name in BOUNDS},
}
_MARKERS = 'osD^vXP*<>'
_FILLED = {'marker': 'o', 'markerfacecolor': 'black'}
_TICKS = (1, 1.5, 2, 3, 4, 6, 8, 12, 16, 24, 32, 64)
_LINES = (
  {'linestyle': '-', 'color': 'tab:blue'},
  {'linestyle': '--', 'color': 'tab:orange'},
  {'linestyle': '-.', 'color': 'tab:green'},
  {'linestyle': ':', 'color': 'tab:brown'},
  {'linestyle': (0, (6, 1, 1, 1, 1, 1)), 'color': 'tab:purple'},
)


def table(study: cells_lib.Study) -> tables.Table:
  """Makes the table: the best drafter of each cell and capacity, and bounds.

  Without capacity 1, where both are 1, and without cells that lack either.

  Args:
    study: whose cells have a row for each capacity.
  """
  return tables.Table(
    _HEADS, [row for cell in study.cells for row in _rows_of(cell)]
  )


def summary(study: cells_lib.Study) -> tables.Table:
  """Makes the table of each cell's largest trees alone, for LaTeX.

  Args:
    study: whose cells have a row each.
  """
  rows = table(study).rows
  last = {(row['model'], row['data']): row for row in rows}
  return tables.Table(_HEADS, list(last.values()))


def draw(study: cells_lib.Study) -> matplotlib.figure.Figure | None:
  """Draws a mark for each cell and capacity, a panel for each bound.

  Markers tell models apart, and lines, which join the capacities of a cell, the
  data sets.  On the diagonal a drafter reaches the bound.

  Args:
    study: what is drawn.

  Returns:
    The figure, None where there is nothing to draw.
  """
  rows = table(study).rows
  if not rows:
    return None
  markers = _looks(rows, 'model', [{'marker': marker} for marker in _MARKERS])
  lines = _looks(rows, 'data', _LINES)
  figure = matplotlib.figure.Figure(figsize=(13, 5.2), layout='constrained')
  panels = figure.subplots(1, len(BOUNDS), sharex=True, sharey=True)
  for axes, bound in zip(panels, BOUNDS, strict=True):
    for (model, data), points in _by_cell(rows, bound).items():
      _draw_cell(axes, points, bound, markers[model] | lines[data])
    axes.axline((1, 1), (2, 2), color='black', linewidth=1)
    axes.set_title(curves.BOUNDS[bound].label, fontsize=10)
    axes.set_xlabel('tokens per iteration that it allows')
    _scale(axes)
    axes.grid(color='0.9')
    axes.set_axisbelow(True)
  panels[0].set_ylabel('tokens per iteration D of the best drafter')
  figure.legend(
    handles=_keys(markers, lines),
    loc='outside lower center',
    ncols=6,
    fontsize=8,
  )
  figure.suptitle(
    f'{study.name}: what bounds allow and what was achieved (bars: 95 %)'
  )
  return figure


def _rows_of(cell):
  """Returns the rows of a cell, a row for each capacity."""
  found = curves.rows_of(cell)
  for capacity in sorted({row['capacity'] for row in found} - {1}):
    at = [row for row in found if row['capacity'] == capacity]
    own = [row for row in at if row['curve'] in curves.DRAFTERS]
    bounds = {
      row['curve']: tables.interval(row)
      for row in at
      if row['curve'] in BOUNDS and row['D'] is not None
    }
    if own and bounds:
      best = max(own, key=lambda row: row['D'])
      yield {
        'model': cell.model,
        'data': cell.data,
        'capacity': capacity,
        'drafter': best['curve'],
        'recipe': best['recipe'],
        'D': tables.interval(best),
        **{name: bounds.get(name) for name in BOUNDS},
      }


def _by_cell(rows, bound):
  """Returns the rows that have a bound, by model and data set."""
  found = {}
  for row in rows:
    if row[bound]:
      found.setdefault((row['model'], row['data']), []).append(row)
  return found


def _draw_cell(axes, rows, bound, look):
  """Draws the marks of a cell; filled where a trained head is the best."""
  allowed = [row[bound].value for row in rows]
  won = [row['D'].value for row in rows]
  axes.plot(allowed, won, **look | {'marker': ''}, linewidth=0.8)
  for row, *place in zip(rows, allowed, won, strict=True):
    is_head = row['drafter'] == 'eagle'
    fill = look['color'] if is_head else 'white'
    axes.plot(*place, **look, markerfacecolor=fill, markersize=6)
  low, high = np.transpose([row['D'][1:] for row in rows])
  axes.vlines(allowed, low, high, color='0.75', linewidth=0.8, zorder=1)


def _scale(axes):
  """Makes axes those of ratios, with numbers that lie apart."""
  axes.set(xscale='log', yscale='log')
  for axis in (axes.xaxis, axes.yaxis):
    axis.set_major_locator(matplotlib.ticker.FixedLocator(_TICKS))
    axis.set_major_formatter('{x:g}')
    axis.set_minor_locator(matplotlib.ticker.NullLocator())


def _looks(rows, name, looks):
  """Returns a look for each value of a column."""
  values = dict.fromkeys(row[name] for row in rows)
  return dict(zip(values, itertools.cycle(looks), strict=False))


def _keys(markers, lines):
  """Returns the lines of the legend."""
  none = {'color': 'black', 'linestyle': 'none', 'markerfacecolor': 'white'}
  key = matplotlib.lines.Line2D
  return [
    *(key([], [], label=k, **none, **look) for k, look in markers.items()),
    *(key([], [], label=k, **look) for k, look in lines.items()),
    key([], [], label='filled: EAGLE-3 is the best', **none | _FILLED),
    key([], [], label='bound = achieved', color='black', linewidth=1),
  ]
