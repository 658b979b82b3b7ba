"""Figures as files, the same bytes for the same figure, with printed words."""

import pathlib

import matplotlib.figure


def show(
  figure: matplotlib.figure.Figure, folder: pathlib.Path, *paragraphs: str
) -> None:
  """Writes a run's figure; prints what the run says and where the figure lies.

  Args:
    figure: of the run.
    folder: of the run; figure.png and figure.pdf are written there.
    *paragraphs: what is printed, a blank line between any two.
  """
  save(figure, folder / 'figure')
  print('\n\n'.join(paragraphs))
  print(f'Figure: {folder / "figure.png"}')


def save(figure: matplotlib.figure.Figure, stem: pathlib.Path) -> None:
  """Writes `stem.png` and `stem.pdf`.

  Args:
    figure: what is drawn.
    stem: of both files, in a folder that exists.
  """
  figure.savefig(f'{stem}.png', dpi=150)
  # Without the date that matplotlib would note.
  figure.savefig(f'{stem}.pdf', metadata={'CreationDate': None})
