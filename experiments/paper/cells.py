"""The cells of a study, each model on each data set, and their records.

A finished sweep leaves in its folder

  grid.txt                                      what was to be run
  records/EXPERIMENT/MODEL+DATA/record.json     what came of it

A run that is called MODEL+DATA belongs to a cell; any other is there for the
sake of these, such as the training of a model.
"""

import pathlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from experiments import records
from experiments.sweeps import grid

# What every row of curves of `D` has.
CURVES = ('capacity', 'curve', 'D', 'low', 'high')

# Experiments that figures and tables of a study are made from -> what every row
# of their tables has.
EXPERIMENTS: Mapping[str, Sequence[str]] = {
  'entropy_profile': CURVES,
  'speed_of_light': CURVES,
  'acceptance': (*CURVES, 'temperature'),
  'plan': ('machine', 'batch', 'name', 'capacity', 'D', 'speedup', 'ceiling'),
}

# In the folder of a sweep.
GRID = 'grid.txt'
RECORDS = 'records'


class Cell(NamedTuple):
  """A model on a data set.

  Attributes:
    model: name of the model.
    data: name of the data set.
    records: experiment -> its record, where there is one.
  """

  model: str
  data: str
  records: Mapping[str, Mapping]


class Study(NamedTuple):
  """What a sweep brought.

  Attributes:
    name: of the sweep.
    cells: model by model, both in the order of the grid.
    missing: runs that there is no record of, as EXPERIMENT/RUN, and why: those
      of the grid that did not finish, and those that a cell lacks in the grid.
  """

  name: str
  cells: Sequence[Cell]
  missing: Mapping[str, str]

  @property
  def models(self) -> list[str]:
    """The models, in the order of the grid."""
    return list(dict.fromkeys(cell.model for cell in self.cells))

  def of(self, model: str) -> list[Cell]:
    """Returns the cells of a model.

    Args:
      model: one of `models`.
    """
    return [cell for cell in self.cells if cell.model == model]


def find(results_dir: pathlib.Path) -> list[pathlib.Path]:
  """Returns the folders of the sweeps that a folder is or holds.

  Args:
    results_dir: folder of a sweep, or of all results.
  """
  found = [results_dir / GRID, *sorted(results_dir.glob(f'sweeps/*/{GRID}'))]
  return [path.parent for path in found if path.exists()]


def read(folder: pathlib.Path) -> Study:
  """Reads what a sweep brought.

  Args:
    folder: of the sweep.

  Returns:
    The study, without cells where no run is called MODEL+DATA.

  Raises:
    ValueError: a grid or a record that is none.
  """
  runs = grid.load(folder / GRID)
  place = lambda run: folder / RECORDS / run / 'record.json'
  missing = {r.path: 'no record' for r in runs if not place(r.path).exists()}
  names = [run.name for run in runs if run.name.count('+') == 1]
  pairs = list(dict.fromkeys(tuple(name.split('+')) for name in names))
  models = list(dict.fromkeys(model for model, _ in pairs))
  cells = []
  for model, data in sorted(pairs, key=lambda pair: models.index(pair[0])):
    found = {}
    for experiment, columns in EXPERIMENTS.items():
      run = f'{experiment}/{model}+{data}'
      if place(run).exists():
        found[experiment] = records.load_record(place(run), columns)
      else:
        missing.setdefault(run, 'not in the grid')
    cells.append(Cell(model, data, found))
  return Study(folder.resolve().name, cells, missing)
