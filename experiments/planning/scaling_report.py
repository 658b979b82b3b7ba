"""What a record of `scaling` says: a figure, a table and sentences."""

import itertools
import pathlib
from collections.abc import Mapping, Sequence

import matplotlib.figure
import matplotlib.lines
import matplotlib.ticker
import numpy as np

from experiments import figure_files, records
from experiments.planning import scaling_words

_LOOKS = (
  ('tab:blue', 'o'),
  ('tab:orange', 's'),
  ('tab:green', '^'),
  ('tab:purple', 'v'),
)


def show(record: Mapping, folder: pathlib.Path) -> None:
  """Draws the figure of a run and prints its table and its sentences.

  Args:
    record: of `scaling`.
    folder: of the run; figure.png and figure.pdf are written there.
  """
  figure_files.show(
    draw(record),
    folder,
    scaling_words.title(record),
    scaling_words.table_text(record),
    scaling_words.NOTES,
    scaling_words.sentence(record),
  )


def draw(record: Mapping) -> matplotlib.figure.Figure:
  """Draws tokens a second against chips, a panel a model and kind of chip."""
  table = record['table']
  models, chips = (_distinct(table, name) for name in ('model', 'chip'))
  figure = matplotlib.figure.Figure(
    figsize=(1.5 + 4.5 * len(chips), 1.5 + 3.4 * len(models)),
    layout='constrained',
  )
  panels = figure.subplots(
    len(models), len(chips), squeeze=False, sharex='col', sharey='row'
  )
  batches = sorted(_distinct(table, 'batch'))
  for axes, (model, chip) in zip(
    panels.flat, itertools.product(models, chips), strict=True
  ):
    for look, batch in zip(itertools.cycle(_LOOKS), batches):
      _draw_batch(
        axes, records.select(table, model=model, chip=chip, batch=batch), look
      )
    _scale(axes, records.select([*table, *record['left_out']], chip=chip))
    _say_no_room(axes, records.select(table, model=model, chip=chip))
    axes.set_title(f'{model} on {chip}', fontsize=10)
  for axes in panels[:, 0]:
    axes.set_ylabel('tokens a second, all rows')
  for axes in panels[-1]:
    axes.set_xlabel('chips (below: hosts)')
  figure.legend(
    handles=list(_keys(batches)),
    loc='outside lower center',
    ncols=len(batches) + 1,
    fontsize=8,
  )
  figure.suptitle(
    'FORECAST: tokens a second of chips that are split in the best way\n'
    f'{record["flags"]["context"]} tokens of context; labels: copies x chips, '
    f'{scaling_words.ACROSS} over several hosts',
    fontsize=11,
  )
  return figure


def _draw_batch(axes, rows, look):
  """Draws both ways to decode, each with its best split."""
  if not rows:
    return
  colour, marker = look
  best = [row for row in rows if row['is_best']]
  plain = [row for row in rows if row['is_best_plain']]
  chips = np.array([row['num_chips'] for row in best])
  value, low, high = np.array([row['rate'] for row in best]).T
  axes.plot(chips, value[0] * chips / chips[0], ':', color='0.6', linewidth=1)
  axes.errorbar(
    chips,
    value,
    [value - low, high - value],
    fmt=f'-{marker}',
    color=colour,
    markersize=5,
    capsize=2,
  )
  axes.plot(
    chips,
    [row['plain_rate'] for row in plain],
    linestyle='--',
    marker=marker,
    color=colour,
    markerfacecolor='white',
    markersize=5,
  )
  for row in best:
    axes.annotate(
      scaling_words.way(row),
      (row['num_chips'], row['rate'][2]),
      (0, 6),
      textcoords='offset points',
      ha='center',
      fontsize=7,
      bbox={'facecolor': 'white', 'edgecolor': 'none', 'pad': 0.3},
    )


def _keys(batches):
  """What the looks of lines mean."""
  for (colour, marker), batch in zip(itertools.cycle(_LOOKS), batches):
    look = {'color': colour, 'marker': marker, 'markersize': 5}
    yield matplotlib.lines.Line2D(
      [],
      [],
      **look,
      label=f'{scaling_words.num_rows(batch)}, best tree (95 %)',
    )
    yield matplotlib.lines.Line2D(
      [],
      [],
      **look,
      linestyle='--',
      markerfacecolor='white',
      label=f'{scaling_words.num_rows(batch)}, plain decoding',
    )
  yield matplotlib.lines.Line2D(
    [], [], linestyle=':', color='0.6', label='in proportion to chips'
  )


def _scale(axes, rows):
  """Makes both axes logarithmic, with the hosts under the chips."""
  hosts = {row['num_chips']: row['hosts'] for row in rows}
  axes.set_xscale('log', base=2)
  axes.set_yscale('log')
  axes.set_xticks(sorted(hosts), [f'{n}\n{hosts[n]}' for n in sorted(hosts)])
  axes.set_xlim(min(hosts) / 1.4, max(hosts) * 1.4)
  axes.xaxis.set_minor_locator(matplotlib.ticker.NullLocator())
  axes.yaxis.set_major_formatter(matplotlib.ticker.FuncFormatter(_plain_number))
  axes.margins(y=0.12)
  axes.grid(color='0.9', which='both')
  axes.set_axisbelow(True)


def _say_no_room(axes, rows):
  """Marks numbers of chips that hold no model, at any of the batches."""
  found = {row['num_chips'] for row in rows}
  for chips in sorted({*axes.get_xticks()} - found):
    axes.text(
      chips,
      0.03,
      'no room',
      transform=axes.get_xaxis_transform(),
      rotation='vertical',
      ha='center',
      fontsize=8,
    )


def _plain_number(value, place):
  del place
  return f'{value:,.0f}'


def _distinct(table: Sequence[Mapping], name: str) -> list:
  return list(dict.fromkeys(row[name] for row in table))
