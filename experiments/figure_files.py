"""Figures as files, the same bytes for the same figure."""

import pathlib

import matplotlib.figure


def save(figure: matplotlib.figure.Figure, stem: pathlib.Path) -> None:
  """Writes `stem.png` and `stem.pdf`.

  Args:
    figure: what is drawn.
    stem: of both files, in a folder that exists.
  """
  figure.savefig(f'{stem}.png', dpi=150)
  # Without the date that matplotlib would note.
  figure.savefig(f'{stem}.pdf', metadata={'CreationDate': None})
