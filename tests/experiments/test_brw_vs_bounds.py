"""Simulated trees against known values, and the record that says so."""

import os
import pathlib
import subprocess
import sys

import jax
import numpy as np
import pytest
import reference_measured as measured

from experiments import brw_report, brw_vs_bounds, curves, records
from specjax.theory import laws

ROOT = pathlib.Path(__file__).parents[2]
CASES = brw_vs_bounds.cases()
CURVES = ['best', 'dual', *curves.IID]


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
  found = best_trees(CASES['zipf'].parts, [2, 5, 17])
  np.testing.assert_allclose(found, expected, atol=1e-4)


def test_trees_of_a_random_environment_differ():
  found = best_trees(CASES['dirichlet'].parts, [1, 6], num_replicas=4)
  assert (found[0] == 1).all()
  assert len(set(found[1])) == 4


def test_pooled_bounds_fail_for_the_mean_over_prompts_and_dual_holds():
  table = brw_vs_bounds.tabulate(CASES['mixture'], [129], 1, 400, 64, seed=0)
  at = {row['curve']: row for row in table}
  assert list(at) == CURVES
  np.testing.assert_allclose(at['best']['D'], 17.47, atol=5e-3)
  np.testing.assert_allclose(at['lorden']['D'], 5.99, atol=5e-3)
  assert at['lorden']['high'] < at['best']['low'] < at['dual']['high']


@pytest.fixture
def record():
  table = [
    {'environment': name, **row}
    for name in CASES
    for row in measured.rows(CURVES)
  ]
  moments = {name: {'mu': 2.0, 'mu2': 5.0} for name in CASES}
  return measured.record(brw_vs_bounds.NAME, table, moments=moments)


def test_a_panel_is_an_environment(record):
  find = lambda curve, n: curves.find(record['table'], curve, n)
  panels = brw_report.draw(record).axes
  assert len(panels) == len(CASES)
  for axes in panels:
    assert axes.get_xscale() == 'log'
    assert axes.get_xlabel() == 'capacity N (tokens of one verifier pass)'
    assert len(
      {(x.get_linestyle(), x.get_marker(), x.get_color()) for x in axes.lines}
    ) == len(CURVES)
    lines = {line.get_label(): line.get_ydata() for line in axes.lines}
    np.testing.assert_array_equal(
      lines['best trees, simulated'],
      [find('best', n)['D'] for n in measured.CAPACITIES],
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


def test_the_command_leaves_record_and_figure(tmp_path):
  flags = {
    'results_dir': tmp_path,
    'run_name': 'small',
    'capacities': '2,9',
    'max_random_nodes': 4,
    'replicas': 3,
    'walks': 20,
    'walk_length': 16,
  }
  done = subprocess.run(
    [
      sys.executable,
      *('-m', 'experiments.brw_vs_bounds'),
      *(f'--{name}={value}' for name, value in flags.items()),
    ],
    env=os.environ
    | {
      'PYTHONPATH': str(ROOT),
      'XLA_FLAGS': '--xla_backend_optimization_level=0',
    },
    text=True,
    capture_output=True,
  )
  assert done.returncode == 0, done.stderr
  folder = tmp_path / brw_vs_bounds.NAME / 'small'
  names = {path.name for path in folder.iterdir()}
  assert names == {'record.json', 'figure.png', 'figure.pdf'}
  record = records.load_record(folder / 'record.json')
  sizes = {
    name: {r['capacity'] for r in record['table'] if r['environment'] == name}
    for name in CASES
  }
  # Trees of random environments are smaller.
  assert sizes == {name: {2, 9} for name in CASES} | {'dirichlet': {2}}
  for name in CASES:
    assert brw_report.sentence(record, name) in done.stdout
