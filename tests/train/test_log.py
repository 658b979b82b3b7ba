"""Tables of runs that were cut anywhere, against their whole rows."""

import pytest

from specjax.train import log

ROWS = [
  {'step': 1.0, 'loss': 2.5, 'seconds': 0.125},
  {'step': 3.0, 'loss': 1.25, 'seconds': 12.5},
  {'step': 12.0, 'loss': 0.75, 'seconds': 10.0625},
]


def write(path, rows):
  table = log.Table(path, 0)
  for row in rows:
    values = {name: x for name, x in row.items() if name != 'step'}
    table.append(int(row['step']), values)


@pytest.fixture
def content(tmp_path):
  """What a table of all rows holds."""
  write(tmp_path / 'whole.csv', ROWS)
  return (tmp_path / 'whole.csv').read_bytes()


# Kinds: a row cut within its last number, or within the first line.
def test_a_row_that_was_cut_short_is_dropped(tmp_path, content):
  path = tmp_path / 'cut.csv'
  for size in range(len(content) + 1):
    path.write_bytes(content[:size])
    num_rows = max(content[:size].count(b'\r') - 1, 0)
    assert log.read_table(path) == ROWS[:num_rows]
  assert num_rows == len(ROWS)


def test_a_table_goes_on_behind_a_step(tmp_path, content):
  path = tmp_path / 'cut.csv'
  for last_step in range(13):
    for size in (len(content), len(content) - 3, 7):
      path.write_bytes(content[:size])
      kept = [r for r in log.read_table(path) if r['step'] <= last_step]
      table = log.Table(path, last_step)
      assert log.read_table(path) == kept
      table.append(20, {'loss': 0.5, 'seconds': 1})
      new = {'step': 20.0, 'loss': 0.5, 'seconds': 1.0}
      assert log.read_table(path) == [*kept, new]


def test_other_names_are_an_error(tmp_path):
  write(tmp_path / 'table.csv', ROWS)
  with pytest.raises(ValueError, match=r"columns \['step', 'loss', 'sec.*got"):
    log.Table(tmp_path / 'table.csv', 12).append(13, {'loss': 1.0})
