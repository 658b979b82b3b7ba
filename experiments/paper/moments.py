"""The table of `mu` and `mu2` by model and data set."""

from experiments.paper import cells as cells_lib
from experiments.paper import tables
from experiments.profile import tables as profile_tables

_HEADS = {
  'model': 'model',
  'data': 'data',
  'mu': r'$\mu$ (nats)',
  'mu2': r'$\mu_2$ (nats$^2$)',
}


def table(study: cells_lib.Study) -> tables.Table:
  """Makes the table: mean entropy and mean squared surprisal of each cell.

  They are of the laws along texts that were sampled from these very laws, all
  prompts together, as `entropy_profile` found them.

  Args:
    study: whose cells have a row each, if they have that record.
  """
  rows = []
  for cell in study.cells:
    if record := cell.records.get('entropy_profile'):
      base = record['sampled'][0]
      found = {
        name: profile_tables.find(record, base, 'own', name)
        for name in ('mu', 'mu2')
      }
      rows.append(
        {
          'model': cell.model,
          'data': cell.data,
          **{k: tables.interval(row, 'value') for k, row in found.items()},
        }
      )
  return tables.Table(_HEADS, rows)
