"""What tables say can be read back from their files."""

import csv
import io
import json
import re

import pytest

from experiments.paper import tables
from specjax.theory import resample

SPECIAL = r'50 % of_a & b \ {c} #1 $2 ~x^y <z> |'
WORDS = {
  r'\textbackslash{}': '\\',
  r'\textasciitilde{}': '~',
  r'\textasciicircum{}': '^',
  r'\textless{}': '<',
  r'\textgreater{}': '>',
  r'\textbar{}': '|',
}
ROWS = [
  {'model': 'a_1', 'data': 'x', 'D': None, 'N': 4, 'share': 0.256},
  {
    'model': 'a_1',
    'data': 'y & z',
    'D': resample.Interval(1.5, 1.25, 2.0),
    'N': 16,
    'share': 2.0,
  },
]
HEADS = {'model': 'model', 'data': 'data', 'D': '$D$', 'N': '$N$'}


def printed(latex):
  """What LaTeX prints for a text, by a reader of its own."""
  text = ''
  while latex:
    word = re.match(r'\\text\w+\{\}|\\[&%$#_{}]|[^\\&%$#_{}~^<>|]', latex)[0]
    text += WORDS.get(word, word[-1])
    latex = latex[len(word) :]
  return text


def read(text):
  return list(csv.DictReader(io.StringIO(text)))


def test_latex_prints_the_text_itself():
  assert printed(tables.latex_cell(SPECIAL)) == SPECIAL


@pytest.mark.parametrize(
  'value, text',
  [
    (None, '--'),
    (7, '7'),
    (0.256, '0.26'),
    (resample.Interval(1.234, 1.0, 2.0), '1.23 [1.00, 2.00]'),
    (resample.Interval(1.234, 1.0, None), '1.23 [1.00, inf]'),
    (resample.Interval(1.234, None, None), '1.23'),
    (resample.Interval(None, None, None), 'says nothing'),
  ],
)
def test_a_cell_keeps_its_interval(value, text):
  assert tables.latex_cell(value) == text


def test_a_table_in_latex():
  assert tables.latex_text(tables.Table(HEADS, ROWS)) == (
    r"""\begin{tabular}{llrr}
\toprule
model & data & $D$ & $N$ \\
\midrule
a\_1 & x & -- & 4 \\
 & y \& z & 1.50 [1.25, 2.00] & 16 \\
\bottomrule
\end{tabular}
"""
  )


def test_csv_gives_back_every_number_and_text():
  found = read(tables.csv_text(ROWS))
  ends = ['D', 'D_low', 'D_high']
  assert list(found[0]) == ['model', 'data', *ends, 'N', 'share']
  assert [found[0][end] for end in ends] == ['', '', '']
  assert [float(found[1][end]) for end in ends] == [1.5, 1.25, 2.0]
  for name in ('model', 'data', 'N', 'share'):
    assert [row[name] for row in found] == [str(row[name]) for row in ROWS]


def test_csv_of_a_record_has_all_columns_and_whatever_is_in_them():
  rows = [
    {'step': 0, 'says': 'a, "b"\nc'},
    {'step': 1, 'rate': [1.0, 0.5, 2.0], 'loss': 1 / 3, 'pass': {'s': 2}},
  ]
  first, second = read(tables.csv_text(rows))
  assert {name for name in first if first[name]} == {'step', 'says'}
  assert first['says'] == 'a, "b"\nc'
  assert json.loads(second['rate']) == [1.0, 0.5, 2.0]
  assert json.loads(second['pass']) == {'s': 2}
  assert float(second['loss']) == 1 / 3
