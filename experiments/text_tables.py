"""Tables as text."""

from collections.abc import Sequence


def aligned(rows: Sequence[Sequence[str]]) -> str:
  """Returns a line a row, columns as wide as their widest cell.

  Args:
    rows: of cells, as many in each.
  """
  widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
  return '\n'.join(
    '  '.join(map(str.ljust, row, widths)).rstrip() for row in rows
  )
