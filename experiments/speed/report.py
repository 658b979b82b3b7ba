"""What a record of `speedup` says: tables and sentences beside its figure."""

import pathlib
from collections.abc import Mapping, Sequence

from experiments import figure_files, records, text_tables
from experiments.speed import entries, figure, ratios
from specjax.theory import planner

# Predictions so near are right.
_NEAR = 0.10


def show(record: Mapping, folder: pathlib.Path) -> None:
  """Draws the figure of a run and prints its tables and its sentences.

  Args:
    record: of `speedup`.
    folder: of the run; figure.png and figure.pdf are written there.
  """
  paragraphs = []
  for temperature in record['flags']['temperatures']:
    here = entries.at(record, temperature)
    paragraphs += [
      f'temperature {temperature:g}: times plain decoding\n{table_text(here)}',
      *filter(None, [forecast_text(here), beside_text(here)]),
      ' '.join(
        filter(
          None,
          [
            sentence(here),
            verdict(here),
            parting_words(here),
            forecast_words(here),
            adaptive_words(here),
          ],
        )
      ),
    ]
  figure_files.show(figure.draw(record), folder, *paragraphs)


def table_text(record: Mapping) -> str:
  """Returns the speed-ups, a line a way; of plain decoding tokens a second.

  The last column is that of all kinds with the reading of prompts.

  Args:
    record: of one temperature.
  """
  kinds = entries.kinds(record)
  plain, *ways = entries.ways(record)

  def across(way, column, form='.2f'):
    rows = [entries.find(record, way, kind) for kind in kinds]
    return [entries.text(row[column], form) for row in rows]

  lines = [
    ['way', 'N', *kinds, f'{ratios.ALL}, prompts read'],
    ['plain, tokens/s', '1', *across(plain, 'rate', '.1f'), ''],
  ]
  for way in ways:
    whole = entries.find(record, way, ratios.ALL)['whole']
    name, capacity = way
    lines.append(
      [name, str(capacity), *across(way, 'speedup'), entries.text(whole)]
    )
  return text_tables.aligned(lines)


def forecast_text(record: Mapping) -> str:
  """Returns predicted beside measured speed-ups, '' without predictions.

  Args:
    record: of one temperature.
  """
  rows = [row for row in _predicted(record) if row['name'] != planner.PLAIN]
  lines = [['way', 'N', 'kinds', 'D', 'predicted', 'measured', 'off by']]
  lines += [
    [
      row['name'],
      str(row['capacity']),
      row['kind'],
      f'{row["D"]:.2f}',
      entries.text(row['predicted']),
      entries.text(row['speedup']),
      f'{_error(row):+.1%}',
    ]
    for row in rows
    if row['kind'] in (ratios.ALL, ratios.LONG)
  ]
  return text_tables.aligned(lines) if rows else ''


def beside_text(record: Mapping) -> str:
  """Returns our ways beside those of another library, '' without any.

  Args:
    record: of one temperature.
  """
  rows = record['beside']
  kinds = entries.kinds(record)
  lines = [['whole generations, prompts read', 'N', *kinds]]
  for other in dict.fromkeys(row['other'] for row in rows):
    of_other = [row for row in rows if row['other'] == other]
    rates = [
      next(
        entries.text(row['rate'], '.1f')
        for row in of_other
        if row['kind'] == kind
      )
      for kind in kinds
    ]
    lines.append([f'{other}, tokens/s', '', *rates])
    for name, capacity in entries.ways(record):
      ratio = {
        row['kind']: entries.text(row['ratio'])
        for row in of_other
        if (row['name'], row['capacity']) == (name, capacity)
      }
      cells = [ratio[kind] for kind in kinds]
      lines.append([f'  {name} over it', str(capacity), *cells])
  return text_tables.aligned(lines) if rows else ''


def sentence(record: Mapping) -> str:
  """Says which fixed choice is fastest, over all and with long prompts.

  Args:
    record: of one temperature.
  """
  num_kinds = len(entries.kinds(record)) - 1 - bool(record['long_kinds'])
  text = f'Over all {num_kinds} kinds of prompts {_fastest(record, ratios.ALL)}'
  if record['long_kinds']:
    kinds = ', '.join(record['long_kinds'])
    text += f'; with long prompts ({kinds}) {_fastest(record, ratios.LONG)}'
  return f'{text}.'


def adaptive_words(record: Mapping) -> str:
  """Says what choosing the size of trees comes to, '' if nobody chose.

  Args:
    record: of one temperature.
  """
  kinds = [
    kind
    for kind in entries.kinds(record)
    if kind not in (ratios.ALL, ratios.LONG)
  ]
  sentences = []
  for way in entries.adaptive_ways(record):
    rows = [entries.find(record, way, kind) for kind in kinds]
    shares = [
      row['speedup'][0] / entries.best(record, row['kind'])['speedup'][0]
      for row in rows
    ]
    of_all = entries.find(record, way, ratios.ALL)['speedup']
    sentences.append(
      f'{way[0]}: {entries.text(of_all)} times plain decoding over all kinds, '
      f'for each kind at least {min(shares):.1%} of the fastest fixed choice; '
      f'the lowest end of its intervals is '
      f'{min(row["speedup"][1] for row in rows):.3f}.'
    )
  return ' '.join(sentences)


def verdict(record: Mapping) -> str:
  """Says whether the texts are those of plain decoding.

  Args:
    record: of one temperature.
  """
  checks = record['checks']
  if failures := sum(row['failures'] for row in checks):
    names = [entries.way_words(row) for row in checks if row['failures']]
    return (
      f'FAILURE: {failures} texts part from those of plain decoding where no '
      f'tie excuses it, with {", ".join(names)}.'
    )
  exact = records.select(checks, is_exact=True)
  total = lambda name: sum(row[name] for row in exact)
  text = f'All {total("tokens")} tokens are those of plain decoding'
  if not total('partings'):
    return f'{text}.'
  widest = max(row['widest_gap'] for row in exact)
  return f'{text} but at {total("partings")} ties, the widest of {widest:.1e}.'


def parting_words(record: Mapping) -> str:
  """Says how often what rounds otherwise parts, '' if nothing does.

  Args:
    record: of one temperature.
  """
  rows = records.select(record['checks'], is_exact=False)
  return ' '.join(map(_parting, rows))


def forecast_words(record: Mapping) -> str:
  """Says how well the planner did, '' if it was not asked.

  Args:
    record: of one temperature.
  """
  rows = [row for row in _predicted(record) if row['kind'] == ratios.ALL]
  drafted = [row for row in rows if row['name'] != planner.PLAIN]
  if not drafted:
    return ''
  near = sum(abs(_error(row)) <= _NEAR for row in drafted)
  chosen = max(rows, key=lambda row: row['predicted'][0])
  share = chosen['speedup'][0] / entries.best(record, ratios.ALL)['speedup'][0]
  return (
    f'The planner is within {_NEAR:.0%} for {near} of {len(drafted)} choices; '
    f'it chooses {entries.way_words(chosen)}, which reaches {share:.1%} of the '
    'fastest.'
  )


def _parting(row):
  head = f'{row["name"]}, which rounds otherwise, emits'
  if not row['partings']:
    return f'{head} the same {row["tokens"]} tokens.'
  return (
    f'{head} another token at {row["partings"]} of {row["tokens"]} places, '
    f'where our scores lie up to {row["widest_gap"]:.2f} apart.'
  )


def _fastest(record, kind):
  best = entries.best(record, kind)
  if best['name'] == planner.PLAIN:
    return 'nothing is faster than plain decoding'
  way, speedup = entries.way_words(best), entries.text(best['speedup'])
  return f'{way} is fastest, {speedup} times plain decoding'


def _predicted(record) -> Sequence[Mapping]:
  return [row for row in record['table'] if row.get('predicted')]


def _error(row):
  """By how much a prediction is too high, as a share."""
  return row['predicted'][0] / row['speedup'][0] - 1
