"""Tables as CSV and as LaTeX; numbers keep their intervals in both."""

import csv
import io
import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from experiments import report
from specjax.theory import resample

_LATEX = str.maketrans(
  {
    '\\': r'\textbackslash{}',
    '~': r'\textasciitilde{}',
    '^': r'\textasciicircum{}',
    '<': r'\textless{}',
    '>': r'\textgreater{}',
    '|': r'\textbar{}',
    **{special: f'\\{special}' for special in '&%$#_{}'},
  }
)

# What a cell without a value says.
_NOTHING = '--'


class Table(NamedTuple):
  """Rows that have the same columns.

  Attributes:
    heads: column -> what stands above it in LaTeX.
    rows: column -> text, a number, a `resample.Interval`, or None.
  """

  heads: Mapping[str, str]
  rows: Sequence[Mapping[str, object]]


def csv_text(rows: Sequence[Mapping[str, object]]) -> str:
  """Writes rows as comma separated values below a line of their columns.

  An interval takes three columns, NAME, NAME_low and NAME_high; what holds more
  than one value is written as JSON, None as nothing.

  Args:
    rows: of a table or of a record; one may lack columns of another.
  """
  flat = [_flat(row) for row in rows]
  # The fullest row has all ends of intervals beside what they belong to.
  fullest_first = sorted(flat, key=len, reverse=True)
  columns = dict.fromkeys(name for row in fullest_first for name in row)
  file = io.StringIO()
  writer = csv.DictWriter(file, columns, restval='', lineterminator='\n')
  writer.writeheader()
  writer.writerows(flat)
  return file.getvalue()


def latex_text(table: Table) -> str:
  r"""Writes a `tabular` that has the rules of the package booktabs.

  A value of the first column that is that of the row above is left out.

  Args:
    table: whose text is put so that LaTeX prints it as it is; its heads are
      LaTeX already.
  """
  alignment = ''.join('r' if _is_number(table, n) else 'l' for n in table.heads)
  lines = [
    f'\\begin{{tabular}}{{{alignment}}}',
    r'\toprule',
    _line(table.heads.values()),
    r'\midrule',
  ]
  above = None
  for row in table.rows:
    first, *others = (latex_cell(row[name]) for name in table.heads)
    lines.append(_line(['' if first == above else first, *others]))
    above = first
  return '\n'.join([*lines, r'\bottomrule', r'\end{tabular}', ''])


def latex_cell(value: object) -> str:
  """Returns what a cell says, with two digits and the interval.

  Args:
    value: of a row of a table.
  """
  match value:
    case None:
      return _NOTHING
    case resample.Interval():
      return report.cell(value._asdict())
    case float():
      return f'{value:.2f}'
  return str(value).translate(_LATEX)


def interval(row: Mapping, name: str = 'D') -> resample.Interval:
  """Returns a number of a record's row with its interval.

  Args:
    row: with `low` and `high`.
    name: of the number.
  """
  return resample.Interval(row[name], row['low'], row['high'])


def _flat(row):
  flat = {}
  for name, value in row.items():
    if isinstance(value, resample.Interval):
      flat[name], flat[f'{name}_low'], flat[f'{name}_high'] = value
    else:
      flat[name] = (
        json.dumps(value) if isinstance(value, list | dict) else value
      )
  return flat


def _is_number(table, name):
  return not any(isinstance(row[name], str) for row in table.rows)


def _line(cells):
  return ' & '.join(cells) + r' \\'
