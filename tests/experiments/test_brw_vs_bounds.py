"""Simulated trees against known values, and the record that says so."""

import commands
import jax
import numpy as np
import pytest
import reference_measured as measured

from experiments import (
  brw_vs_bounds,
  curves,
  records,
)
from experiments.walks import report as brw_report
from experiments.walks import sources as brw_sources
from specjax.theory import laws

SOURCES = brw_sources.make()
UNLIKE = [name for name, source in SOURCES.items() if not source.is_iid]
CURVES = ['best', 'dual', *curves.IID]
OF_RUNS = ['best_run', 'run', 'run_context']


def best_trees(parts, capacities, num_replicas=1):
  key = jax.random.key(0)
  return brw_vs_bounds.best_trees(parts, key, num_replicas, capacities)


def test_best_trees_of_flat_laws_are_complete():
  """A tree of depth n has `(k^(n+1) - 1) / (k - 1)` nodes, worth 1 a level."""
  parts = (laws.fixed(laws.uniform(3)), laws.fixed([0.5, 0.5, 0.0]))
  of_three, of_two = np.array([1, 2, 3]), np.array([1, 2 + 1 / 4, 3 + 6 / 8])
  expected = (of_three + of_two)[:, None] / 2
  np.testing.assert_allclose(best_trees(parts, [1, 4, 13]), expected, rtol=1e-6)


def test_known_values_of_a_zipf_law():
  expected = [[1.4290], [1.8473], [2.3661]]
  found = best_trees(SOURCES['zipf'].parts, [2, 5, 17])
  np.testing.assert_allclose(found, expected, atol=1e-4)


def test_trees_of_a_random_environment_differ():
  found = best_trees(SOURCES['dirichlet'].parts, [1, 6], num_replicas=4)
  assert (found[0] == 1).all()
  assert len(set(found[1])) == 4


@pytest.mark.parametrize('name', UNLIKE)
def test_pooled_bounds_fail_for_the_mean_over_starts_and_dual_holds(name):
  table = brw_vs_bounds.at_starts(SOURCES[name], [129], 16, 400, 64, seed=0)
  at = {row['curve']: row for row in table}
  assert list(at) == CURVES
  np.testing.assert_allclose(at['lorden']['D'], 5.99, atol=5e-3)
  assert at['lorden']['high'] < at['best']['low'] < at['dual']['high']
  if name == 'mixture':
    np.testing.assert_allclose(at['best']['D'], 17.47, atol=5e-3)


@pytest.mark.parametrize('name', UNLIKE)
def test_limits_of_runs_hold_for_the_best_trees(name):
  source, capacities = SOURCES[name], [2, 33]
  table = brw_vs_bounds.of_runs(source, capacities, 40, 60, seed=0)
  find = lambda curve, n: curves.find(table, curve, n)
  for capacity in capacities:
    best = find('best_run', capacity)
    assert best['D'] < find('run_context', capacity)['D']
    assert best['D'] < find('run', capacity)['D']
  if name == 'mixture':
    # As many tokens of each law: calls are added up, so the mean is harmonic.
    each = [best_trees([part], [33]) for part in source.parts]
    error = (best['high'] - best['low']) / 3.92
    assert abs(best['D'] - 1.0 / np.mean(1.0 / np.array(each))) < 4 * error


@pytest.fixture
def record():
  table = [
    {'environment': name, **row}
    for name in SOURCES
    for row in measured.rows(CURVES + OF_RUNS * (name in UNLIKE))
  ]
  moments = {name: {'mu': 2.0, 'mu2': 5.0} for name in SOURCES}
  return measured.record(brw_vs_bounds.NAME, table, moments=moments)


def test_a_panel_is_a_source(record):
  *panels, last = brw_report.draw(record).axes
  assert len(panels) == len(SOURCES)
  legend = {text.get_text() for text in last.get_legend().get_texts()}
  for axes, (name, source) in zip(panels, SOURCES.items(), strict=True):
    assert axes.get_title() == source.title
    assert axes.get_xscale() == 'log'
    assert axes.get_xlabel() == 'capacity N (tokens of one verifier pass)'
    lines = {line.get_label(): line for line in axes.lines}
    assert lines.keys() <= legend
    # Told apart without colour.
    looks = {(x.get_marker(), x.get_linestyle()) for x in lines.values()}
    assert len(looks) == len(axes.lines)
    here = [row for row in record['table'] if row['environment'] == name]
    shown = {'best trees, mean over starts': 'best'}
    if name in UNLIKE:
      shown['best trees, whole runs'] = 'best_run'
    for label, curve in shown.items():
      np.testing.assert_array_equal(
        lines[label].get_ydata(),
        [curves.find(here, curve, n)['D'] for n in measured.CAPACITIES],
      )


def test_the_sentence_says_whether_lorden_holds(record):
  at = {name: curves.find(record['table'], name, 5) for name in CURVES}
  said = brw_report.sentence(record, 'zipf')
  assert said.startswith('zipf: at capacity 5 the best trees win ')
  for name in ('best', 'dual', 'printed', 'sharp', 'lorden'):
    assert f' {at[name]["D"]:.2f}' in said
  assert 'slope is 3.50 times 1/mu' in said
  assert 'holds' in said
  at['lorden']['D'] = at['best']['low'] - 0.1
  assert 'FAILS' in brw_report.sentence(record, 'zipf')


def test_the_sentence_of_runs_names_their_limits(record):
  here = [row for row in record['table'] if row['environment'] == 'switching']
  said = brw_report.sentence_of_runs(record, 'switching')
  assert said.startswith('switching, whole runs: at capacity 5 the best trees')
  for name in OF_RUNS:
    assert f' {curves.find(here, name, 5)["D"]:.2f} [' in said


def test_the_command_leaves_record_and_figure(tmp_path):
  done = commands.run(
    brw_vs_bounds.NAME,
    results_dir=tmp_path,
    run_name='small',
    capacities='2,9',
    max_random_nodes=4,
    max_run_nodes=4,
    replicas=3,
    texts=4,
    text_length=8,
    walks=20,
    walk_length=16,
  )
  assert done.returncode == 0, done.stderr
  folder = tmp_path / brw_vs_bounds.NAME / 'small'
  names = {path.name for path in folder.iterdir()}
  assert names == {'record.json', 'figure.png', 'figure.pdf'}
  record = records.load_record(folder / 'record.json')
  sizes = {
    (name, curve): set() for name in SOURCES for curve in ('best', 'run')
  }
  for row in record['table']:
    if row['curve'] in ('best', 'run'):
      sizes[row['environment'], row['curve']].add(row['capacity'])
  # Trees of random environments and of runs are smaller.
  for name, source in SOURCES.items():
    assert sizes[name, 'best'] == ({2, 9} if source.is_fixed else {2})
    assert sizes[name, 'run'] == (set() if source.is_iid else {2})
  for name in SOURCES:
    assert brw_report.sentence(record, name) in done.stdout
