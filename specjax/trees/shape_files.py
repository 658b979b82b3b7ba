"""Static shapes in JSON files: the lists of ranks that people publish.

`[[0], [1], [0, 0]]` names three nodes by the ranks on their way from the root,
which is not listed: the root's best continuation, its second, and the best one
of the former.  Medusa (Cai et al. 2024, arXiv 2401.10774) and EAGLE (Li et al.
2024, arXiv 2401.15077) state their trees so.
"""

import json
import os
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from specjax.trees import shapes
from specjax.trees import tree as tree_lib


def from_ways(ways: Sequence[Sequence[int]]) -> shapes.Shape:
  """Returns the shape that has these nodes and the root.

  Args:
    ways: for each node but the root the ranks on its way, in any order.

  Returns:
    The shape; nodes by depth, those of a depth in the order of their ranks.

  Raises:
    ValueError: an entry that is no list of ranks, stands there twice, or lacks
      its parent; it is named by its index.
  """
  if not isinstance(ways, Sequence) or isinstance(ways, str):
    raise ValueError(f'expected a list of lists of ranks, got {ways!r}')
  entries = {}
  for index, way in enumerate(ways):
    _check_ranks(index, way)
    if tuple(way) in entries:
      raise ValueError(
        f'entry {index}: expected every node once, got {list(way)} again, '
        f'which is entry {entries[tuple(way)]}'
      )
    entries[tuple(way)] = index
  nodes = {(): 0}
  parents, ranks = [tree_lib.NO_PARENT], [0]
  for way in sorted(entries, key=lambda way: (len(way), way)):
    if way[:-1] not in nodes:
      raise ValueError(
        f'entry {entries[way]}: expected its parent {list(way[:-1])} in the '
        f'list too, got {list(way)} without'
      )
    nodes[way] = len(parents)
    parents.append(nodes[way[:-1]])
    ranks.append(way[-1])
  return shapes.Shape(np.array(parents, np.int32), np.array(ranks, np.int32))


def to_ways(shape: shapes.Shape) -> list[list[int]]:
  """Returns, for each node but the root, the ranks on its way.

  Args:
    shape: of the tree.
  """
  ways = [[]]
  for node in range(1, len(shape.parents)):
    ways.append([*ways[shape.parents[node]], int(shape.ranks[node])])
  return ways[1:]


def load(path: str | os.PathLike) -> shapes.Shape:
  """Returns the shape that a file holds.

  Args:
    path: of a JSON file.

  Raises:
    ValueError: no JSON, or what `from_ways` refuses; the file is named.
    OSError: the file cannot be read.
  """
  try:
    return from_ways(json.loads(pathlib.Path(path).read_text('utf-8')))
  except ValueError as error:
    raise ValueError(f'{path}: {error}') from error


def save(path: str | os.PathLike, shape: shapes.Shape):
  """Writes a shape to a file.

  Args:
    path: of the JSON file.
    shape: to be written.

  Raises:
    OSError: the file cannot be written.
  """
  pathlib.Path(path).write_text(json.dumps(to_ways(shape)) + '\n', 'utf-8')


def _check_ranks(index: int, way: Any):
  is_list = isinstance(way, Sequence) and not isinstance(way, str)
  # A bool is an int to Python, but no rank.
  if not is_list or not way or not all(type(r) is int and r >= 0 for r in way):
    raise ValueError(
      f'entry {index}: expected a list of ranks, whole numbers from 0, '
      f'got {way!r}'
    )
