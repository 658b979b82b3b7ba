"""What a record of `latency` says: a figure, a table and a sentence."""

import pathlib
from collections.abc import Mapping

import matplotlib.figure
import matplotlib.ticker
import numpy as np

from experiments import figure_files

_LOOKS = (
  ('tab:blue', 'o'),
  ('tab:orange', 's'),
  ('tab:green', '^'),
  ('tab:purple', 'v'),
  ('tab:brown', 'X'),
)


def show(record: Mapping, folder: pathlib.Path) -> None:
  """Draws the figure of a run and prints its table and its sentence.

  Args:
    record: of `latency`.
    folder: of the run; figure.png and figure.pdf are written there.
  """
  figure_files.show(draw(record), folder, table_text(record), sentence(record))


def draw(record: Mapping) -> matplotlib.figure.Figure:
  """Draws pass time against nodes, a panel a context and a look a batch."""
  contexts = _values(record, 'context')
  figure = matplotlib.figure.Figure(
    figsize=(max(7, 0.5 + 5 * len(contexts)), 4.8), layout='constrained'
  )
  panels = figure.subplots(1, len(contexts), sharey=True, squeeze=False)[0]
  for axes, context in zip(panels, contexts, strict=True):
    for place, batch in enumerate(_values(record, 'batch')):
      _draw_batch(axes, _rows(record, batch, context), place)
    axes.set_xscale('log', base=2)
    axes.set_yscale('log')
    axes.set_xticks(_values(record, 'capacity'))
    axes.xaxis.set_major_formatter(matplotlib.ticker.ScalarFormatter())
    for name in ('set_major_formatter', 'set_minor_formatter'):
      getattr(axes.yaxis, name)(matplotlib.ticker.LogFormatter())
    axes.set_xlabel('capacity N (tokens of a row in one pass)')
    axes.set_title(f'context of {context} tokens', fontsize=10)
    axes.grid(color='0.9', which='both')
    axes.set_axisbelow(True)
  panels[0].set_ylabel('time of an iteration (ms)')
  panels[0].legend(fontsize=8)
  model = pathlib.Path(record['flags']['model']).name
  figure.suptitle(
    f'{model}, {record["flags"]["dtype"]}, {record["device"]["kind"]}: '
    'what a pass costs (medians, 95 %)',
    fontsize=11,
  )
  return figure


def table_text(record: Mapping) -> str:
  """Returns the table: times, their spread, and times over plain decoding."""
  lines = [
    'batch  context    N   ms [95 % of the median]   quartiles'
    '     plain x   model roofline'
  ]
  for batch in _values(record, 'batch'):
    for context in _values(record, 'context'):
      rows = _rows(record, batch, context)
      for row in rows:
        ms = {name: 1e3 * row[name] for name in _TIMES}
        lines.append(
          f'{batch:>5}{context:>9}{row["capacity"]:>5}'
          f'{ms["seconds"]:>9.2f} [{ms["low"]:>7.2f}, {ms["high"]:>7.2f}]'
          f'{ms["first_quartile"]:>9.2f}{ms["third_quartile"]:>8.2f}'
          f'{row["seconds"] / rows[0]["seconds"]:>8.2f}{ms["model"]:>9.2f}'
          f'{ms["roofline"]:>9.2f}'
        )
  lines.append('batch    N   ms of every further token [95 % of the median]')
  for row in record['visits']:
    lines.append(
      f'{row["batch"]:>5}{row["capacity"]:>5}{1e3 * row["seconds"]:>9.2f} '
      f'[{1e3 * row["low"]:>7.2f}, {1e3 * row["high"]:>7.2f}]'
    )
  return '\n'.join(lines)


def sentence(record: Mapping) -> str:
  """Says what a pass costs in words, and how well the model says it."""
  fit = record['fit']
  rows = _rows(
    record, _values(record, 'batch')[0], _values(record, 'context')[0]
  )
  costs = ', '.join(
    f'{row["seconds"] / rows[0]["seconds"]:.2f} with {row["capacity"]}'
    for row in rows[1:]
  )
  reads = 'and' if fit['blend'] == 'sum' else 'or, if longer,'
  other = 'max' if fit['blend'] == 'sum' else 'sum'
  machine = record['machine']
  return (
    f'In passes over one token of a row, a pass costs {costs} tokens. The '
    f'machine reads at {_rate(machine["bandwidth"], "GB/s")} and computes at '
    f'{_rate(machine["peak"], "GFLOP/s")}: plain decoding takes '
    f'{rows[0]["seconds"] / rows[0]["roofline"]:.2f} times its roofline. The '
    f'model: {1e3 * fit["overhead"]:.2f} ms, reading at '
    f'{_rate(fit["bandwidth"], "GB/s")} {reads} computing at '
    f'{_rate(fit["peak"], "GFLOP/s")}; it is off by '
    f'{fit["errors"][fit["blend"]]:.1%} (root mean square over '
    f'{len(record["table"])} points), by {fit["errors"][other]:.1%} as a '
    f'{other} of both.'
  )


_TIMES = (
  'seconds',
  'low',
  'high',
  'first_quartile',
  'third_quartile',
  'model',
  'roofline',
)


def _draw_batch(axes, rows, place):
  """Draws measured times, slightly apart, with the model in their look."""
  colour, marker = _LOOKS[place % len(_LOOKS)]
  batch = rows[0]['batch']
  sizes = np.array([row['capacity'] for row in rows])
  ms = {name: 1e3 * np.array([row[name] for row in rows]) for name in _TIMES}
  axes.errorbar(
    sizes * 1.03**place,
    ms['seconds'],
    [ms['seconds'] - ms['low'], ms['high'] - ms['seconds']],
    fmt=marker,
    color=colour,
    capsize=3,
    markersize=5,
    label=f'{batch} row{"s" if batch > 1 else ""}, measured',
  )
  for name, line, words in (
    ('model', '--', 'model'),
    ('roofline', ':', 'roofline of the machine'),
  ):
    axes.plot(
      sizes,
      ms[name],
      line,
      color=colour,
      marker=marker,
      markerfacecolor='none',
      markersize=8,
      linewidth=1,
      label=words if place == 0 else None,
    )


def _rate(per_second, unit):
  return 'no limit' if per_second is None else f'{per_second / 1e9:.3g} {unit}'


def _values(record, name):
  return sorted({row[name] for row in record['table']})


def _rows(record, batch, context):
  """The rows of a batch and context, by rising capacity."""
  found = [
    row
    for row in record['table']
    if (row['batch'], row['context']) == (batch, context)
  ]
  return sorted(found, key=lambda row: row['capacity'])
