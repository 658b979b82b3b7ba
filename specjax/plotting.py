"""Records become pictures: from table rows to axes, no files and no sums."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import matplotlib.axes
import matplotlib.ticker


class Style(NamedTuple):
  """How a curve is drawn; curves are told apart without colour.

  Attributes:
    label: its name in words.
    colour: of line, marker and band.
    line: line style.
    marker: marker, '' for none.
    has_band: whether its interval is shown.
  """

  label: str
  colour: str
  line: str = '-'
  marker: str = ''
  has_band: bool = True


def tokens_against_capacity(
  axes: matplotlib.axes.Axes,
  table: Sequence[Mapping[str, object]],
  styles: Mapping[str, Style],
) -> None:
  """Draws `D` against capacity with its bands, a curve for each style.

  Args:
    axes: to draw on; the capacity is on a logarithmic axis.
    table: rows of `capacity`, `curve`, `D`, `low` and `high`; rows without a
      value are left out.
    styles: name of the curve -> style, in the order of the legend.
  """
  for name, style in styles.items():
    rows = [r for r in table if r['curve'] == name and r['D'] is not None]
    sizes = [row['capacity'] for row in rows]
    axes.plot(
      sizes,
      [row['D'] for row in rows],
      linestyle=style.line,
      marker=style.marker,
      color=style.colour,
      label=style.label,
      markersize=4,
    )
    if style.has_band:
      axes.fill_between(
        sizes,
        [row['low'] for row in rows],
        [row['high'] for row in rows],
        color=style.colour,
        alpha=0.12,
        linewidth=0,
      )
  axes.set_xscale('log', base=2)
  sizes = sorted({row['capacity'] for row in table})
  axes.set_xticks(sizes)
  axes.xaxis.set_major_formatter(matplotlib.ticker.ScalarFormatter())
  axes.set_xlabel('capacity N (tokens of one verifier pass)')
  axes.set_ylabel('tokens per iteration D (bonus included)')
  axes.grid(color='0.9')
  axes.set_axisbelow(True)
