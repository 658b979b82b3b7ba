"""All figures and tables of a study, as files."""

import pathlib

import matplotlib.figure

from experiments import figure_files
from experiments.paper import cells as cells_lib
from experiments.paper import curves, moments, plans, relation, tables


def write(study: cells_lib.Study, folder: pathlib.Path) -> None:
  """Writes what the records of a study suffice for, and nothing else.

  Args:
    study: what is drawn.
    folder: where the files go, which exists.
  """
  _save(folder / 'moments', moments.table(study))
  _save(folder / 'plans', plans.table(study))
  _save(
    folder / 'relation',
    relation.table(study),
    relation.summary(study),
    relation.draw(study),
  )
  for model in study.models:
    _save(
      folder / f'curves-{model}',
      curves.table(study, model),
      curves.summary(study, model),
      curves.draw(study, model),
    )


def _save(
  stem: pathlib.Path,
  table: tables.Table,
  summary: tables.Table | None = None,
  figure: matplotlib.figure.Figure | None = None,
) -> None:
  """Writes a table, for LaTeX its summary if it has one, and the figure."""
  if not table.rows:
    return
  # A model's name may have a dot, so suffixes are put behind it by hand.
  texts = {
    'csv': tables.csv_text(table.rows),
    'tex': tables.latex_text(summary or table),
  }
  for suffix, text in texts.items():
    pathlib.Path(f'{stem}.{suffix}').write_text(text, 'utf-8')
  if figure:
    figure_files.save(figure, stem)
