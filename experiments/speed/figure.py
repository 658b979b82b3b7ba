"""The figure of `speedup`: speed over plain decoding by kind of prompt."""

import pathlib
from collections.abc import Mapping

import matplotlib.figure
import numpy as np

from experiments.speed import entries, ratios
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
    _panel(axes, entries.at(record, temperature))
    if len(temperatures) > 1:
      axes.set_title(f'temperature {temperature:g}', fontsize=10)
  handles, labels = panels[0].get_legend_handles_labels()
  figure.legend(handles, labels, loc='outside right center', fontsize=8)
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
  kinds = entries.kinds(record)
  ways = [way for way in entries.ways(record) if way[0] != planner.PLAIN]
  names = list(dict.fromkeys(name for name, _ in ways))
  sizes = sorted({capacity for _, capacity in ways})
  for place, way in enumerate(ways):
    colour, marker = _LOOKS[names.index(way[0]) % len(_LOOKS)]
    speedups = [entries.find(record, way, kind)['speedup'] for kind in kinds]
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
      label=entries.way_words(entries.find(record, way, kinds[0])),
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
