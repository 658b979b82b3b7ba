"""Simulator and heap side by side, and the bench as a command."""

import commands
import numpy as np
import pytest

from experiments import (
  bench_theory,
  records,
)
from experiments.walks import heap_trees
from specjax.theory import laws

LAW = np.array([0.5, 0.3, 0.2])


def heap_draw(parent):
  """The same law everywhere."""
  del parent
  return np.sort(-np.log(LAW)).tolist()


def test_simulator_and_heap_are_timed_on_the_same_trees():
  found = bench_theory.compare(
    laws.fixed(LAW),
    heap_draw,
    num_nodes=20,
    num_replicas=5,
    num_heap_replicas=2,
    num_rounds=2,
    num_workers=2,
    seed=0,
  )
  np.testing.assert_allclose(found['value'], found['heap_value'], atol=1e-5)
  low, high = found['ratio_range']
  assert 0.0 < low <= found['ratio'] <= high
  assert found['trees_per_second'] > 0.0


def test_the_largest_tree_says_whether_it_kept_to_its_memory():
  found = bench_theory.grow_largest(laws.fixed(LAW), 300, 1, seed=0)
  assert 0.0 < found['mebibytes'] <= 1.0
  expected = heap_trees.value(heap_draw, 300)
  np.testing.assert_allclose(found['value'], expected, rtol=1e-5)
  say = lambda **changes: bench_theory.say_size('fixed', 300, **found | changes)
  assert 'within the limit of 1;' in say()
  assert 'OVER the limit of 1;' in say(mebibytes=1.5)
  with pytest.raises(ValueError, match='expected max_bytes >= '):
    bench_theory.grow_largest(laws.fixed(LAW), 10**5, 1, seed=0)


@pytest.mark.parametrize('entry', ['fixed', 'fixed:x', 'other:3', ''])
def test_a_size_that_is_none_is_named(entry):
  assert bench_theory.parse_size('fixed:30', {'fixed': 0}) == ('fixed', 30)
  with pytest.raises(ValueError, match=f'expected --largest .*got {entry!r}'):
    bench_theory.parse_size(entry, {'fixed': 0})


def test_the_command_leaves_a_record_and_says_it(tmp_path):
  done = commands.run(
    bench_theory.NAME,
    results_dir=tmp_path,
    run_name='small',
    nodes=12,
    timed_trees=4,
    pairs=2,
    heap_replicas=2,
    largest='fixed:64,dirichlet:16',
  )
  assert done.returncode == 0, done.stderr
  path = tmp_path / bench_theory.NAME / 'small' / 'record.json'
  record = records.load_record(path)
  assert [row['environment'] for row in record['table']] == [
    'fixed',
    'independent',
    'dirichlet',
  ]
  for row in record['table']:
    assert bench_theory.say_speed(**row) in done.stdout
  assert [row['nodes'] for row in record['largest']] == [64, 16]
  for row in record['largest']:
    assert bench_theory.say_size(**row) in done.stdout
