"""Shapes as lists of ranks, read and written."""

import json

import numpy as np
import pytest

from specjax.trees import sequoia, shape_files, shapes


def test_a_published_list_gives_the_tree_it_draws():
  # As in the papers' lists, a node may stand before its siblings and parents.
  shape = shape_files.from_ways([[0, 0], [0], [1], [0, 1], [0, 0, 2], [1, 0]])
  np.testing.assert_array_equal(shape.parents, [-1, 0, 0, 1, 1, 2, 3])
  np.testing.assert_array_equal(shape.ranks, [0, 0, 1, 0, 1, 0, 2])
  assert shape.parents.dtype == shape.ranks.dtype == np.int32


@pytest.mark.parametrize(
  'shape',
  [
    shapes.chain(1),
    shapes.chain(5),
    shapes.k_ary(9, 3),
    shapes.best_first(20, [0.2, 0.5, 0.1]),
    sequoia.best(20, [0.2, 0.5, 0.1], depth=3),
  ],
)
def test_what_is_saved_is_loaded(shape, tmp_path):
  path = tmp_path / 'shape.json'
  shape_files.save(path, shape)
  loaded = shape_files.load(path)
  assert len(loaded.parents) == len(shape.parents)
  # The same nodes, whatever their order.
  ways = shape_files.to_ways(loaded)
  assert sorted(ways) == sorted(shape_files.to_ways(shape))
  # Parents come first and siblings by rank: the order is settled.
  assert ways == sorted(ways, key=lambda way: (len(way), way))


@pytest.mark.parametrize(
  'content, message',
  [
    ('[[0], [1, 0]]', r'entry 1: expected its parent \[1\]'),
    ('[[0], [1], [0]]', r'entry 2: .* again, which is entry 0'),
    ('[[0], []]', r'entry 1: expected a list of ranks.*got \[\]'),
    ('[[0], [-1]]', r'entry 1: .*got \[-1\]'),
    ('[[true]]', r'entry 0: .*got \[True\]'),
    ('[[0], [0.5]]', r'entry 1: .*got \[0.5\]'),
    ('[[0], "00"]', r"entry 1: .*got '00'"),
    ('[[0], 1]', 'entry 1: .*got 1'),
    ('{"parents": [-1]}', 'expected a list of lists of ranks'),
    ('"0"', 'expected a list of lists of ranks'),
    ('[[0]', 'delimiter'),
  ],
)
def test_faults_name_file_and_entry(content, message, tmp_path):
  path = tmp_path / 'faulty.json'
  path.write_text(content, 'utf-8')
  with pytest.raises(ValueError, match=f'faulty.json: .*{message}'):
    shape_files.load(path)


def test_a_file_is_a_plain_list(tmp_path):
  path = tmp_path / 'shape.json'
  shape_files.save(path, shapes.k_ary(4, 2))
  assert json.loads(path.read_text('utf-8')) == [[0], [1], [0, 0]]
