"""What a record says: a figure, a table on the terminal and a sentence."""

import pathlib
from collections.abc import Mapping, Sequence

import matplotlib.figure

from experiments import curves, figure_files
from specjax import plotting

_DRAFTERS = {
  'lookup': plotting.Style('prompt lookup', 'tab:blue', '-', 'o'),
  'bigram': plotting.Style('bigram drafter', 'tab:orange', '-', 's'),
  'model': plotting.Style('smaller model', 'tab:purple', '-', '^'),
  'eagle': plotting.Style('EAGLE head', 'tab:brown', '-', 'v'),
}
_LIMITS = {
  'printed': plotting.Style(
    'printed bound (leading term, O(1) omitted)', 'tab:gray', ':', '', False
  ),
  'run': plotting.Style('limit of any run', 'tab:red', '--', '', False),
  'run_context': plotting.Style(
    'limit of any run, from whole laws', 'tab:red', '-', '', False
  ),
  'run_priced': plotting.Style(
    'limit of any run, from best trees', 'tab:red', '-', 'P'
  ),
}
_IID = {
  'lorden_dual': plotting.Style(
    'i.i.d. bound (Lorden, dual)', 'tab:gray', '--', 'x', False
  ),
  'sharp': plotting.Style(
    'i.i.d. asymptote (no bound)', 'tab:gray', '-.', '', False
  ),
}
# Dashed, for the curve of the best trees may lie under it.
_ORACLE_RUN = plotting.Style("the oracle's own run", 'black', '--', 'D')
# With the marker of their drafter.
_POSTERIOR = {
  'posterior_dual': ('limit node by node, by what {} knows', '--', True),
  'posterior_best': ('what that promises its best N', ':', False),
}

# Differences of float32 sums that mean nothing.
_ROUNDING = 1e-4

# Characters of a column of the table.
_CELL = 22


def show(record: Mapping, folder: pathlib.Path) -> None:
  """Draws the figure of a run and prints its table and its sentence.

  Args:
    record: of `speed_of_light`.
    folder: of the run; figure.png and figure.pdf are written there.
  """
  told = telling(record)
  figure_files.show(
    draw(record),
    folder,
    table_text(told),
    f'{sentence(record)}\n{verdict(told)}',
  )


def telling(record: Mapping) -> dict:
  """Returns the record without the bounds that say nothing.

  Args:
    record: of `speed_of_light`.
  """
  bound = lambda row: row['curve'].split(' - ')[0]
  kept = {
    name: [row for row in record[name] if bound(row) not in record['vacuous']]
    for name in ('table', 'checks')
  }
  return {**record, **kept}


def draw(record: Mapping) -> matplotlib.figure.Figure:
  """Draws `D` against capacity: limits, oracle and drafters.

  Where the laws' entropy limits nothing, what the drafters know does, and the
  oracle, which knows the text, leaves the frame.
  """
  best = record['best_drafter']
  flags = record['flags']
  oracle = {
    f'oracle_at({best})': plotting.Style(
      f'best tree at the starts of {best}', 'tab:green', '-', 'v'
    ),
    'oracle_run': _ORACLE_RUN,
  }
  if record['vacuous']:
    styles, beyond = {**oracle, **_posterior_styles(record)}, tuple(oracle)
  else:
    dual = plotting.Style(
      f'limit at the starts of {best}', 'tab:green', '--', '^', False
    )
    styles, beyond = {**_LIMITS, 'dual': dual, **oracle, **_IID}, ('printed',)
  styles |= {name: _DRAFTERS[name] for name in flags['drafters']}
  title = (
    f'{pathlib.Path(flags["model"]).name}, '
    f'temperature {flags["temperature"]:g}: '
    'what draft trees win, and could win'
  )
  return draw_curves(record['table'], styles, title, beyond)


def _posterior_styles(record):
  """Styles of limits and promises by what drafters know, by curve."""
  styles = {}
  for drafter in _with_posterior(record):
    own = _DRAFTERS[drafter]
    for curve, (words, line, has_band) in _POSTERIOR.items():
      styles[f'{curve}({drafter})'] = plotting.Style(
        words.format(drafter), own.colour, line, own.marker, has_band
      )
  return styles


def _with_posterior(record):
  """Returns the drafters of which it is known what they know."""
  names = {row['curve'] for row in record['table']}
  return [
    name
    for name in record['flags']['drafters']
    if f'posterior_best({name})' in names
  ]


def draw_curves(
  table: Sequence[Mapping],
  styles: Mapping[str, plotting.Style],
  title: str,
  beyond: Sequence[str] = ('printed',),
) -> matplotlib.figure.Figure:
  """Draws curves of a table, in a frame as high as they need.

  Args:
    table: rows of all curves.
    styles: curve -> style, in the order of the legend.
    title: of the figure.
    beyond: curves that may leave the frame; they would flatten all others.
  """
  figure = matplotlib.figure.Figure(figsize=(7.5, 5), layout='constrained')
  axes = figure.add_subplot()
  plotting.tokens_against_capacity(axes, table, styles)
  shown = [
    row['high']
    for row in table
    if row['curve'] in styles and row['curve'] not in beyond
  ]
  axes.set_ylim(0.9, 1.15 * max(shown))
  axes.set_title(title)
  axes.legend(fontsize=8)
  return figure


def table_text(record: Mapping) -> str:
  """Returns the table: a line a curve, a column a capacity."""
  table = record['table']
  capacities = record['flags']['capacities']
  names = list(dict.fromkeys(row['curve'] for row in table))
  width = max(map(len, names))
  lines = [
    'tokens per iteration D, 95 % interval over prompts',
    ' ' * width + ''.join(f'{f"N = {c}":>{_CELL}}' for c in capacities),
  ]
  for name in names:
    cells = [cell(curves.find(table, name, c)) for c in capacities]
    lines.append(f'{name:<{width}}' + ''.join(f'{c:>{_CELL}}' for c in cells))
  return '\n'.join(lines)


def sentence(record: Mapping) -> str:
  """Says in words how far the best drafter is from the limits."""
  best = record['best_drafter']
  capacity = record['flags']['capacities'][-1]
  at = lambda name: curves.find(record['table'], name, capacity)
  drafter, tree = at(f'won_at({best})'), at(f'oracle_at({best})')
  text = (
    f'At capacity {capacity} the best drafter, {best}, wins '
    f'{cell(at(best))} tokens an iteration. At its own starts its trees take '
    f'{cell(drafter)} and the best trees {cell(tree)}: of what they win over '
    f'plain decoding, which takes 1, it gets {share(drafter, tree)}.'
  )
  if record['vacuous']:
    known = [
      _what_is_known(at, name, capacity) for name in _with_posterior(record)
    ]
    return ' '.join(
      [
        text,
        'The sampled law has no entropy, as always at temperature 0: who knows '
        'it wins every token, and bounds from it say nothing.',
        *known,
      ]
    )
  limit = at('run_context')
  return (
    f'{text} Runs of deterministic trees are limited to {cell(limit)}, as '
    f'estimated from these texts; it reaches {share(at(best), limit)} of that.'
  )


def _what_is_known(at, drafter, capacity):
  """Says how far a drafter's knowledge goes, from rows by curve."""
  limit, promise, won = (
    cell(at(f'{curve}({drafter})'))
    for curve in ('posterior_dual', 'posterior_best', 'posterior_won')
  )
  return (
    f'By what {drafter} knows of the nodes that it proposes at those starts, '
    f'rules that judge each node by its own chance, with {capacity} in the '
    f'mean, are limited to {limit}; the best {capacity} of every start promise '
    f'{promise}, and took {won}.'
  )


def share(part: Mapping, whole: Mapping) -> str:
  """Says what share of the tokens beyond the first is won.

  Args:
    part: row of what is won.
    whole: row of what there is to win.
  """
  if whole['D'] <= 1:
    return 'nothing'
  return f'{(part["D"] - 1) / (whole["D"] - 1):.0%}'


def verdict(record: Mapping) -> str:
  """Says whether every bound lies above what it bounds, pair by pair.

  Args:
    record: whose checks count; see `telling`.
  """
  broken = [
    f'{check["curve"]} at capacity {check["capacity"]} is {cell(check)}'
    for check in record['checks']
    if check['high'] is not None and check['high'] < -_ROUNDING
  ]
  total = len(record['checks'])
  if not broken:
    return f'No bound lies below what it bounds, of {total} comparisons.'
  return f'BROKEN, of {total} comparisons: {"; ".join(broken)}.'


def cell(row: Mapping, digits: int = 2) -> str:
  """Says a number and its interval: `value [low, high]`.

  Args:
    row: `low`, `high` and the number, `D` or `value`; see `curves.ends`.
    digits: after the point.
  """
  number = lambda x: 'inf' if x is None else f'{x:.{digits}f}'
  value, low, high = row.get('D', row.get('value')), row['low'], row['high']
  if value is None:
    return 'says nothing'
  if low is None and high is None:  # Of too few prompts to resample.
    return number(value)
  # Without entropy in all prompts of a resample, a bound may be infinite.
  return f'{number(value)} [{number(low)}, {number(high)}]'
