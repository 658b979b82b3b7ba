"""A small study as its sweep leaves it; no value in it is that of another."""

import itertools
import pathlib

import reference_measured as measured

from experiments import curves, records
from experiments.sweeps import grid

CAPACITIES = [1, 4, 16]

GRID = """
model = wide,deep
data = chat,code
train --run_name={model}
speed_of_light --run_name={model}+{data} after=train/{model}
acceptance --run_name={model}+{data} --seed=1
entropy_profile --run_name={model}+{data}
plan --run_name={model}+{data} after=acceptance/{model}+{data}
plan --run_name={model}+{data}+seed=1
"""

# Name of a curve -> drafter, tree and rule.
RECIPES = {
  'lookup': ('lookup', '', 'match'),
  'eagle-chain': ('eagle', 'chain', 'match'),
  'eagle-beam': ('eagle', 'beam', 'match'),
  'eagle-chain-block': ('eagle', 'chain', 'block'),
  'oracle': ('oracle', '', 'match'),
}
LIMITS = ('run', 'run_context', 'run_priced', 'oracle_run')


def main_job(shift=0.0, **facts):
  """A record of `speed_of_light`."""
  names = ['lookup', 'bigram', 'oracle_run', 'won_at(bigram)', *curves.BOUNDS]
  record = measured.record(
    'speed_of_light', _rows(names, shift), **{'vacuous': [], **facts}
  )
  record['flags']['capacities'] = CAPACITIES
  record['flags']['drafters'] = ['lookup', 'bigram']
  return record


def acceptance(shift=0.0, temperatures=(0.0, 1.0)):
  """A record of `acceptance`."""
  names = [*RECIPES, *LIMITS]
  table = [
    {**row, 'temperature': temperature}
    for temperature in temperatures
    for row in _rows(names, shift + temperature)
    if row['capacity'] > 1
  ]
  fields = ('drafter', 'tree', 'rule')
  record = measured.record(
    'acceptance',
    table,
    recipes={k: dict(zip(fields, v, strict=True)) for k, v in RECIPES.items()},
  )
  record['flags']['capacities'] = CAPACITIES[1:]
  record['flags']['temperatures'] = list(temperatures)
  return record


def entropy_profile(shift=0.0):
  """A record of `entropy_profile`, as far as the study needs it."""
  places = itertools.product(
    ['T=1', 'T=0.6'], ['own', 'T=1'], [None, 'code'], ['mu', 'mu2']
  )
  moments = [
    {
      **dict(
        zip(['setting', 'contexts', 'kind', 'moment'], place, strict=True)
      ),
      'value': 2 + shift + number,
      'low': 1.5 + shift + number,
      'high': 2.25 + shift + number,
    }
    for number, place in enumerate(places)
  ]
  return measured.record(
    'entropy_profile',
    _rows(['run(T=1)'], shift),
    sampled=['T=1', 'T=0.6'],
    moments=moments,
  )


def plan(shift=0.0):
  """A record of `plan`, for two batches of which one cannot be run."""
  row = {
    'model': 'model',
    'machine': 'v5p x 4',
    'batch': 8,
    'is_forecast': True,
    'name': 'eagle-beam',
    'capacity': 16,
    'D': 3.0 + shift,
    'seconds': 0.5,
    'rate': [60.0, 50.0, 70.0],
    'speedup': [3.0 + shift, 2.5 + shift, 3.5 + shift],
    'ceiling': 100.0,
    'plain_rate': 20.0,
    'price': None,
    'plain_price': None,
  }
  place = {'model': 'model', 'machine': 'v5p x 4', 'batch': 32}
  return measured.record('plan', [row], left_out=[place])


def train(shift=0.0):
  """A record of something that no cell is drawn from."""
  return measured.record('train', [{'step': 0, 'loss': shift}])


MAKERS = {
  'speed_of_light': main_job,
  'acceptance': acceptance,
  'entropy_profile': entropy_profile,
  'plan': plan,
}


def write(folder: pathlib.Path, without=(), experiments=('train', *MAKERS)):
  """Writes a sweep's folder, all cells different, without some of its runs.

  Args:
    folder: made.
    without: runs that have no record, as EXPERIMENT/RUN.
    experiments: all others have none either.

  Returns:
    The folder.
  """
  folder.mkdir(parents=True, exist_ok=True)
  (folder / 'grid.txt').write_text(GRID)
  cells = ['wide+chat', 'wide+code', 'deep+chat', 'deep+code']
  for run in grid.parse(GRID):
    if run.experiment in experiments and run.path not in without:
      path = folder / 'records' / run.path
      path.mkdir(parents=True)
      number = cells.index(run.name) if run.name in cells else 9
      content = {**MAKERS, 'train': train}[run.experiment](number / 8)
      records.write_json(path / 'record.json', content)
  return folder


def _rows(names, shift):
  rows = measured.rows(names, CAPACITIES)
  ends = ('D', 'low', 'high')
  return [
    {**row, **{k: row[k] + shift * (row['capacity'] > 1) for k in ends}}
    for row in rows
  ]
