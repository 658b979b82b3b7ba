"""What a record of `brw_vs_bounds` says: a figure and sentences."""

import pathlib
from collections.abc import Mapping

import matplotlib.figure

from experiments import curves, figure_files
from specjax import plotting

_STYLES = {
  'dual': plotting.Style('limit of any process (dual)', 'tab:green', '-', '^'),
  'best': plotting.Style('best trees, simulated', 'black', '-', 'o'),
  'printed': plotting.Style(
    'printed bound (leading term, O(1) omitted)', 'tab:gray', ':', '', False
  ),
  'lorden': plotting.Style(
    'i.i.d. bound (Lorden)', 'tab:blue', '-.', '', False
  ),
  'lorden_dual': plotting.Style(
    'i.i.d. bound (Lorden, dual)', 'tab:blue', '--', '', False
  ),
  'sharp': plotting.Style(
    'i.i.d. asymptote (no bound)', 'tab:orange', '-', 'x', False
  ),
  'achievable': plotting.Style(
    'i.i.d. bound from below', 'tab:purple', '--', 'v', False
  ),
}
_TITLES = {
  'zipf': 'one law: Zipf 1.5 on 50 tokens',
  'peaked': 'one law: 0.85, then 30 tokens of 0.005',
  'dirichlet': 'a new Dirichlet law at every node',
  'mixture': 'prompts of two laws: 0.97 peaked, or 20 tokens flat',
}


def show(record: Mapping, folder: pathlib.Path) -> None:
  """Draws the figure of a run and prints its sentences.

  Args:
    record: of `brw_vs_bounds`.
    folder: of the run; figure.png and figure.pdf are written there.
  """
  figure_files.save(draw(record), folder / 'figure')
  for name in _TITLES:
    print(sentence(record, name))
  print(f'Figure: {folder / "figure.png"}')


def draw(record: Mapping) -> matplotlib.figure.Figure:
  """Draws `D` against capacity, a panel an environment."""
  figure = matplotlib.figure.Figure(figsize=(11, 8.5), layout='constrained')
  panels = figure.subplots(2, 2).flat
  for axes, (name, title) in zip(panels, _TITLES.items(), strict=True):
    table = _of(record, name)
    plotting.tokens_against_capacity(axes, table, _STYLES)
    # The printed bound would flatten everything else.
    shown = [row['D'] for row in table if row['curve'] != 'printed']
    axes.set_ylim(0.9, 1.15 * max(shown))
    axes.tick_params(labelsize=8)
    axes.set_title(title, fontsize=10)
  handles, labels = axes.get_legend_handles_labels()
  figure.legend(handles, labels, loc='outside lower center', ncols=3)
  figure.suptitle('Best draft trees of known sources, and their bounds')
  return figure


def sentence(record: Mapping, environment: str) -> str:
  """Says in words how the bounds stand at the largest trees."""
  table = _of(record, environment)
  capacity = max(row['capacity'] for row in table)
  at = {name: curves.find(table, name, capacity) for name in _STYLES}
  best = at['best']
  mu, mu2 = (record['moments'][environment][name] for name in ('mu', 'mu2'))
  verdict = 'FAILS' if at['lorden']['D'] < best['low'] else 'holds'
  return (
    f'{environment}: at capacity {capacity} the best trees win '
    f'{best["D"]:.2f} [{best["low"]:.2f}, {best["high"]:.2f}] tokens; '
    f'printed {at["printed"]["D"]:.2f}, whose slope is {1 + mu2 / mu:.2f} '
    f'times 1/mu; sharp {at["sharp"]["D"]:.2f}; lorden {at["lorden"]["D"]:.2f} '
    f'{verdict}; dual {at["dual"]["D"]:.2f} [{at["dual"]["low"]:.2f}, '
    f'{at["dual"]["high"]:.2f}].'
  )


def _of(record, environment):
  return [r for r in record['table'] if r['environment'] == environment]
