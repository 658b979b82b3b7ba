"""The waterfall and the sentence say what the record says."""

import matplotlib.colors
import numpy as np
import pytest
import reference_measured as measured

from experiments import waterfall, where_tokens_go

SIZES = [4, 16]
LABELS = {
  'printed': 'printed bound (O(1) omitted)',
  'run': 'limit of any run',
  'run_context': 'limit of any run, from whole laws',
  'run_priced': 'limit of any run, from best trees',
  'oracle_run': "the oracle's own run",
  'oracle_at(oracle_run)': 'best trees at its starts',
  'oracle_at(lookup)': 'best trees at the starts of lookup',
  'won_at(lookup)': 'trees of lookup there',
  'lookup': 'lookup: achieved',
}


def make_record(vacuous=()):
  """Levels that fall but for one gain, and their differences."""
  names = [name for name in LABELS if name not in vacuous]
  falling = measured.rows(names[::-1], SIZES)
  table = [row for name in names for row in falling if row['curve'] == name]
  find = {(row['curve'], row['capacity']): row for row in table}
  for size in SIZES:
    upper, lower = (
      find[name, size] for name in ('oracle_run', 'oracle_at(oracle_run)')
    )
    upper['D'], lower['D'] = lower['D'], upper['D']
  causes = where_tokens_go.CAUSES[1 - len(names) :]
  losses = [
    {
      'capacity': size,
      'curve': cause,
      'D': find[names[i], size]['D'] - find[names[i + 1], size]['D'],
      'low': -0.5,
      'high': 9.25,
    }
    for i, cause in enumerate(causes)
    for size in SIZES
  ]
  record = measured.record('where_tokens_go', table, losses=losses)
  record['flags']['capacities'] = SIZES
  return record


BOUNDS = ('printed', 'run', 'run_context', 'run_priced')
RECORDS = [make_record(), make_record(BOUNDS)]


@pytest.mark.parametrize('record', RECORDS)
def test_a_bar_is_a_level_or_lies_between_two(record):
  panels = waterfall.draw(record).axes
  assert len(panels) == len(SIZES)
  for axes, size in zip(panels, SIZES, strict=True):
    assert axes.get_xlabel() == 'tokens per iteration D (bonus included)'
    assert axes.get_title() == f'capacity N = {size}'
    levels, losses = (
      [row for row in record[name] if row['capacity'] == size]
      for name in ('table', 'losses')
    )
    bars = sorted(axes.patches, key=lambda bar: bar.get_y())
    assert len(bars) == len(levels) + len(losses)
    for bar, row in zip(bars[::2], levels, strict=True):
      assert (bar.get_x(), bar.get_width()) == (0, row['D'])
    for i, (bar, row) in enumerate(zip(bars[1::2], losses, strict=True)):
      ends = sorted([bar.get_x(), bar.get_x() + bar.get_width()])
      assert bar.get_width() == row['D']
      np.testing.assert_allclose(
        ends, sorted(level['D'] for level in levels[i : i + 2])
      )
    labels = [label.get_text() for label in panels[0].get_yticklabels()]
    assert labels[::2] == [LABELS[row['curve']] for row in levels]
    assert labels[1::2] == [row['curve'] for row in losses]
    assert axes.get_xlim()[1] > max(row['high'] for row in levels)
    # The first level is on top.
    assert axes.get_ylim()[0] > axes.get_ylim()[1]


def test_losses_and_gains_differ_in_print():
  record = RECORDS[0]
  axes = waterfall.draw(record).axes[0]
  bars = sorted(axes.patches, key=lambda bar: bar.get_y())
  look = lambda bar: (
    np.mean(matplotlib.colors.to_rgb(bar.get_facecolor())),
    bar.get_hatch(),
  )
  losses = [row['D'] for row in record['losses'] if row['capacity'] == SIZES[0]]
  assert min(losses) < 0 < max(losses)
  kinds = {
    'level': {look(bar) for bar in bars[::2]},
    'lost': {look(b) for b, d in zip(bars[1::2], losses, strict=True) if d > 0},
    'gained': {
      look(b) for b, d in zip(bars[1::2], losses, strict=True) if d < 0
    },
  }
  assert all(len(looks) == 1 for looks in kinds.values())
  assert len(set.union(*kinds.values())) == 3


@pytest.mark.parametrize(
  'record, top', [(RECORDS[0], 'run_priced'), (RECORDS[1], 'oracle_run')]
)
def test_the_sentence_has_the_numbers_of_the_table(record, top):
  find = {
    (row['curve'], row['capacity']): row
    for row in [*record['table'], *record['losses']]
  }
  cell = lambda name: '{D:.2f} [{low:.2f}, {high:.2f}]'.format(**find[name, 16])
  names = list(LABELS)
  causes = where_tokens_go.CAUSES[names.index(top) :]
  worst = max(causes, key=lambda cause: find[cause, 16]['D'])
  assert waterfall.sentence(record) == (
    f'At capacity 16 lookup achieves {cell("lookup")} tokens an iteration of '
    f'the {cell(top)} of {top}. The most are lost to {worst}: {cell(worst)}.'
  )


def test_an_endless_interval_is_drawn_to_the_edge():
  record = make_record()
  record['table'][0]['high'] = None
  axes = waterfall.draw(record).axes[0]
  whisker = axes.lines[0]
  assert whisker.get_xdata()[1] == axes.get_xlim()[1]


def test_all_is_printed_and_drawn_the_same(tmp_path, capsys):
  record = make_record()
  folders = [tmp_path / 'first', tmp_path / 'second']
  for folder in folders:
    folder.mkdir()
    waterfall.show(record, folder)
    said = capsys.readouterr().out
    assert waterfall.sentence(record) in said
    for name in [*LABELS, *where_tokens_go.CAUSES]:
      assert f'\n{name} ' in said
  for name, magic in [('figure.png', b'\x89PNG'), ('figure.pdf', b'%PDF')]:
    first, second = ((folder / name).read_bytes() for folder in folders)
    assert first == second
    assert first.startswith(magic)
