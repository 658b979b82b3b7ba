"""Tests of experiments.latency, and of plans from what it measured."""

import commands
import numpy as np
import pytest
import reference_measured as measured

from experiments import latency, plan, records
from experiments.planning import latency_report, sources
from specjax.decode import latency as latency_lib
from specjax.theory import roofline, roofline_fit


def test_what_was_measured_is_planned_with(tiny_folder, tmp_path):
  result = commands.run(
    latency.NAME,
    model=tiny_folder,
    results_dir=tmp_path,
    run_name='a',
    capacities='1,3',
    batches='2,1',
    contexts=8,
    repeats=6,
    steps=1,
    profile=True,
  )
  assert result.returncode == 0, result.stderr
  folder = tmp_path / latency.NAME / 'a'
  record = records.load_record(folder / 'record.json', sources.LATENCY_COLUMNS)
  assert latency_report.table_text(record) in result.stdout
  assert latency_report.sentence(record) in result.stdout
  assert (folder / 'figure.png').exists()
  [trace] = (folder / 'profile').rglob('*.xplane.pb')
  assert b'jit_run' in trace.read_bytes()  # The loop's program, by its name.
  assert 'profile' not in record['flags']
  with np.load(folder / 'stages' / 'samples.npz') as file:
    samples = dict(file)
  assert samples['passes'].shape == (6, 4)
  assert samples['visits'].shape == (6, 4)
  rates = 1 / np.median(samples['machine'], axis=0)
  assert [record['machine'][k] for k in ('bandwidth', 'peak')] == rates.tolist()
  # Between a slow core and a fast accelerator.
  assert 1e8 < rates[0] < 1e13 and 1e9 < rates[1] < 1e16
  np.testing.assert_allclose(
    sources.grid_of(record).seconds.value,
    np.median(samples['passes'], axis=0).reshape(2, 2, 1),
  )

  curves = tmp_path / 'curves.json'
  rows = measured.rows(['lookup', 'run'], [1, 3, 5])
  for row in rows[::3]:
    row.update(D=1.0, low=1.0, high=1.0)  # A single node.
  records.write_json(curves, measured.record('speed_of_light', rows))
  result = commands.run(
    plan.NAME,
    latency=folder / 'record.json',
    curves=curves,
    context=8,
    batches='1,2,9',
    chip_price=2,
    results_dir=tmp_path,
    run_name='b',
  )
  assert result.returncode == 0, result.stderr
  assert 'FORECAST' not in result.stdout
  assert 'No plan for tiny on cpu with batch 9: not measured.' in result.stdout
  found = records.load_record(tmp_path / plan.NAME / 'b' / 'record.json')
  of_plain, of_three = record['table'][0], record['table'][2]
  [visit] = [
    row['seconds']
    for row in record['visits']
    if (row['capacity'], row['batch']) == (3, 1)
  ]
  [won] = [r for r in rows if (r['curve'], r['capacity']) == ('lookup', 3)]
  time = of_three['seconds'] + visit * (won['D'] - 1)
  speedup = won['D'] * of_plain['seconds'] / time
  # Of capacities 1, 3 and 5 the last was not measured.
  assert [r['capacity'] for r in found['surface'] if r['batch'] == 1] == [1, 3]
  assert found['surface'][1]['speedup'] == pytest.approx(speedup)
  assert found['table'][0]['plain_rate'] == pytest.approx(
    1 / of_plain['seconds']
  )

  result = commands.run(
    plan.NAME,
    latency=folder / 'record.json',
    temperature=0,
    results_dir=tmp_path,
    run_name='c',
  )
  assert result.returncode != 0
  assert 'expected pass times at --temperature=0' in result.stderr
  assert not (tmp_path / plan.NAME / 'c').exists()


def test_sizes_and_work_are_those_of_what_runs(tiny):
  sizes = latency.sizes_of(tiny)
  # Norms are read too, but are no matrices.
  norms = (2 * 2) * 32 * 4
  num_bytes = sizes.weight_bytes * roofline.num_weights(sizes)
  assert num_bytes == 4 * roofline.num_weights(sizes) + norms
  assert sizes.value_bytes == 4
  points = {
    latency_lib.Point(1, 2, 7): 1,
    latency_lib.Point(2, 2, 8): 2,
    latency_lib.Point(5, 1, 9): 1,
  }
  done = latency.work(sizes, list(points))
  for i, (point, num_logits) in enumerate(points.items()):
    expected = roofline.work(sizes, *point, num_logits)
    assert (done.read[i], done.flops[i]) == (expected.read, expected.flops)


def test_what_is_infinite_is_none():
  fit = roofline_fit.Fit(roofline.Machine(2e9, np.inf, 1e-3), {'max': 0.1})
  assert latency.facts_of(fit) == {
    'overhead': 1e-3,
    'bandwidth': 2e9,
    'peak': None,
    'blend': 'max',
    'errors': {'max': 0.1},
  }


def hand_made():
  """A record of two contexts and two batches, each point another time."""
  points = [
    latency_lib.Point(*point)
    for point in [
      *((1, 1, 8), (1, 1, 16), (1, 2, 8), (1, 2, 16)),
      *((4, 1, 8), (4, 1, 16), (4, 2, 8), (4, 2, 16)),
    ]
  ]
  ms = np.array([10, 11, 12, 13, 15, 16, 17, 18]) / 1e3
  timing = latency_lib.Timing(ms, 0.9 * ms, 1.2 * ms, 0.95 * ms, 1.1 * ms)
  table = latency.tabulate(points, timing, model=1.01 * ms, roofline=0.8 * ms)
  visits = latency.tabulate_visits(
    latency.trees_of(points), latency_lib.Timing(*(x[:4] / 10 for x in timing))
  )
  record = measured.record(latency.NAME, table)
  record['flags']['dtype'] = 'float32'
  fit = {
    'overhead': 2e-3,
    'bandwidth': 12.5e9,
    'peak': None,
    'blend': 'max',
    'errors': {'max': 0.01, 'sum': 0.25},
  }
  facts = {
    'visits': visits,
    'fit': fit,
    'machine': {'bandwidth': 16e9, 'peak': 120e9},
    'device': {'kind': 'cpu'},
  }
  return record | facts


def test_the_words():
  record = hand_made()
  assert latency_report.sentence(record) == (
    'In passes over one token of a row, a pass costs 1.50 with 4 tokens. The '
    'machine reads at 16 GB/s and computes at 120 GFLOP/s: plain decoding '
    'takes 1.25 times its roofline. The model: 2.00 ms, reading at 12.5 GB/s '
    'or, if longer, computing at no limit; it is off by 1.0% (root mean square '
    'over 8 points), by 25.0% as a sum of both.'
  )
  head, *lines = latency_report.table_text(record).splitlines()
  assert len(lines) == 8 + 1 + 4
  assert lines[1].replace('[', ' ').replace(',', ' ').replace(
    ']', ''
  ).split() == [
    *('1', '8', '4', '15.00', '13.50', '18.00', '14.25', '16.50'),
    *('1.50', '15.15', '12.00'),
  ]
  assert lines[9].split()[:3] == ['1', '1', '1.00']
  assert '1.00 [   0.90,    1.20]' in lines[9]


def test_the_figure_has_a_panel_a_context():
  figure = latency_report.draw(hand_made())
  assert len(figure.axes) == 2
  for axes, offset in zip(figure.axes, (0, 1), strict=True):
    [one, _] = axes.containers  # A batch each.
    np.testing.assert_allclose(
      one.lines[0].get_ydata(), [10 + offset, 15 + offset]
    )
  labels = [text.get_text() for text in figure.axes[0].get_legend().get_texts()]
  assert '1 row, measured' in labels and '2 rows, measured' in labels


def test_a_grid_with_a_hole_is_refused():
  record = hand_made()
  grid = sources.grid_of(record)
  np.testing.assert_allclose(1e3 * grid.seconds.value[1, 0], [15, 16])
  np.testing.assert_allclose(1e3 * grid.visit_seconds, [[1, 1.1], [1.2, 1.3]])
  del record['table'][3]
  with pytest.raises(ValueError, match=r'got none at \(1, 2, 16\)'):
    sources.grid_of(record)
