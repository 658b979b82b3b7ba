"""The table of what to run, and how much faster than plain decoding it is."""

from experiments.paper import cells as cells_lib
from experiments.paper import tables
from specjax.theory import resample

_HEADS = {
  'model': 'model',
  'data': 'data',
  'machine': 'machine',
  'batch': 'batch',
  'times': 'pass times',
  'best': 'best',
  'capacity': '$N$',
  'D': '$D$',
  'speedup': 'speed-up',
  'ceiling': 'limit',
}


def table(study: cells_lib.Study) -> tables.Table:
  """Makes the table: the best drafter and tree of each cell and batch.

  The limit is the speed-up of the best size of trees if an iteration emitted
  what the least limit of runs allows.  A place for which there is no plan, for
  want of room or of a measured time, has a row without values.

  Args:
    study: whose cells have a row for each machine and batch, if they have a
      record of `plan`.
  """
  return tables.Table(
    _HEADS,
    [
      {'model': cell.model, 'data': cell.data, **_plan(row)}
      for cell in study.cells
      if (record := cell.records.get('plan'))
      for row in [*record['table'], *record['left_out']]
    ],
  )


def _plan(row):
  place = {name: row[name] for name in ('machine', 'batch')}
  if 'speedup' not in row:
    names = ('times', 'best', 'capacity', 'D', 'speedup', 'ceiling')
    return {**place, **dict.fromkeys(names)}
  ceiling = row['ceiling'] and row['ceiling'] / row['plain_rate']
  return {
    **place,
    'times': 'forecast' if row['is_forecast'] else 'measured',
    'best': row['name'],
    'capacity': row['capacity'],
    'D': row['D'],
    'speedup': resample.Interval(*row['speedup']),
    'ceiling': ceiling,
  }
