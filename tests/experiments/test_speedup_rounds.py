"""Tests of experiments.speed: rounds by a clock that is known, and medians."""

import numpy as np
import pytest

from experiments import recipes
from experiments.speed import forecast, ratios, rounds, tables
from specjax.theory import pass_times, resample

KINDS = ['chat', 'sum']
# Seconds of the ways on the tasks, and of the reading of each.
SECONDS = np.array([[1.0, 2.0, 4.0], [0.5, 2.0, 1.0], [3.0, 3.0, 6.0]])
READING = [0.25, 0.5, 1.0]


class Stage:
  """A clock that is moved by what is done, and a note of that."""

  def __init__(self):
    self.time, self.log = 0.0, []

  def read_fn(self, g):
    def read():
      self.time += READING[g]
      self.log.append(('read', g))
      return g

    return read

  def decode_fn(self, w):
    def decode(rows, batch):
      self.time += SECONDS[w, batch]
      self.log.append((w, batch))
      return [rounds.Output([*range(2 + w)], 1 + row) for row in rows]

    return decode

  def tasks(self):
    rows = ([0, 3], [1], [2, 4])
    kinds = [KINDS[0], KINDS[1], KINDS[1]]
    return [
      rounds.Task(kind, np.array(of), self.read_fn(g))
      for g, (kind, of) in enumerate(zip(kinds, rows, strict=True))
    ]

  def ways(self):
    names = [('plain', 1), ('lookup', 4), ('theirs', 1)]
    return [
      rounds.Way(*name, self.decode_fn(w), is_whole=name[0] == 'theirs')
      for w, name in enumerate(names)
    ]

  def take(self, number):
    return rounds.take(
      self.ways(), self.tasks(), (7, number), 5, clock_fn=lambda: self.time
    )


def test_a_round_runs_every_way_once_on_what_was_just_read():
  orders = set()
  for number in range(3):
    stage = Stage()
    arrays = stage.take(number)
    np.testing.assert_allclose(arrays['seconds'], SECONDS)
    np.testing.assert_allclose(arrays['reading'], READING)
    turns = [stage.log[i : i + 4] for i in range(0, 12, 4)]
    for (what, g), *runs in turns:
      assert what == 'read'
      assert sorted(runs) == [(0, g), (1, g), (2, g)]
    assert sorted(turn[0][1] for turn in turns) == [0, 1, 2]
    orders.add(tuple(stage.log))
    again = Stage()
    again.take(number)
    assert again.log == stage.log  # One seed, one order.
  assert len(orders) == 3
  assert arrays['num_tokens'].tolist() == [[2] * 5, [3] * 5, [4] * 5]
  assert arrays['num_steps'].tolist() == [[1, 2, 3, 4, 5]] * 3
  assert arrays['tokens'][1, 4].tolist() == [0, 1, 2, 0, 0]


def test_all_is_compiled_before_on_the_first_task_of_each_kind():
  stage = Stage()
  rounds.warm_up(stage.ways(), stage.tasks())
  assert stage.log == [
    *(('read', 0), (0, 0), (1, 0), (2, 0)),
    *(('read', 1), (0, 1), (1, 1), (2, 1)),
  ]


@pytest.fixture
def timed():
  """Three rounds, in which the machine slows down: pairs do not mind."""
  stage = Stage()
  found = [stage.take(number) for number in range(3)]
  samples = {k: np.stack([arrays[k] for arrays in found]) for k in found[0]}
  slower = np.array([1.0, 3.0, 10.0])
  samples['seconds'] *= slower[:, None, None]
  samples['reading'] *= slower[:, None]
  tasks = stage.tasks()
  return samples, stage.ways(), tasks, tables.groups_of(tasks, ['sum'])


def test_speeds_are_ratios_of_totals_and_their_geometric_means(timed):
  rows = tables.speed_rows(*timed, seed=0)
  assert len(rows) == 2 * 4  # Not the one that is not ours.
  by = {(row['name'], row['kind']): row for row in rows}
  # 4 tokens in 1 s and 6 in 6 s; 6 in 0.5 s and 9 in 3 s.
  chat, long = (6 / 0.5) / (4 / 1), (9 / 3) / (6 / 6)
  whole_chat = (6 / 0.75) / (4 / 1.25)
  whole_long = (9 / 4.5) / (6 / 7.5)
  for kind, speedup, whole in [
    ('chat', chat, whole_chat),
    ('sum', long, whole_long),
    (ratios.LONG, long, whole_long),
    (ratios.ALL, (chat * long) ** 0.5, (whole_chat * whole_long) ** 0.5),
  ]:
    row = by['lookup', kind]
    # No spread: every round says the same.
    np.testing.assert_allclose(row['speedup'], [speedup] * 3, rtol=1e-5)
    np.testing.assert_allclose(row['whole'], [whole] * 3, rtol=1e-5)
  assert by['plain', 'chat']['speedup'] == [1, 1, 1]
  np.testing.assert_allclose(by['plain', 'chat']['rate'][0], 4 / 3, rtol=1e-5)
  assert by['lookup', 'chat']['D'] == 6 / 5
  assert by['lookup', ratios.ALL]['D'] == 15 / 15


def test_another_library_is_timed_with_the_reading(timed):
  rows = tables.beside_rows(*timed, seed=0)
  assert {row['other'] for row in rows} == {'theirs'}
  by = {(row['name'], row['kind']): row for row in rows}
  # Theirs emits 8 tokens in 3 s and reads in them.
  row = by['lookup', 'chat']
  ratio = (6 / 0.75) / (8 / 3)
  np.testing.assert_allclose(row['ratio'], [ratio] * 3, rtol=1e-5)
  np.testing.assert_allclose(row['rate'][0], 8 / 9, rtol=1e-5)


@pytest.mark.parametrize('num_rounds', [1, 2, 5, 6])
def test_medians_are_those_of_rounds_drawn_again(num_rounds):
  values = np.random.default_rng(0).normal(size=(num_rounds, 2, 3))
  found = ratios.medians(values, seed=3)
  counts = np.random.default_rng(3).multinomial(
    num_rounds, np.full(num_rounds, 1 / num_rounds), size=2000
  )
  drawn = [np.median(np.repeat(values, c, axis=0), axis=0) for c in counts]
  ordered = np.sort(drawn, axis=0)
  np.testing.assert_allclose(found.value, np.median(values, 0), rtol=1e-5)
  np.testing.assert_allclose(found.low, ordered[50], rtol=1e-5)
  np.testing.assert_allclose(found.high, ordered[-51], rtol=1e-5)


MS = np.array([10.0, 14.0, 22.0])
FOUND = {
  'lookup': recipes.Recipe('lookup'),
  'eagle-chain': recipes.Recipe('eagle', 'chain'),
}


def machine(costs=()):
  """Times of 1, 4 and 8 nodes at contexts of 8 and 16 tokens."""
  seconds = np.stack([MS, 2 * MS], axis=-1)[:, None] / 1e3
  grid = pass_times.Grid(
    np.array([1, 4, 8]),
    np.array([1]),
    np.array([8, 16]),
    resample.Interval(seconds, 0.9 * seconds, 1.1 * seconds),
    np.array([[0.0], [0.5e-3], [0.7e-3]]),
  )
  return forecast.Machine(grid, dict(costs))


def test_a_prediction_is_tokens_over_time():
  won = {('lookup', 4): 2.0, ('lookup', 16): 2.5, ('eagle-chain', 4): 3.0}
  found = forecast.speedups(machine(), FOUND, won, 1, context=3)
  # Below the contexts the nearest; nothing of 16 nodes or of eagle's cost.
  assert set(found) == {('plain', 1), ('lookup', 4)}
  assert found['lookup', 4].value == pytest.approx(2 * 10 / (14 + 0.5))
  low, high = found['lookup', 4][1:]
  assert low < found['lookup', 4].value < high

  found = forecast.speedups(machine({'eagle': 0.1}), FOUND, won, 1, context=12)
  # Halfway between the contexts, and three levels to draft.
  expected = 3 * 15 / (21 + 3 * 0.1 * 15 + 2 * 0.5)
  assert found['eagle-chain', 4].value == pytest.approx(expected)


def test_predictions_of_groups_are_geometric_means(timed):
  samples, ways, tasks, groups = timed
  samples['num_steps'] = np.maximum(samples['num_tokens'] // 2, 1)
  found = tables.predictions(
    *timed,
    {'chat': 10.0, 'sum': 20.0},
    lambda won, context: {
      way: resample.Interval(context, tokens, 4 * context)
      for way, tokens in won.items()
    },
  )
  assert set(found) == set(groups)
  assert list(found['chat']) == [('lookup', 4)]
  np.testing.assert_allclose(found['chat']['lookup', 4], [10, 3, 40])
  np.testing.assert_allclose(
    found[ratios.ALL]['lookup', 4], [200**0.5, 3, 4 * 200**0.5]
  )


def test_pass_times_of_another_model_are_refused():
  record = {'flags': {'model': 'small'}, 'table': [], 'visits': []}
  with pytest.raises(ValueError, match='--model=large in --latency, got small'):
    forecast.of_record(record, {'model': 'large'}, {})
