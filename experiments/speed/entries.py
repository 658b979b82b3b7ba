"""The rows of a record of `speedup`: which there are, and as text."""

from collections.abc import Mapping, Sequence

from experiments import records
from specjax.theory import planner


def at(record: Mapping, temperature: float) -> dict:
  """Returns the record, as far as it is of one temperature.

  Args:
    record: of `speedup`.
    temperature: one of the record's.
  """
  kept = {
    name: records.select(record[name], temperature=temperature)
    for name in ('table', 'beside', 'checks')
  }
  return {**record, **kept}


def kinds(record: Mapping) -> list[str]:
  """Returns the kinds of prompts, and the groups of them behind."""
  return list(dict.fromkeys(row['kind'] for row in record['table']))


def ways(record: Mapping) -> list[tuple[str, int]]:
  """Returns the ways of decoding as names and capacities, plain first."""
  found = ((row['name'], row['capacity']) for row in record['table'])
  return list(dict.fromkeys(found))


def find(record: Mapping, way: tuple[str, int], kind: str) -> Mapping:
  """Returns the row of a way and a kind, of a record of one temperature."""
  name, capacity = way
  return records.select(
    record['table'], name=name, capacity=capacity, kind=kind
  )[0]


def best(record: Mapping, kind: str) -> Mapping:
  """Returns the row of the fastest fixed choice, of one temperature."""
  rows = records.select(record['table'], kind=kind, is_adaptive=False)
  return max(rows, key=lambda row: row['speedup'][0])


def adaptive_ways(record: Mapping) -> list[tuple[str, int]]:
  """Returns those of `ways` that choose how many nodes they read."""
  chosen = records.select(record['table'], is_adaptive=True)
  return ways({'table': chosen})


def way_words(row: Mapping) -> str:
  """Names the way of a row."""
  name, capacity = row['name'], row['capacity']
  if name == planner.PLAIN:
    return 'plain decoding'
  at = 'up to' if row.get('is_adaptive') else 'at'
  return f'{name} {at} N = {capacity}'


def text(interval: Sequence[float], form: str = '.2f') -> str:
  """Returns a value with its ends."""
  value, low, high = (format(x, form) for x in interval)
  return f'{value} [{low}, {high}]'
