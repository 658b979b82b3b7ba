"""What a record of `scaling` says in words: a table and sentences."""

from collections.abc import Mapping

_COLUMNS = (
  *('model', 'slice', 'chips', 'hosts', 'rows', 'copies x chips', 'best', 'N'),
  *('D', 'tokens/s', 'plain tokens/s', 'times plain', 'limit (plain)'),
  *('MB sent (plain)', 'tokens/s a chip', '$ per million (plain)'),
  'other ways: tokens/s',
)
_PASSES = ('pass', 'plain_pass')

# Marks a split with groups over several hosts.
ACROSS = '*'

NOTES = f"""\
Rows are those in flight on all chips.  MB sent: by a chip, in a pass.
Chips are counted, not TensorCores: a v5p-32 has 32 TensorCores in 16 chips.
Fewer chips than the named slice has are a part of it; they alone are priced.
In a group of more chips than the model has key heads every chip has all keys
and values, as in llama.split.
{ACROSS} Groups over several hosts: links reach so far, --parallel does not."""


def title(record: Mapping) -> str:
  """Says what the forecast is made of."""
  return (
    'FORECAST: tokens a second by data sheets, links between chips included, '
    f'which no program reaches; {record["basis"]}; '
    f'{record["flags"]["context"]} tokens of context.'
  )


def table_text(record: Mapping) -> str:
  """Returns the best ways to split chips as a table in Markdown."""
  lines = [f'| {" | ".join(_COLUMNS)} |', '|---' * len(_COLUMNS) + '|']
  for _, rows in _grouped(record['table'], 'model', 'chip', 'batch'):
    for _, same_chips in _grouped(rows, 'num_chips'):
      lines.append(f'| {" | ".join(_cells(same_chips))} |')
  return '\n'.join(lines)


def sentence(record: Mapping) -> str:
  """Says how to split chips, what that wins, and what does not fit."""
  said = []
  for (model, chip, batch), rows in _grouped(
    record['table'], 'model', 'chip', 'batch'
  ):
    best = [row for row in rows if row['is_best']]
    first, last = best[0], best[-1]
    ways = ', '.join(f'{way(row)} of {row["num_chips"]}' for row in best)
    text = (
      f'{model} on {chip}, {num_rows(batch)}: best as {ways} (copies x chips)'
    )
    if last is not first:
      text += (
        f'; {last["num_chips"] // first["num_chips"]} times the chips emit '
        f'{last["rate"][0] / first["rate"][0]:.1f} times the tokens'
      )
    cheapest = min(best, key=lambda row: row['price'])
    said.append(
      f'{text}; a million tokens cost least on {cheapest["num_chips"]}, '
      f'${cheapest["price"]:.2f}.'
    )
  for (model, chip, batch), rows in _grouped(
    record['left_out'], 'model', 'chip', 'batch'
  ):
    groups = [_too_much(rows) for _, rows in sorted(_grouped(rows, 'group'))]
    said.append(
      f'No room for {model} on {chip}, {num_rows(batch)}, where a chip holds '
      f'{rows[0]["usable"] / 1e9:.1f} GB: {", ".join(groups)}.'
    )
  return '\n'.join(said)


def way(row: Mapping) -> str:
  """Says how chips are split: copies x chips of each.

  Args:
    row: of the table.
  """
  across = ACROSS if row['group_hosts'] > 1 else ''
  return f'{row["copies"]} x {row["group"]}{across}'


def num_rows(batch: int) -> str:
  """Says how many rows are in flight.

  Args:
    batch: their number.
  """
  return f'{batch} row{"s" if batch > 1 else ""}'


def _cells(rows):
  """The cells of chips and rows in flight, from all ways to split them."""
  [best] = [row for row in rows if row['is_best']]
  [plain] = [row for row in rows if row['is_best_plain']]
  others = sorted(
    (row for row in rows if row is not best), key=lambda row: -row['rate'][0]
  )
  sent = [f'{best[name]["sent"] / 1e6:,.1f}' for name in _PASSES]
  value, low, high = best['rate']
  return [
    best['model'],
    best['slice'] or best['chip'],
    *map(str, (best['num_chips'], best['hosts'], best['batch'])),
    way(best),
    best['name'],
    str(best['capacity']),
    f'{best["D"]:.2f}',
    f'{value:.0f}' if low == high else f'{value:.0f} [{low:.0f}, {high:.0f}]',
    f'{plain["plain_rate"]:.0f}'
    + ('' if plain is best else f' ({way(plain)})'),
    f'{value / plain["plain_rate"]:.2f}',
    '{} ({})'.format(*(best[name]['limit'] for name in _PASSES)),
    '{} ({})'.format(*sent),
    f'{value / best["num_chips"]:.0f}',
    f'{best["price"]:.2f} ({plain["plain_price"]:.2f})',
    ', '.join(f'{way(row)}: {row["rate"][0]:.0f}' for row in others) or '-',
  ]


def _too_much(rows):
  """Ways with groups of one size: the fewer copies, the more rows in each."""
  least = rows[-1]
  return (
    f'groups of {least["group"]} in up to {least["copies"]} '
    f'cop{"y" if least["copies"] == 1 else "ies"} '
    f'({least["kept"] / 1e9:.1f} GB a chip or more)'
  )


def _grouped(table, *names):
  """Rows that are alike in some columns, in order of first appearance."""
  found = {}
  for row in table:
    found.setdefault(tuple(row[name] for name in names), []).append(row)
  return found.items()
