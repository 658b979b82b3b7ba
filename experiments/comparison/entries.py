"""The numbers of a record under keys that are the same in every record.

A table is a list of rows.  What a row speaks of stands in the columns of
`LABELS`; its other numbers were measured.  Where it has `low` and `high`, these
are the interval of the column before them.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from experiments import records

# Columns that say what the numbers of a row are about, where it has them.
LABELS = (
  *('environment', 'log', 'model', 'machine', 'batch', 'batch_size', 'context'),
  *('setting', 'contexts', 'temperature', 'rule', 'error', 'drafter', 'curve'),
  *('cause', 'capacity', 'kind', 'moment', 'slope', 'depth', 'above', 'up_to'),
  *('first', 'last', 'step', 'nodes'),
)

# Facts that are no measurements, or as many as the table has.
_LEFT_OUT = {'checks', 'surface', 'partings', 'recipes', 'sizes', 'largest'}


class Key(NamedTuple):
  """What a number is.

  Attributes:
    section: `table`, or the name of a fact.
    labels: names and values of the columns of `LABELS` that its row has.
    quantity: what was measured.
  """

  section: str
  labels: tuple[tuple[str, object], ...]
  quantity: str


class Number(NamedTuple):
  """A value, with its 95 % interval where there is one.

  Attributes:
    value: of the quantity.
    low: end of the interval, None without one.
    high: the other end.
  """

  value: float
  low: float | None = None
  high: float | None = None


def key_of(section: str, row: Mapping[str, object], quantity: str) -> Key:
  """Returns the key of a number in a row.

  Args:
    section: that the row is of.
    row: has the columns of `LABELS` that apply.
    quantity: what the number is.
  """
  labels = tuple((name, row[name]) for name in LABELS if name in row)
  return Key(section, labels, quantity)


def find(record: Mapping[str, object]) -> dict[Key, Number]:
  """Returns all numbers of a record but those that say nothing.

  Args:
    record: as `records.load_record` gives it.

  Raises:
    ValueError: two rows that speak of the same.
  """
  found: dict[Key, Number] = {}
  facts = record.keys() - records.FIELDS.keys() - _LEFT_OUT
  for section in ['table', *sorted(facts)]:
    for key, number in _section(section, record[section]):
      if key in found:
        raise ValueError(
          f'expected rows that differ in {", ".join(LABELS)}, got two of '
          f'{key.quantity} at {dict(key.labels)} in {section}'
        )
      found[key] = number
  return found


def _section(section: str, content: object) -> Iterator[tuple[Key, Number]]:
  is_rows = isinstance(content, list) and all(
    isinstance(row, Mapping) for row in content
  )
  if is_rows:
    for row in content:
      yield from _row(section, row)
  elif isinstance(content, Mapping) and 'low' not in content:
    yield from _row(section, content)
  elif number := _number(content):
    yield Key(section, (), 'value'), number


def _row(
  section: str, row: Mapping[str, object]
) -> Iterator[tuple[Key, Number]]:
  names = [name for name in row if name not in LABELS]
  ends = {'low', 'high'} if {'low', 'high'} <= set(names) else set()
  of_ends = names[names.index('low') - 1] if ends else None
  for name in names:
    if name in ends:
      continue
    number = _number(
      {'value': row[name], 'low': row['low'], 'high': row['high']}
      if name == of_ends
      else row[name]
    )
    if number:
      yield key_of(section, row, name), number


def _number(content: object) -> Number | None:
  """Reads a number, alone or with its interval in any of the spellings."""
  match content:
    case bool():
      return None
    case int() | float():
      return Number(content)
    case {'value': value, 'low': low, 'high': high} if _are(value, low, high):
      return Number(value, low, high)
    case {'value': value} if _are(value):
      return Number(value)
    case [value, low, high] if _are(value, low, high) and low <= value <= high:
      return Number(value, low, high)
  return None


def _are(*values: object) -> bool:
  return all(isinstance(value, int | float) for value in values)
