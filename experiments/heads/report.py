"""What a run of train_eagle says: the learning curve, and how it ended."""

import pathlib
from collections.abc import Mapping, Sequence

import matplotlib.figure

from experiments import figure_files

# Of the steps of a draft; the last ones serve deeper steps alike.
_LOOKS = (
  ('black', '-', 'o'),
  ('tab:blue', '--', 's'),
  ('tab:orange', '-.', '^'),
  ('tab:green', ':', 'D'),
)

_PANELS = {
  'loss': 'cross-entropy (nats)',
  'accepted': 'sum of min(p, q)',
  'agreed': 'same best token (share)',
}


def show(record: Mapping, folder: pathlib.Path) -> None:
  """Draws the figure of a run and prints how it ended.

  Args:
    record: of `train_eagle`.
    folder: of the run; figure.png and figure.pdf are written there.
  """
  figure_files.show(draw(record), folder, sentence(record))
  print(f'Head: {folder / "head"}')


def sentence(record: Mapping) -> str:
  """Says what the last evaluation found.

  Args:
    record: of `train_eagle`.
  """
  last = record['table'][-1]
  shares = lambda name: ', '.join(
    f'{last[column]:.3f}' for column in _columns(record['table'], name)
  )
  return (
    f'After {last["step"]:.0f} steps, on held-out texts, by depth of the '
    f'draft: best tokens agree at {shares("agreed")}; a drawn token stands '
    f'with {shares("accepted")}.'
  )


def draw(record: Mapping) -> matplotlib.figure.Figure:
  """Draws held-out loss and acceptance against steps, a curve for each depth.

  Args:
    record: of `train_eagle`.
  """
  table = record['table']
  figure = matplotlib.figure.Figure(figsize=(12, 3.8), layout='constrained')
  panels = figure.subplots(1, len(_PANELS))
  for axes, (name, label) in zip(panels, _PANELS.items(), strict=True):
    _draw_panel(axes, table, name)
    axes.set_ylabel(f'{label}, held out')
  panels[0].legend(title='drafted token')
  return figure


def _draw_panel(axes, table, name):
  for index, column in enumerate(_columns(table, name)):
    colour, line, marker = _LOOKS[min(index, len(_LOOKS) - 1)]
    axes.plot(
      [row['step'] for row in table],
      [row[column] for row in table],
      color=colour,
      linestyle=line,
      marker=marker,
      markersize=4,
      label=str(index + 1),
    )
  axes.set_xlabel('steps of training')
  axes.grid(color='0.9')
  axes.set_axisbelow(True)


def _columns(table: Sequence[Mapping], name: str) -> list[str]:
  """Returns the columns of a metric, by depth of the draft."""
  found = [column for column in table[0] if column.startswith(f'{name}_')]
  return sorted(found, key=lambda column: int(column.rsplit('_', 1)[1]))
