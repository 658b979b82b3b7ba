"""What a record of `bench` says: a figure, tables and a sentence."""

import pathlib
from collections.abc import Mapping

import matplotlib.figure
import numpy as np

from experiments import figure_files, records
from experiments.footprint import tables

# Seconds within which the first tokens of a warm start have to come.
_PATIENCE = 15

# Looks of what bars are made of, told apart without colour.
_LOOKS = (
  {'facecolor': 'tab:blue', 'hatch': ''},
  {'facecolor': 'tab:orange', 'hatch': '//'},
  {'facecolor': 'white', 'hatch': '..'},
  {'facecolor': 'tab:green', 'hatch': 'xx'},
)
_LINES = (('o', '-'), ('s', '--'), ('^', ':'), ('v', '-.'))

_PART_WORDS = {
  'imports': 'imports',
  'model': 'loading the model',
  'prompts': 'reading prompts',
  'first_tokens': 'first tokens',
}
_MEMORY_WORDS = {
  'imports': 'imports',
  'weights': 'weights',
  'cache': 'cache',
  'beyond': 'beyond these',
}


def show(record: Mapping, folder: pathlib.Path) -> None:
  """Draws the figure of a run and prints its tables and its sentence.

  Args:
    record: of `bench`.
    folder: of the run; figure.png and figure.pdf are written there.
  """
  figure_files.show(
    draw(record),
    folder,
    start_text(record),
    memory_text(record),
    steps_text(record),
    sentence(record),
  )


def draw(record: Mapping) -> matplotlib.figure.Figure:
  """Draws start-ups, memory and step times, a panel each."""
  figure = matplotlib.figure.Figure(figsize=(15, 4.8), layout='constrained')
  panels = figure.subplots(1, 3, width_ratios=[2, 4, 3])
  _draw_starts(panels[0], record['table'])
  _draw_memory(panels[1], record['memory'])
  _draw_steps(panels[2], record['steps'])
  for axes in panels:
    axes.grid(axis='y', color='0.9')
    axes.set_axisbelow(True)
    axes.legend(fontsize=8)
  model = pathlib.Path(record['flags']['model']).name
  figure.suptitle(
    f'{model}, {record["device"]["kind"]} of {record["device"]["host_cores"]} '
    'cores: waiting for the first tokens, memory of a run, and larger caches',
    fontsize=11,
  )
  return figure


def start_text(record: Mapping) -> str:
  """Returns the table of start-ups."""
  lines = ['start  part                 seconds [least, most]']
  for row in record['table']:
    part = _PART_WORDS.get(row['part'], 'in all')
    lines.append(
      f'{row["start"]:<7}{part:<18}{row["seconds"]:>10.2f} '
      f'[{row["low"]:.2f}, {row["high"]:.2f}]'
    )
  return '\n'.join(lines)


def memory_text(record: Mapping) -> str:
  """Returns the table of memory, in megabytes."""
  names = ('imports', 'weights', 'cache', 'peak', 'beyond')
  lines = ['weights  order ' + ''.join(f'{name + " MB":>12}' for name in names)]
  for row in record['memory']:
    numbers = [row[f'{name}_bytes'] / 1e6 for name in names]
    lines.append(
      f'{row["weights"]:<9}{row["order"]:<6}'
      + ''.join(f'{number:>12.0f}' for number in numbers)
    )
  return '\n'.join(lines)


def steps_text(record: Mapping) -> str:
  """Returns the table of step times."""
  lines = [
    'weights  order     N  slots    ms [95 % of the median]  times the fewest'
  ]
  for row in record['steps']:
    ms = [1e3 * row[name] for name in ('seconds', 'low', 'high')]
    lines.append(
      f'{row["weights"]:<9}{row["order"]:<7}{row["capacity"]:>4}'
      f'{row["num_slots"]:>7}{ms[0]:>8.2f} [{ms[1]:>6.2f}, {ms[2]:>6.2f}]'
      f'{row["ratio"]:>9.3f} [{row["ratio_low"]:.3f}, {row["ratio_high"]:.3f}]'
    )
  return '\n'.join(lines)


def sentence(record: Mapping) -> str:
  """Says in words what came out."""
  cold, warm = (
    records.select(record['table'], start=start, part=tables.TOTAL)[0]
    for start in tables.STARTS
  )
  most = max(record['memory'], key=lambda row: row['beyond_bytes'])
  flags = record['flags']
  return (
    f'The first tokens come after {warm["seconds"]:.1f} s, where {_PATIENCE} s '
    f'are allowed, and after {cold["seconds"]:.1f} s where no program was '
    'compiled before. Beside imports, weights and cache a run takes '
    f'{most["beyond_bytes"] / 1e6:.0f} MB at most ({most["weights"]}, '
    f'{most["order"]}), where {tables.ALLOWANCE / 1e6:.0f} are allowed. A '
    f'prompt of {flags["context"]} tokens with {flags["max_new_tokens"]} to '
    f'come is given a cache of {record["num_slots"]} slots.'
  )


def _draw_starts(axes, table):
  bottom = np.zeros(len(tables.STARTS))
  for look, (part, words) in zip(_LOOKS, _PART_WORDS.items(), strict=True):
    rows = records.select(table, part=part)
    heights = np.array([row['seconds'] for row in rows])
    axes.bar(
      tables.STARTS, heights, 0.6, bottom, edgecolor='k', label=words, **look
    )
    bottom += heights
  axes.axhline(_PATIENCE, color='k', linestyle='--', label='allowed, warm')
  axes.set_ylabel('seconds from the start, medians')
  axes.set_title('start-up of speed_of_light --quick', fontsize=10)


def _draw_memory(axes, rows):
  names = [f'{row["weights"]}\n{row["order"]}' for row in rows]
  bottom = np.zeros(len(rows))
  for look, (name, words) in zip(_LOOKS, _MEMORY_WORDS.items(), strict=True):
    heights = np.array([row[f'{name}_bytes'] / 1e6 for row in rows])
    if name == 'beyond':
      axes.scatter(
        names,
        bottom + tables.ALLOWANCE / 1e6,
        600,
        color='k',
        marker='_',
        label='allowed',
      )
    axes.bar(names, heights, 0.6, bottom, edgecolor='k', label=words, **look)
    bottom += heights
  # Room for the legend.
  axes.set_ylim(top=1.3 * (bottom.max() + tables.ALLOWANCE / 1e6))
  axes.set_ylabel('most memory held (MB)')
  axes.set_title('a run of decoding, its compilation included', fontsize=10)


def _draw_steps(axes, rows):
  lines = dict.fromkeys((row['weights'], row['capacity']) for row in rows)
  for place, (weights, capacity) in enumerate(lines):
    found = records.select(rows, weights=weights, capacity=capacity)
    ratios = np.array([row['ratio'] for row in found])
    ends = np.array([[row['ratio_low'], row['ratio_high']] for row in found])
    marker, line = _LINES[place % len(_LINES)]
    axes.errorbar(
      # Slightly apart.
      np.array([row['num_slots'] for row in found]) * 1.02**place,
      ratios,
      np.abs(ends.T - ratios),
      marker=marker,
      linestyle=line,
      capsize=3,
      label=f'{weights} ({found[0]["order"]}), N = {capacity}',
    )
  slots = sorted({row['num_slots'] for row in rows})
  axes.set_xscale('log', base=2)
  axes.set_xticks(slots, [str(number) for number in slots])
  axes.set_xlabel('slots of the cache')
  axes.set_ylabel('time of an iteration over that with the fewest slots')
  axes.set_title('the same tokens in larger caches (95 %)', fontsize=10)
