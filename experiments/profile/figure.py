"""The figure of `entropy_profile`, from its record alone."""

import itertools
import pathlib
from collections.abc import Mapping

import matplotlib.figure

from experiments.profile import tables as profile_tables
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
    f'{pathlib.Path(record["flags"]["model"]).name}: entropy, and limits of '
    'draft trees, by sampling setting (95 % over prompts)'
  )
  return figure


def _draw_kinds(axes, record, moment):
  """Draws a moment of each kind of prompt, at each temperature."""
  kinds = list(dict.fromkeys(row['kind'] for row in record['moments']))
  names = record['temperatures']
  for number, name in enumerate(names):
    shift = 0.15 * (number - (len(names) - 1) / 2)
    _draw_rows(
      axes,
      [place + shift for place in range(len(kinds))],
      [profile_tables.find(record, name, 'own', moment, k) for k in kinds],
      _styles(record)[name]._replace(line='none'),
    )
  axes.set_xticks(range(len(kinds)), [k or 'all' for k in kinds], rotation=30)
  axes.set_ylim(bottom=0)
  axes.set_ylabel(_MOMENTS[moment])
  axes.set_title('texts by kind of prompt', fontsize=10)


def _draw_stretches(axes, record):
  """Draws the mean entropy by position in the output, at each temperature."""
  for name in record['temperatures']:
    rows = [row for row in record['stretches'] if row['setting'] == name]
    middles = [(row['first'] + row['last']) / 2 for row in rows]
    _draw_rows(axes, middles, rows, _styles(record)[name])
  axes.set_ylim(bottom=0)
  axes.set_xlabel('position in the output (tokens, from 1)')
  axes.set_ylabel(_MOMENTS['mu'])
  axes.set_title('texts by position', fontsize=10)


def _draw_contexts(axes, record):
  """Draws mu of every setting at the base's contexts, and along own texts."""
  base, *others = record['grid']
  looks = {
    base: plotting.Style(f'at the contexts of {base}', 'black', 'none', 'o'),
    'own': plotting.Style('along texts of its own', 'tab:red', 'none', 'x'),
  }
  for contexts, style in looks.items():
    # The base's own contexts are drawn once.
    names = [base, *others] if contexts == base else others
    found = {
      record['grid'].index(name) + 0.3 * (contexts == 'own'): row
      for name in names
      if (row := profile_tables.find(record, name, contexts, 'mu'))
    }
    _draw_rows(axes, list(found), found.values(), style, is_upright=False)
  axes.set_yticks(range(len(record['grid'])), record['grid'], fontsize=8)
  axes.invert_yaxis()
  axes.set_xlim(left=0)
  axes.legend(fontsize=8, loc='lower right')
  axes.set_xlabel(_MOMENTS['mu'])
  axes.set_title('laws by setting', fontsize=10)


def _draw_limits(axes, record):
  """Draws the limit of runs under each setting against capacity."""
  plotting.tokens_against_capacity(
    axes,
    record['table'],
    {f'run_context({k})': style for k, style in _styles(record).items()},
  )
  axes.set_title('limit of any run, from whole laws', fontsize=10)


def _draw_gains(axes, record):
  """Draws what each change adds to the limit, at the largest capacity."""
  capacity = record['flags']['capacities'][-1]
  rows = [row for row in record['gains'] if row['capacity'] == capacity]
  style = plotting.Style('', 'black', 'none', 'o')
  _draw_rows(axes, range(len(rows)), rows, style, is_upright=False)
  axes.set_yticks(range(len(rows)), [row['curve'] for row in rows], fontsize=8)
  axes.invert_yaxis()
  axes.set_ylim(len(rows) - 0.5, -0.5)
  axes.axvline(0, color='0.5', linewidth=1)
  axes.set_xlabel('tokens per iteration D')
  axes.set_title(
    f'added to the limit of {record["sampled"][0]} at N = {capacity}',
    fontsize=10,
  )


def _draw_rows(axes, places, rows, style, is_upright=True):
  """Draws values with their intervals, at places of the other axis."""
  values = [row['D' if 'D' in row else 'value'] for row in rows]
  # Few prompts have no interval.
  spread = [
    [
      0.0 if row[end] is None else abs(row[end] - value)
      for row, value in zip(rows, values, strict=True)
    ]
    for end in ('low', 'high')
  ]
  x, y = (places, values) if is_upright else (values, places)
  axes.errorbar(
    x,
    y,
    **{'yerr' if is_upright else 'xerr': spread},
    color=style.colour,
    linestyle=style.line,
    marker=style.marker,
    markerfacecolor='none',
    markersize=5,
    elinewidth=0.8,
    label=style.label,
  )
  axes.grid(color='0.9')
  axes.set_axisbelow(True)


def _styles(record):
  """Returns the style of each sampled setting; the base has a band."""
  names = record['sampled']
  return {
    name: plotting.Style(name, *look, has_band=name == names[0])
    for name, look in zip(names, itertools.cycle(_LOOKS), strict=False)
  }
