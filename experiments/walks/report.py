"""What a record of `brw_vs_bounds` says: a figure and sentences."""

import pathlib
from collections.abc import Mapping

import matplotlib.figure

from experiments import figure_files, report
from experiments.walks import sources as brw_sources
from specjax import plotting

_STYLES = {
  'printed': plotting.Style(
    'printed bound (leading term, O(1) omitted)', 'tab:gray', ':', '', False
  ),
  'dual': plotting.Style('limit of any process (dual)', 'tab:green', '-', '^'),
  'best': plotting.Style('best trees, mean over starts', 'black', '-', 'o'),
  'lorden': plotting.Style(
    'i.i.d. bound (Lorden), pooled moments', 'tab:blue', '-.', '', False
  ),
  'lorden_dual': plotting.Style(
    'i.i.d. bound (Lorden, dual), pooled moments',
    'tab:blue',
    '--',
    '',
    False,
  ),
}
_OF_IID = {
  'sharp': plotting.Style(
    'i.i.d. asymptote (no bound)', 'tab:orange', '-', 'x', False
  ),
  'achievable': plotting.Style(
    'i.i.d. bound from below', 'tab:purple', '--', 'v', False
  ),
}
_OF_RUNS = {
  'run_context': plotting.Style(
    'limit of any run, from laws', 'tab:red', '--', 'd'
  ),
  'run': plotting.Style(
    'limit of any run, from log-probs', 'tab:brown', ':', '+'
  ),
  'best_run': plotting.Style('best trees, whole runs', '0.35', '--', 's'),
}
_NUM_COLUMNS = 3


def show(record: Mapping, folder: pathlib.Path) -> None:
  """Draws the figure of a run and prints its sentences.

  Args:
    record: of `brw_vs_bounds`.
    folder: of the run; figure.png and figure.pdf are written there.
  """
  said = []
  for name, source in brw_sources.make().items():
    said.append(sentence(record, name))
    if not source.is_iid:
      said.append(sentence_of_runs(record, name))
  figure_files.show(draw(record), folder, '\n'.join(said))


def draw(record: Mapping) -> matplotlib.figure.Figure:
  """Draws `D` against capacity, a panel a source and the legend in the last."""
  figure = matplotlib.figure.Figure(figsize=(15, 8.5), layout='constrained')
  sources = brw_sources.make()
  *panels, last = figure.subplots(2, _NUM_COLUMNS).flat
  handles = {}
  for axes, (name, source) in zip(panels, sources.items(), strict=True):
    table = _of(record, name)
    styles = _STYLES | (_OF_IID if source.is_iid else _OF_RUNS)
    plotting.tokens_against_capacity(axes, table, styles)
    # The printed bound would flatten everything else.
    shown = [row['D'] for row in table if row['curve'] != 'printed']
    axes.set_ylim(0.9, 1.1 * max(shown))
    axes.tick_params(labelsize=8)
    axes.set_title(source.title, fontsize=10)
    handles |= {line.get_label(): line for line in axes.lines}
  last.axis('off')
  last.legend(handles=list(handles.values()), loc='center')
  figure.suptitle('Best draft trees of known sources, and their bounds')
  return figure


def sentence(record: Mapping, environment: str) -> str:
  """Says in words how the bounds of starts stand at the largest trees."""
  at = _largest(record, environment, 'best')
  best, dual = at['best'], at['dual']
  mu, mu2 = (record['moments'][environment][name] for name in ('mu', 'mu2'))
  verdict = 'FAILS' if at['lorden']['D'] < best['low'] else 'holds'
  return (
    f'{environment}: at capacity {best["capacity"]} the best trees win '
    f'{report.cell(best)} tokens; '
    f'printed {at["printed"]["D"]:.2f}, whose slope is {1 + mu2 / mu:.2f} '
    f'times 1/mu; sharp {at["sharp"]["D"]:.2f}; lorden {at["lorden"]["D"]:.2f} '
    f'{verdict}; dual {report.cell(dual)}.'
  )


def sentence_of_runs(record: Mapping, environment: str) -> str:
  """Says in words how the limits of runs stand at the largest trees of runs."""
  at = _largest(record, environment, 'best_run')
  best = at['best_run']
  return (
    f'{environment}, whole runs: at capacity {best["capacity"]} the best trees '
    f'win {report.cell(best)} tokens a call; run_context '
    f'{report.cell(at["run_context"])}; run {report.cell(at["run"])}.'
  )


def _largest(record, environment, curve):
  """Returns the rows at the largest capacity of a curve, by curve."""
  table = _of(record, environment)
  capacity = max(row['capacity'] for row in table if row['curve'] == curve)
  return {row['curve']: row for row in table if row['capacity'] == capacity}


def _of(record, environment):
  return [r for r in record['table'] if r['environment'] == environment]
