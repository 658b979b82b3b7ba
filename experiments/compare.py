"""Two records of one experiment side by side: what has changed, for sure?

  launch/run.sh compare results/speed_of_light/{monday,tuesday}
  launch/run.sh compare results/acceptance/{one_head,another}/record.json

Slices of traffic, drafters, commits: whatever two records of one experiment
differ in.  Numbers of the same meaning stand in a line, with the second less
the first.  Where both runs had the same prompts and their stages are there, the
difference is taken prompt by prompt and its 95 % are of a bootstrap over
prompts; elsewhere they follow from both intervals, as if the runs knew nothing
of each other.  A star marks an interval that leaves 0 out.

Writes results/compare/<run>/record.json with the table.
"""

import pathlib
from collections.abc import Mapping, Sequence

from absl import flags

from experiments import common, records, text_tables
from experiments.comparison import differences, entries, shares

FLAGS = flags.FLAGS

NAME = 'compare'

# Fields of records that say how numbers came to be.
_ORIGIN = ('commit', 'device', 'versions')


def main(a: str, b: str):
  """Compares, writes, and says what came out.

  Args:
    a: the first record, or the folder of its run.
    b: the second.
  """
  paths = [find_record(place) for place in (a, b)]
  both = [records.load_record(path) for path in paths]
  found = compare(*both, *paths, FLAGS.seed)
  folder = common.open_run(NAME)
  record = records.new_record(NAME, {'a': a, 'b': b, 'seed': FLAGS.seed})
  apart = origins(*both)
  records.finish_record(
    folder,
    record,
    [row_of(key, difference) for key, difference in found.items()],
    of=both[0]['experiment'],
    apart=apart,
  )
  print(f'A is {paths[0]}, B is {paths[1]}.')
  print('\n'.join(f'{k}: {x} and {y}' for k, (x, y) in apart.items()))
  print(f'\n{tables_text(found)}\n\n{sentence(found)}')


def find_record(place: str) -> pathlib.Path:
  """Returns the file of a record.

  Args:
    place: the file, or the folder of its run.
  """
  path = pathlib.Path(place)
  return path / 'record.json' if path.is_dir() else path


def compare(
  a: Mapping,
  b: Mapping,
  path_a: pathlib.Path,
  path_b: pathlib.Path,
  seed: int,
) -> dict[entries.Key, differences.Difference]:
  """Compares two records.

  Args:
    a: the first.
    b: the second.
    path_a: of the first; what its run left stands beside it.
    path_b: of the second.
    seed: of the resamples.

  Returns:
    Differences by key.

  Raises:
    ValueError: records of different experiments, or with no number in common.
  """
  if a['experiment'] != b['experiment']:
    raise ValueError(
      'expected two records of one experiment, got '
      f'{a["experiment"]} in {path_a} and {b["experiment"]} in {path_b}'
    )
  found = differences.find(
    entries.find(a),
    entries.find(b),
    shares.find(path_a.parent),
    shares.find(path_b.parent),
    seed,
  )
  if not found:
    raise ValueError(
      f'expected numbers that {path_a} and {path_b} have in common, got none'
    )
  return found


def origins(a: Mapping, b: Mapping) -> dict[str, tuple[object, object]]:
  """Returns flags and other origins in which two records differ.

  Args:
    a: the first.
    b: the second.
  """
  names = sorted({*a['flags'], *b['flags']})
  pairs = {f'--{n}': (a['flags'].get(n), b['flags'].get(n)) for n in names}
  pairs |= {name: (a[name], b[name]) for name in _ORIGIN}
  return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def row_of(key: entries.Key, difference: differences.Difference) -> dict:
  """Returns the row of the table of a difference.

  Args:
    key: what differs.
    difference: by how much.
  """
  a, b, change, is_paired = difference
  return {
    'section': key.section,
    **dict(key.labels),
    'quantity': key.quantity,
    'a': a.value,
    'a_low': a.low,
    'a_high': a.high,
    'b': b.value,
    'b_low': b.low,
    'b_high': b.high,
    'difference': change.value,
    'low': change.low,
    'high': change.high,
    'is_paired': is_paired,
  }


def tables_text(
  found: Mapping[entries.Key, differences.Difference],
) -> str:
  """Returns a table for each section, quantity and set of labels.

  Args:
    found: differences by key.
  """
  groups: dict[tuple, list[Sequence[str]]] = {}
  for key, (a, b, change, is_paired) in found.items():
    names = tuple(name for name, _ in key.labels)
    rows = groups.setdefault((key.section, key.quantity, names), [])
    star = '*' if is_sure(change) else ''
    how = 'paired' if is_paired else ''
    values = ['' if value is None else f'{value}' for _, value in key.labels]
    rows.append((*values, _text(a), _text(b), _text(change) + star, how))
  return '\n\n'.join(
    f'{section}: {quantity}\n'
    + text_tables.aligned([(*names, 'A', 'B', 'B - A', ''), *rows])
    for (section, quantity, names), rows in groups.items()
  )


def sentence(found: Mapping[entries.Key, differences.Difference]) -> str:
  """Says how many differences are sure, and how many would be by chance.

  Args:
    found: differences by key.
  """
  changes = [difference.change for difference in found.values()]
  known = [change for change in changes if change.low is not None]
  num_sure = sum(map(is_sure, known))
  num_paired = sum(difference.is_paired for difference in found.values())
  return (
    f'{len(found)} numbers in common, {len(known)} of them with intervals, '
    f'{num_paired} prompt by prompt: {num_sure} differences leave 0 out (*), '
    f'where of as many without a difference {0.05 * len(known):.1f} would.'
  )


def is_sure(change: entries.Number) -> bool:
  """Returns whether the interval of a difference leaves 0 out.

  Args:
    change: the difference.
  """
  return change.low is not None and (change.low > 0 or change.high < 0)


def _text(number: entries.Number) -> str:
  if number.low is None:
    return f'{number.value:.4g}'
  return f'{number.value:.4g} [{number.low:.4g}, {number.high:.4g}]'


if __name__ == '__main__':
  common.run(main, shared=['seed'], arguments=['A', 'B'])
