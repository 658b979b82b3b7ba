"""The figure of `evaluate_drafter`, from its record alone."""

import itertools
import pathlib
from collections.abc import Mapping, Sequence

import matplotlib.axes
import matplotlib.figure
import matplotlib.ticker

from experiments import records
from experiments import study as study_lib
from experiments.evaluation import one_temperature
from specjax import plotting

_LOOKUP = plotting.Style('prompt lookup', 'tab:blue', '-.', 's')
_ORACLE = plotting.Style('oracle', 'black', '--', 'D')
_DRAFTER = plotting.Style('', 'tab:red', '-', 'o')
_DULLED = (
  ('tab:green', '-', '^'),
  ('tab:purple', '-', 'v'),
  ('tab:orange', '-', 'P'),
  ('tab:brown', '-', 'X'),
)
_KINDS = (
  ('tab:blue', '-', 'o'),
  ('tab:orange', '--', 's'),
  ('tab:green', '-.', '^'),
  ('tab:purple', ':', 'D'),
  ('tab:brown', '-', 'x'),
  ('tab:pink', '--', 'v'),
)

# What is predicted is dotted, what was measured has markers.
_PREDICTED = ':'


def draw(record: Mapping) -> matplotlib.figure.Figure:
  """Draws a column of panels for each temperature.

  From above: curves of `D`, in total and by kind; acceptance by depth; how
  often what is said comes; the formula's curves and those measured; and their
  slopes.

  Args:
    record: of `evaluate_drafter`.
  """
  temperatures = record['flags']['temperatures']
  figure = matplotlib.figure.Figure(
    figsize=(6 * len(temperatures), 24), layout='constrained'
  )
  rows = (_rates, _kinds, _depths, _reliability, _curves, _slopes)
  panels = figure.subplots(len(rows), len(temperatures), squeeze=False)
  for column, temperature in enumerate(temperatures):
    for axes, draw_panel in zip(panels[:, column], rows, strict=True):
      draw_panel(axes, record, temperature)
      axes.grid(color='0.9')
      axes.set_axisbelow(True)
      title = f'temperature {temperature:g}: {axes.get_title()}'
      axes.set_title(title, fontsize=10)
      if axes.get_legend_handles_labels()[1]:
        axes.legend(fontsize=8)
  model = pathlib.Path(record['flags']['model']).name
  figure.suptitle(
    f'{model}: the drafter {record["drafter"]} (95 % over prompts)'
  )
  return figure


def styles(record: Mapping) -> dict[str, plotting.Style]:
  """Returns the style of each drafter and the oracle, by curve.

  Args:
    record: of `evaluate_drafter`.
  """
  names = dict.fromkeys(row['curve'] for row in record['table'])
  found = {record['drafter']: _DRAFTER._replace(label=record['drafter'])}
  found |= {'lookup': _LOOKUP, study_lib.ORACLE_RUN: _ORACLE}
  looks = itertools.cycle(_DULLED)
  for name in names:
    if name not in found:
      label = f'{name.replace("dulled_", "verifier dulled by ")} nats'
      found[name] = plotting.Style(label, *next(looks))
  return found


def _rates(axes, record, temperature):
  """Draws `D` of drafter, lookup and oracle."""
  rows = records.select(record['table'], temperature=temperature, kind=None)
  names = one_temperature.shown(record['drafter'])
  plotting.tokens_against_capacity(
    axes, rows, {name: styles(record)[name] for name in names}
  )
  axes.set_title('what is won')


def _kinds(axes, record, temperature):
  """Draws `D` of the drafter by kind of prompt."""
  rows = records.select(
    record['table'], temperature=temperature, curve=record['drafter']
  )
  kinds = [k for k in dict.fromkeys(row['kind'] for row in rows) if k]
  looks = dict(zip(kinds, itertools.cycle(_KINDS), strict=False))
  plotting.tokens_against_capacity(
    axes,
    [{**row, 'curve': row['kind']} for row in rows],
    {k: plotting.Style(k, *look, False) for k, look in looks.items()},
  )
  axes.set_title(f'{record["drafter"]} by kind of prompt')


def _depths(axes, record, temperature):
  """Draws the chance of acceptance by depth, at the largest capacity."""
  rows = records.select(record['depths'], temperature=temperature)
  for name in dict.fromkeys(row['curve'] for row in rows):
    here = records.select(rows, curve=name)
    places = [row['depth'] for row in here]
    _draw_rows(axes, places, here, styles(record)[name])
  axes.set_ylim(0, 1.05)
  axes.xaxis.set_major_locator(matplotlib.ticker.MaxNLocator(integer=True))
  axes.set_xlabel('depth (tokens of an iteration)')
  axes.set_ylabel('share of tokens there that were drafts')
  capacity = record['flags']['capacities'][-1]
  axes.set_title(f'acceptance by depth, N = {capacity}')


def _reliability(axes, record, temperature):
  """Draws how often tokens come next against what is said of them."""
  axes.plot([0, 1], [0, 1], color='0.5', linewidth=1, label='as often as said')
  rows = records.select(record['reliability'], temperature=temperature)
  for name in dict.fromkeys(row['curve'] for row in rows):
    here = records.select(rows, curve=name)
    _draw_rows(axes, [row['said'] for row in here], here, styles(record)[name])
  axes.set_xlim(0, 1)
  axes.set_ylim(0, 1.05)
  axes.set_xlabel("drafter's probability of a token")
  axes.set_ylabel('share that comes next')
  axes.set_title('reliability of what is said')


def _curves(axes, record, temperature):
  """Draws measured curves, and dotted those that the formula predicts."""
  here = records.select(record['predictions'], temperature=temperature)
  told = {name: styles(record)[name] for name in _names(here)}
  measured = records.select(record['table'], temperature=temperature, kind=None)
  plotting.tokens_against_capacity(axes, measured, told)
  for name, style in told.items():
    rows = records.select(here, curve=name)
    axes.plot(
      [row['capacity'] for row in rows],
      [row['D'] for row in rows],
      color=style.colour,
      linestyle=_PREDICTED,
      marker=style.marker,
      markerfacecolor='none',
    )
  axes.set_title('measured, and predicted from H and KL (dotted)')


def _slopes(axes, record, temperature):
  """Draws measured slopes against those that the formula predicts."""
  rows = records.select(record['slopes'], temperature=temperature)
  tops = [0.0]
  for name in _names(rows):
    [predicted] = records.select(rows, curve=name, slope='predicted')
    [measured] = records.select(rows, curve=name, slope='measured')
    style = styles(record)[name]._replace(line='none')
    _draw_rows(axes, [predicted['value']], [measured], style, [predicted])
    tops += [x['high'] or x['value'] for x in (predicted, measured)]
  top = 1.1 * max(tops)
  axes.plot([0, top], [0, top], color='0.5', linewidth=1, label='as predicted')
  axes.set_xlabel('predicted slope 1 / (H + KL) (tokens per nat of log N)')
  axes.set_ylabel('measured slope of D (tokens per nat)')
  axes.set_title('slopes')


def _names(rows):
  return list(dict.fromkeys(row['curve'] for row in rows))


def _draw_rows(
  axes: matplotlib.axes.Axes,
  places: Sequence[float],
  rows: Sequence[Mapping],
  style: plotting.Style,
  across: Sequence[Mapping] | None = None,
) -> None:
  """Draws values with their intervals, and those of their places."""
  axes.errorbar(
    places,
    [row['value'] for row in rows],
    yerr=_spread(rows),
    xerr=None if across is None else _spread(across),
    color=style.colour,
    linestyle=style.line,
    marker=style.marker,
    markersize=5,
    elinewidth=0.8,
    label=style.label,
  )


def _spread(rows):
  """Lengths of intervals below and above; 0 where there is none."""
  return [
    [0.0 if row[end] is None else abs(row[end] - row['value']) for row in rows]
    for end in ('low', 'high')
  ]
