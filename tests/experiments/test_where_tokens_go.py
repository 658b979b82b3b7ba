"""Losses add up, and the command reads a run of the main job."""

import commands
import jax.numpy as jnp
import numpy as np
import pytest
import reference_measured as measured

from experiments import (
  curves,
  levels,
  records,
  speed_of_light,
  waterfall,
  where_tokens_go,
)

SIZES = [2, 4]


def level(values):
  """`values [C, R]`, the mean over the prompts drawn."""
  values = jnp.asarray(values, float)
  return lambda counts: (values @ counts) / jnp.sum(counts, axis=0)


def make_levels(num_levels):
  rng = np.random.default_rng(num_levels)
  return {f'level-{i}': level(rng.random((2, 7))) for i in range(num_levels)}


@pytest.mark.parametrize('num_levels', [8, 5])
def test_losses_lead_from_each_level_to_the_next(num_levels):
  made = make_levels(num_levels)
  table, losses = where_tokens_go.tabulate(made, SIZES, 7, seed=0)
  causes = where_tokens_go.CAUSES[1 - num_levels :]
  assert [row['curve'] for row in losses[::2]] == list(causes)
  for size in SIZES:
    values = [curves.find(table, name, size)['D'] for name in made]
    lost = [curves.find(losses, cause, size)['D'] for cause in causes]
    np.testing.assert_allclose(lost, -np.diff(values), atol=1e-6)
    np.testing.assert_allclose(sum(lost), values[0] - values[-1], atol=1e-6)
  for row in [*table, *losses]:
    assert row['low'] < row['D'] < row['high']


def test_differences_are_paired():
  values = np.random.default_rng(0).random((2, 7))
  made = {'upper': level(values + 0.25), 'lower': level(values)}
  _, losses = where_tokens_go.tabulate(made, SIZES, 7, seed=0)
  for row in losses:
    assert row['high'] - row['low'] < 1e-6
    assert abs(row['D'] - 0.25) < 1e-6


@pytest.fixture(scope='module')
def results(tmp_path_factory):
  """A folder of results with a run of the main job, and one begun."""
  folder = tmp_path_factory.mktemp('results')
  run = folder / where_tokens_go.SOURCE / 'small'
  run.mkdir(parents=True)
  record = measured.record(where_tokens_go.SOURCE, measured.rows(['lookup']))
  records.write_json(run / 'record.json', record)
  records.write_npz(run / 'arrays.npz', **measured.arrays())
  (run.parent / 'begun').mkdir()
  return folder


def command(results, **flags):
  return commands.run(where_tokens_go.NAME, results_dir=results, **flags)


def test_the_source_is_the_main_job():
  assert where_tokens_go.SOURCE == speed_of_light.NAME


def test_the_command_leaves_record_and_figure(results):
  done = command(results, run_name='small', capacities='1,5')
  assert done.returncode == 0, done.stderr
  folder = results / where_tokens_go.NAME / 'small'
  assert sorted(path.name for path in folder.iterdir()) == [
    'figure.pdf',
    'figure.png',
    'record.json',
  ]
  record = records.load_record(folder / 'record.json')
  # The flags of the run that was read, which is also named.
  expected = measured.record('', [])
  assert record['flags'] == expected['flags'] | {'capacities': [1, 5]}
  assert record['measured_by'] == expected['commit']
  made = levels.find(
    measured.arrays(),
    'lookup',
    measured.CAPACITIES,
    [1, 5],
    measured.LIMIT,
    measured.SEED,
  )
  table, losses = where_tokens_go.tabulate(
    made, [1, 5], measured.NUM_ROWS, measured.SEED
  )
  assert (record['table'], record['losses']) == (table, losses)
  # Of one node all trees are the same.
  for row in losses:
    assert row['capacity'] > 1 or abs(row['D']) < 1e-5
  assert waterfall.sentence(record) in done.stdout


def test_without_a_run_or_a_capacity_of_it_the_command_says_so(results):
  for flags, message in [
    ({}, "of ['small'], got None"),
    ({'run_name': 'begun'}, "of ['small'], got 'begun'"),
    ({'run_name': 'small', 'capacities': 4}, 'of [1, 3, 5], got [4]'),
  ]:
    done = command(results, **flags)
    assert done.returncode == 2
    assert done.stdout == ''
    assert done.stderr.startswith('error: expected ')
    assert done.stderr.endswith(f'{message}\n')
