"""What a record of `where_tokens_go` says: figure, tables and a sentence."""

import pathlib
from collections.abc import Mapping, Sequence

import matplotlib.axes
import matplotlib.figure
import matplotlib.patches

from experiments import figure_files, report

# Told apart in black and white.
_LEVEL = {'facecolor': '0.8', 'edgecolor': 'black'}
_LOST = {'facecolor': 'white', 'edgecolor': 'black', 'hatch': '////'}
_GAINED = {'facecolor': '0.3', 'edgecolor': 'black'}

# Levels above the lowest limit: what is lost there is lost by bounds, not runs.
_LOOSE = ('printed', 'run', 'run_context')


def show(record: Mapping, folder: pathlib.Path) -> None:
  """Draws the figure of a run and prints its tables and its sentence.

  Args:
    record: of `where_tokens_go`.
    folder: of the run; figure.png and figure.pdf are written there.
  """
  losses = report.table_text({**record, 'table': record['losses']})
  figure_files.show(
    draw(record),
    folder,
    report.table_text(record),
    f'Lost from each to the next:\n{losses}',
    sentence(record),
  )


def draw(record: Mapping) -> matplotlib.figure.Figure:
  """Draws levels and what is lost between them, a panel a capacity."""
  flags = record['flags']
  capacities = flags['capacities']
  figure = matplotlib.figure.Figure(
    figsize=(4 + 5 * len(capacities), 6), layout='constrained'
  )
  panels = figure.subplots(1, len(capacities), sharey=True, squeeze=False)[0]
  for axes, capacity in zip(panels, capacities, strict=True):
    _draw_levels(axes, *_at(record, capacity), record['best_drafter'])
    axes.set_title(f'capacity N = {capacity}', fontsize=10)
  panels[0].invert_yaxis()  # Shared: once turns all.
  figure.legend(
    handles=[
      matplotlib.patches.Patch(**_LEVEL, label='level, 95 % over prompts'),
      matplotlib.patches.Patch(**_LOST, label='lost'),
      matplotlib.patches.Patch(**_GAINED, label='gained'),
    ],
    loc='outside lower right',
    ncols=3,
    fontsize=8,
  )
  figure.suptitle(
    f'{pathlib.Path(flags["model"]).name}, '
    f'temperature {flags["temperature"]:g}: where the tokens go'
  )
  return figure


def sentence(record: Mapping) -> str:
  """Says in words what the drafter gets, and by what the most is lost."""
  capacity = record['flags']['capacities'][-1]
  levels, losses = _at(record, capacity)
  levels = [row for row in levels if row['curve'] not in _LOOSE]
  top, last = levels[0], levels[-1]
  worst = max(losses[1 - len(levels) :], key=lambda row: row['D'])
  return (
    f'At capacity {capacity} {last["curve"]} achieves {report.cell(last)} '
    f'tokens an iteration of the {report.cell(top)} of {top["curve"]}. The '
    f'most are lost to {worst["curve"]}: {report.cell(worst)}.'
  )


def _draw_levels(
  axes: matplotlib.axes.Axes,
  levels: Sequence[Mapping],
  losses: Sequence[Mapping],
  drafter: str,
) -> None:
  """Draws a bar a level, and between two of them what lies between."""
  finite = [row[name] for row in levels for name in ('D', 'high') if row[name]]
  end = 1.15 * max(finite)
  labels = []
  for number, level in enumerate(levels):
    place = 2 * number
    axes.barh(place, level['D'], 0.8, **_LEVEL)
    high = end if level['high'] is None else level['high']
    axes.plot([level['low'], high], [place, place], 'k|-', linewidth=1)
    axes.text(max(level['D'], high), place, f'  {level["D"]:.2f}', va='center')
    labels.append(_words(level['curve'], drafter))
    if number < len(losses):
      loss, below = losses[number], levels[number + 1]
      look = _LOST if loss['D'] >= 0 else _GAINED
      axes.barh(place + 1, loss['D'], 0.8, left=below['D'], **look)
      axes.text(
        max(level['D'], below['D']),
        place + 1,
        f'  {-loss["D"]:+.2f}',
        va='center',
      )
      labels.append(loss['curve'])
  axes.set_yticks(range(len(labels)), labels)
  for label in axes.get_yticklabels()[1::2]:
    label.set_style('italic')
  axes.set_xlim(0, end)
  axes.set_xlabel('tokens per iteration D (bonus included)')
  axes.grid(axis='x', color='0.9')
  axes.set_axisbelow(True)


def _words(curve, drafter):
  return {
    'printed': 'printed bound (O(1) omitted)',
    'run': 'limit of any run',
    'run_context': 'limit of any run, from whole laws',
    'run_priced': 'limit of any run, from best trees',
    'oracle_run': "the oracle's own run",
    'oracle_at(oracle_run)': 'best trees at its starts',
    f'oracle_at({drafter})': f'best trees at the starts of {drafter}',
    f'won_at({drafter})': f'trees of {drafter} there',
    drafter: f'{drafter}: achieved',
  }[curve]


def _at(record, capacity):
  """Returns the rows of levels and of losses at a capacity."""
  return tuple(
    [row for row in record[name] if row['capacity'] == capacity]
    for name in ('table', 'losses')
  )
