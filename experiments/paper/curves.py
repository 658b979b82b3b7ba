"""`D` of every drafter against capacity, among all bounds, cell by cell."""

from collections.abc import Mapping

import matplotlib.figure

from experiments.paper import cells as cells_lib
from experiments.paper import tables
from specjax import plotting

_COLUMNS = ('model', 'data', 'curve', 'recipe', 'capacity', 'D')

# Other drafters are there to measure with, and are not drawn.
DRAFTERS = {
  'eagle': plotting.Style('EAGLE-3', 'tab:purple', '-', 'o'),
  'model': plotting.Style('smaller model', 'tab:cyan', '-', '*'),
  'layer_skip': plotting.Style('layer skipping', 'tab:brown', '-', 'X'),
  'suffix': plotting.Style('suffixes', 'tab:olive', '-', '^'),
  'bigram': plotting.Style('bigrams', 'tab:orange', '-', 's'),
  'lookup': plotting.Style('prompt lookup', 'tab:blue', '-', 'v'),
}
# Without colour the marker tells of what they hold, the line which one it is.
BOUNDS = {
  'oracle_run': plotting.Style("the oracle's own run", 'black', '--', 'D'),
  'run_priced': plotting.Style('limit of runs, best trees', 'tab:red', '-.'),
  'run_context': plotting.Style('limit of runs, whole laws', 'tab:red', '-'),
  'run': plotting.Style('limit of runs, log-probs', 'tab:red', '--'),
  'leaf': plotting.Style('limit of runs, entropies', 'tab:red', ':'),
  'dual': plotting.Style('limit at starts', 'tab:green', '--', '|'),
  'dual_context': plotting.Style(
    'limit at starts, by laws', 'tab:green', '-', '|'
  ),
  'printed': plotting.Style('printed (O(1) omitted)', 'tab:gray', ':', 'x'),
  'lorden': plotting.Style('i.i.d., Lorden', 'tab:gray', '-', 'x'),
  'lorden_dual': plotting.Style('i.i.d., Lorden, dual', 'tab:gray', '--', 'x'),
  'sharp': plotting.Style(
    'i.i.d., asymptote (no bound)', 'tab:gray', '-.', 'x'
  ),
  'achievable': plotting.Style('i.i.d., from below', 'tab:gray', ':', '+'),
}
_STYLES = {
  name: style._replace(has_band=False)
  for name, style in {**DRAFTERS, **BOUNDS}.items()
}

_MOST_COLUMNS = 3


def rows_of(cell: cells_lib.Cell) -> list[dict]:
  """Gathers the curves of a cell, at the temperature of its main job.

  Drafters are those of `acceptance`, each in the tree that served it best, with
  the limits of the same texts; where there is no such record, those of the main
  job.  Drafters that only measure are left out, and so are drafts that are
  drawn, for the bounds hold of deterministic trees.

  Args:
    cell: with a record of `acceptance` or `speed_of_light`, or with both.

  Returns:
    Rows of `capacity`, `curve`, `recipe`, `D`, `low` and `high`.
  """
  main, other = (
    cell.records.get(name) for name in ('speed_of_light', 'acceptance')
  )
  # Curve -> its rows; those of `acceptance` take the place of the main job's.
  found: dict[str, list[Mapping]] = {}
  temperature = 1.0
  if main:
    temperature = main['flags']['temperature']
    names = [*BOUNDS, *(() if other else main['flags']['drafters'])]
    kept = [name for name in names if name not in main['vacuous']]
    found = {name: _curve(main['table'], name) for name in kept}
  if other:
    table = [r for r in other['table'] if r['temperature'] == temperature]
    names = _best_recipes(other, table) | {name: name for name in BOUNDS}
    own = {name: _curve(table, recipe) for name, recipe in names.items()}
    found |= {name: rows for name, rows in own.items() if rows}
  return [
    {**row, 'curve': name, 'recipe': row['curve']}
    for name in _STYLES
    for row in found.get(name, ())
  ]


def draw(study: cells_lib.Study, model: str) -> matplotlib.figure.Figure | None:
  """Draws a model's curves, a panel for each data set.

  Args:
    study: what is drawn.
    model: one of its models.

  Returns:
    The figure, None where there is nothing to draw.
  """
  found = _by_data(study, model)
  if not found:
    return None
  num_columns = min(len(found), _MOST_COLUMNS)
  num_rows = -(-len(found) // num_columns)
  figure = matplotlib.figure.Figure(
    figsize=(max(4.6 * num_columns, 8), 1.6 + 3.8 * num_rows),
    layout='constrained',
  )
  grid = figure.subplots(num_rows, num_columns, sharey=True, squeeze=False)
  panels, handles = iter(grid.flat), {}
  for (data, rows), axes in zip(found.items(), panels, strict=False):
    _panel(axes, rows)
    axes.set_title(data, fontsize=10)
    handles |= dict(zip(*axes.get_legend_handles_labels()[::-1], strict=True))
  for axes in panels:  # What the last row has no use for.
    axes.remove()
  figure.legend(
    handles.values(),
    handles.keys(),
    loc='outside lower center',
    ncols=4,
    fontsize=8,
  )
  figure.suptitle(f'{model}: what drafters win, and what limits them')
  return figure


def table(study: cells_lib.Study, model: str) -> tables.Table:
  """Makes the table of a model's curves, a row for each point.

  Args:
    study: what it is of.
    model: one of its models.
  """
  return tables.Table(
    dict.fromkeys(_COLUMNS),
    [
      {
        'model': model,
        'data': data,
        'curve': row['curve'],
        'recipe': row['recipe'],
        'capacity': row['capacity'],
        'D': tables.interval(row),
      }
      for data, rows in _by_data(study, model).items()
      for row in rows
    ],
  )


def summary(study: cells_lib.Study, model: str) -> tables.Table:
  """Makes the table of a model's curves at the largest trees, for LaTeX.

  Args:
    study: what it is of.
    model: one of its models.

  Returns:
    A row for each curve and a column for each data set.
  """
  found = _by_data(study, model)
  largest = {
    d: max(row['capacity'] for row in rows) for d, rows in found.items()
  }
  at = {
    (row['curve'], data): tables.interval(row)
    for data, rows in found.items()
    for row in rows
    if row['capacity'] == largest[data]
  }
  heads = {
    data: f'{tables.latex_cell(data)}, $N = {size}$'
    for data, size in largest.items()
  }
  return tables.Table(
    {'curve': '$D$', **heads},
    [
      {'curve': style.label, **{data: at.get((name, data)) for data in found}}
      for name, style in _STYLES.items()
      if any((name, data) in at for data in found)
    ],
  )


def _by_data(study, model):
  """Returns data set -> rows, of the cells of a model that have any."""
  found = {cell.data: rows_of(cell) for cell in study.of(model)}
  return {data: rows for data, rows in found.items() if rows}


def _curve(table, name):
  return [row for row in table if row['curve'] == name]


def _best_recipes(record, table):
  """Returns drafter -> the recipe that won most, all sizes together."""
  found = {}
  for name, recipe in record['recipes'].items():
    drafter, none = recipe['drafter'], ('', 0.0)
    won = sum(row['D'] for row in _curve(table, name))
    if recipe['rule'] == 'match' and won > found.get(drafter, none)[1]:
      found[drafter] = name, won
  return {drafter: name for drafter, (name, _) in found.items()}


def _panel(axes, rows):
  """Draws curves on a scale of ratios: drafters and bounds lie far apart."""
  names = {row['curve'] for row in rows}
  styles = {name: style for name, style in _STYLES.items() if name in names}
  plotting.tokens_against_capacity(axes, rows, styles)
  axes.set_yscale('log', base=2)
  axes.yaxis.set_major_formatter('{x:g}')
