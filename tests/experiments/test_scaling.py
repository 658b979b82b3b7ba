"""Tests of experiments.scaling: its rows, words, figure and command."""

import json

import commands
import numpy as np
import pytest
import reference_measured as measured

from experiments import plan, records, scaling
from experiments.planning import (
  groups,
  scaling_report,
  scaling_rows,
  scaling_words,
)
from specjax.theory import hardware, pass_times, planner, profiles

CAPACITIES = [1, 4, 16]
CANDIDATES = profiles.of_rates([0.7, 0.1], CAPACITIES, 0.0)


def plan_fn(times: pass_times.PassTimes):
  return planner.plan(times, CANDIDATES)


def group(size, model='llama-3.1-8b', chip='v5p', **changes):
  options = {'context': 1000, 'weight_bytes': 2.0, 'overhead': 0.0}
  return groups.make(model, hardware.PRESETS[chip], size, **options | changes)


def row(num_chips, size, batch, **changes):
  way = scaling_rows.Way('m', 'c', num_chips, group(size, **changes))
  return scaling_rows.row_of(way, batch, CAPACITIES, plan_fn)


def table(counts=(1, 2, 4, 8, 16), batches=(1, 6, 64), **changes):
  """All ways that fit, the best marked."""
  found = [
    row(count, size, batch, **changes)
    for count in counts
    for size in scaling_rows.powers(count)
    for batch in batches
  ]
  return scaling_rows.mark_best([row for row in found if row is not None])


def test_copies_share_out_rows():
  one = row(2, 2, 3)
  assert (one['copies'], one['rows']) == (1, 3)
  # Three copies wait for the fullest, which has as many rows as `one`.
  three = row(6, 2, 8)
  assert (three['copies'], three['rows']) == (3, 3)
  assert three['rate'].value == pytest.approx(one['rate'].value * 8 / 3)
  assert three['rate'].low == pytest.approx(one['rate'].low * 8 / 3)
  assert three['plain_rate'] == pytest.approx(one['plain_rate'] * 8 / 3)
  for name in ('speedup', 'name', 'capacity', 'D', 'pass', 'plain_pass'):
    assert three[name] == one[name]
  # Six chips for an hour make as many tokens as these cost.
  dollars = 6 * hardware.PRESETS['v5p'].price
  tokens = 3600 * three['rate'].value
  assert three['price'] * tokens / 1e6 == pytest.approx(dollars)
  # A copy without rows wins nothing.
  assert row(4, 2, 1)['rate'] == row(2, 2, 1)['rate']


def test_passes_by_hand():
  """Llama-3.1-8B on two chips of v5p, a row of 1000 tokens, one node."""
  found = row(2, 2, 1)['plain_pass']
  attention = 4096 * (32 + 8 + 8 + 32) * 128
  weights = 32 * (attention + 3 * 4096 * 14336) + 128256 * 4096
  keys = 1001 * 32 * 2 * 8 * 128
  assert found['seconds']['reading'] == pytest.approx(
    2 * (weights + keys) / 2 / 2765e9
  )
  # 65 sums of 4096 numbers: half of it goes there and half comes back.
  assert found['sent'] == 65 * 4096 * 2
  assert found['seconds']['sending'] == pytest.approx(
    65 * (4096 * 2 / 100e9 + 2e-6)
  )
  assert found['limit'] == 'memory'


def test_what_limits_a_pass():
  limit = lambda batch, size, **of: row(size, size, batch, **of)['plain_pass']
  assert limit(1, 1, overhead=1.0)['limit'] == 'overhead'
  assert limit(2000, 1, context=1)['limit'] == 'compute'
  assert limit(2000, 8, context=1, chip='v5e')['limit'] == 'links'
  assert limit(1, 1)['limit'] == 'memory'


@pytest.mark.parametrize('chip', ['v5e', 'v5p'])
@pytest.mark.parametrize('model', ['llama-3.1-8b', 'llama-3.3-70b'])
def test_more_chips_never_emit_less(model, chip):
  found = table(model=model, chip=chip)
  assert found
  for batch in {row['batch'] for row in found}:
    rows = [row for row in found if row['batch'] == batch]
    for mark, value in (('is_best', 'rate'), ('is_best_plain', 'plain_rate')):
      best = [np.ravel(row[value])[0] for row in rows if row[mark]]
      assert len(best) == len({row['num_chips'] for row in rows})
      assert np.all(np.diff(best) >= -1e-9)


def test_groups_hold_what_they_run():
  """No way is left out that has room, and none is there without it."""
  sizes = [2.0, 4.0]  # bytes of a weight
  for weight_bytes in sizes:
    found = {
      (row['num_chips'], row['group'], row['batch'])
      for row in table(chip='v5e', weight_bytes=weight_bytes)
    }
    for count in (1, 2, 4, 8, 16):
      for size in scaling_rows.powers(count):
        for batch in (1, 6, 64):
          rows = -(-batch * size // count)
          # Sixteen chips have all eight heads each, all others an equal part.
          heads = 8 if size == 16 else 8 / size
          kept = 32 * 4096 * 2 * heads * 128  # keys and values
          kept += 32 * 4096 * (2 * 32 * 128 + 3 * 14336) / size
          kept += 2 * 128256 * 4096 / size
          cached = rows * 1000 * 32 * 2 * heads * 128 * 2
          is_room = kept * weight_bytes + cached <= 0.9 * 16e9
          assert ((count, size, batch) in found) == is_room
    assert len(found) < 45
  assert len(found) > 0


def record():
  left_out = [
    scaling_rows.key_of(
      scaling_rows.Way('m', 'c', 2, group(size, 'llama-3.3-70b')), 64
    )
    for size in (1, 2)
  ]
  rows = table(counts=(2, 8), batches=(1, 64))
  found = measured.record(scaling.NAME, rows) | {
    'flags': {'context': 7},
    'left_out': left_out,
    'basis': 'D of a test',
  }
  return json.loads(json.dumps(found, default=float))


def test_words():
  made = record()
  assert scaling_words.title(made).startswith('FORECAST: ')
  head, _, *lines = scaling_words.table_text(made).splitlines()
  assert len(lines) == 4
  assert {line.count('|') for line in lines} == {head.count('|')}
  cells = lines[-1].strip('| ').split(' | ')
  by_way = {
    row['group']: row
    for row in made['table']
    if (row['num_chips'], row['batch']) == (8, 64)
  }
  best = max(by_way.values(), key=lambda row: row['rate'][0])
  # Eight chips of v5p have 16 TensorCores, on two hosts.
  assert cells[:6] == ['m', 'v5p-16', '8', '2', '64', '1 x 8*']
  assert best['group'] == 8
  assert cells[9] == f'{best["rate"][0]:.0f}'
  assert cells[-1].startswith(f'2 x 4: {by_way[4]["rate"][0]:.0f}, ')
  words = scaling_words.sentence(made).splitlines()
  assert len(words) == 3
  assert words[1].startswith('m on c, 64 rows: best as 1 x 2 of 2, 1 x 8* of 8')
  assert '4 times the chips emit' in words[1]
  assert words[2] == (
    'No room for m on c, 64 rows, where a chip holds 85.5 GB: groups of 1 in '
    'up to 2 copies (151.6 GB a chip or more), groups of 2 in up to 1 copy '
    '(81.0 GB a chip or more).'
  )


def test_the_figure_has_a_line_for_each_way_to_decode():
  made = record()
  made['left_out'][0]['num_chips'] = 1
  [axes] = scaling_report.draw(made).axes
  drawn = {tuple(line.get_ydata()) for line in axes.lines}
  for batch in (1, 64):
    rows = [row for row in made['table'] if row['batch'] == batch]
    assert tuple(r['rate'][0] for r in rows if r['is_best']) in drawn
    assert tuple(r['plain_rate'] for r in rows if r['is_best_plain']) in drawn
  texts = {text.get_text() for text in axes.texts}
  assert texts == {'1 x 2', '1 x 8*', 'no room'}
  labels = [text.get_text() for text in axes.get_xticklabels()]
  assert labels == ['1\n1', '2\n1', '8\n2']


def test_a_chip_alone_is_planned_as_in_plan(tmp_path):
  of_both = {
    'model_presets': 'llama-3.1-8b',
    'capacities': '1,4,16',
    'batches': '1,32',
    'context': 300,
    'overhead_ms': 0.5,
    'results_dir': tmp_path,
    'run_name': 'a',
  }
  for name, flags in (('scaling', {'slices': 'v5p:2'}), (plan.NAME, {})):
    more = flags or {'hardware': 'v5p'}
    result = commands.run(name, **of_both, **more)
    assert result.returncode == 0, result.stderr
    assert 'FORECAST' in result.stdout
  found, planned = (
    records.load_record(tmp_path / name / 'a' / 'record.json')['table']
    for name in ('scaling', plan.NAME)
  )
  alone = [row for row in found if row['num_chips'] == 1]
  assert len(alone) == len(planned) == 2
  for row, expected in zip(alone, planned, strict=True):
    for name in ('batch', 'name', 'capacity'):
      assert row[name] == expected[name]
    for name in ('D', 'rate', 'speedup', 'plain_rate', 'price', 'plain_price'):
      np.testing.assert_allclose(row[name], expected[name])
  assert (tmp_path / 'scaling' / 'a' / 'figure.pdf').exists()


@pytest.mark.parametrize('entry', ['v5e', 'v5e:0', 'v5e:-1', 'x:4', ':4'])
def test_slices_that_are_none_are_named(entry):
  assert scaling.parse_slices(['v5p:8', 'v5e:2']) == {'v5p': 8, 'v5e': 2}
  with pytest.raises(ValueError, match=f'such as v5e:16, .*got {entry!r}'):
    scaling.parse_slices(['v5p:8', entry])


def test_unknown_models_are_named():
  with pytest.raises(ValueError, match="expected models of .*got 'x'"):
    group(1, 'x')


def test_no_room_at_all(tmp_path):
  result = commands.run(scaling.NAME, slices='v5e:1', results_dir=tmp_path)
  assert result.returncode == 2
  assert 'with room for some of --batches=1,64, got v5e:1' in result.stderr
  assert list(tmp_path.iterdir()) == []
