"""Lessons on the disk: what comes back, when, and after which kill."""

import chex
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.train import lesson_files, lessons

NUM_FILES, ROWS, LENGTH = 3, 2, 5


def lesson(index):
  """A batch whose every number tells where it belongs."""
  rng = np.random.RandomState(index)
  ints = lambda: rng.randint(7, size=(ROWS, LENGTH)).astype(np.int32)
  floats = lambda *more: rng.randn(ROWS, LENGTH, *more).astype(np.float16)
  return lessons.Lesson(
    tokens=ints(),
    documents=ints(),
    positions=ints(),
    is_target=rng.rand(ROWS, LENGTH) < 0.5,
    features=floats(4),
    hidden=floats(3),
    log_total=floats().astype(np.float32),
    best=ints(),
  )


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  folder = tmp_path_factory.mktemp('lessons')
  lesson_files.write(folder, range(NUM_FILES), lesson)
  return folder


def test_rows_come_back(folder):
  source = lesson_files.Lessons(folder)
  assert len(source) == NUM_FILES * ROWS
  first, last = lesson(0), lesson(2)
  for name in lesson_files._KINDS:
    ours, theirs = getattr(source.take([5, 0]), name), (last, first)
    np.testing.assert_array_equal(ours[0], getattr(theirs[0], name)[1])
    np.testing.assert_array_equal(ours[1], getattr(theirs[1], name)[0])
  counts = np.zeros(7, int)
  for index in range(NUM_FILES):
    here = lesson(index)
    for token in here.tokens[here.is_target]:
      counts[token] += 1
  np.testing.assert_array_equal(source.count_targets(7), counts)


def test_a_killed_run_goes_on(tmp_path, folder):
  read = []

  def dying(index):
    if index == 2 and len(read) == 2:
      raise KeyboardInterrupt
    read.append(index)
    return lesson(index)

  with pytest.raises(KeyboardInterrupt):
    lesson_files.write(tmp_path, range(NUM_FILES), dying)
  read.append('killed')
  lesson_files.write(tmp_path, range(NUM_FILES), dying)
  assert read == [0, 1, 'killed', 2]
  for path in folder.iterdir():
    assert path.read_bytes() == (tmp_path / path.name).read_bytes()
  assert len([*tmp_path.iterdir()]) == NUM_FILES


def test_an_epoch_has_every_row_once_and_goes_on_where_it_was(folder):
  source = lesson_files.Lessons(folder)
  batches = lesson_files.Shuffled(source, 2, seed=0)
  first = [next(batches) for _ in range(3)]
  state = batches.get_state()
  second = [next(batches) for _ in range(4)]
  sortable = lambda epoch: sorted(
    row.tobytes() for batch in epoch for row in batch.features
  )
  assert sortable(first) == sortable(second[:3])
  assert sortable(first) == sorted(
    row.tobytes()
    for index in range(NUM_FILES)
    for row in lesson(index).features
  )
  orders = [[b.tokens.tolist() for b in e] for e in (first, second[:3])]
  assert orders[0] != orders[1]
  again = lesson_files.Shuffled(source, 2, seed=0)
  again.set_state(state)
  chex.assert_trees_all_equal([next(again) for _ in range(4)], second)


@pytest.mark.parametrize('value', [1e5, np.nan])
def test_what_float16_cannot_hold_is_told(tmp_path, value):
  bad = lesson(0).replace(hidden=jnp.full((ROWS, LENGTH, 3), value))
  with pytest.raises(ValueError, match='expected hidden within 65504'):
    lesson_files.write(tmp_path, [0], lambda _: bad)
  assert not [*tmp_path.glob('*.npy')]


def test_too_few_lessons_are_told(tmp_path, folder):
  with pytest.raises(ValueError, match='expected lessons in .*, got none'):
    lesson_files.Lessons(tmp_path)
  with pytest.raises(ValueError, match='batches of 1 to 6 rows.* got 7'):
    lesson_files.Shuffled(lesson_files.Lessons(folder), 7, seed=0)
