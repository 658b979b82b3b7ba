"""What a record of `bound_from_logprobs` says: figure, table and sentences."""

import pathlib
from collections.abc import Mapping

import matplotlib.figure

from experiments import curves, figure_files, report
from experiments.logprobs import bounds as logprob_bounds
from specjax import plotting

_STYLES = {
  'printed': plotting.Style(
    'printed bound (leading term, O(1) omitted)', 'tab:gray', ':', '', False
  ),
  'lorden_dual': plotting.Style(
    'i.i.d. bound (Lorden, dual)', 'tab:blue', '--', '', False
  ),
  'run': plotting.Style('limit of any run', 'tab:red', '--', 'o'),
  'run_context': plotting.Style(
    'limit of any run, from top_logprobs', 'tab:red', '-', 's'
  ),
  'counting': plotting.Style(
    'limit at random places (counting)', 'tab:olive', '--', '', False
  ),
  'dual': plotting.Style(
    'limit at random places (dual)', 'tab:green', '-', '^'
  ),
  'sharp': plotting.Style(
    'i.i.d. asymptote (no bound)', 'tab:gray', '-.', '', False
  ),
  'achievable': plotting.Style(
    'i.i.d. bound from below', 'tab:purple', '--', 'v', False
  ),
}


def show(record: Mapping, folder: pathlib.Path) -> None:
  """Draws the figure of a run and prints its table and its sentences.

  Args:
    record: of `bound_from_logprobs`.
    folder: of the run; figure.png and figure.pdf are written there.
  """
  figure_files.show(
    draw(record), folder, table_text(record), *sentences(record)
  )


def draw(record: Mapping) -> matplotlib.figure.Figure:
  """Draws `D` against capacity: the limits of runs, of starts and of i.i.d."""
  name = pathlib.Path(record['flags']['input']).name
  curve_names = {row['curve'] for row in record['table']}
  return report.draw_curves(
    record['table'],
    {k: v for k, v in _STYLES.items() if k in curve_names},
    f'{name}: what draft trees could win',
  )


def table_text(record: Mapping) -> str:
  """Returns the table: a line a curve, and what a doubling of N would buy."""
  rows = [*record['table'], *record['doubling_run']]
  return report.table_text({**record, 'table': rows})


def sentences(record: Mapping) -> list[str]:
  """Says in words what the numbers rest on, and what they mean."""
  return [
    _of_texts(record),
    *_of_heads(record),
    _of_law(record),
    *_of_cuts(record),
    *_of_bad_lines(record),
    _of_limit(record),
  ]


def _of_texts(record):
  mu, mu2 = (record['moments'][name] for name in ('mu', 'mu2'))
  return (
    f'{record["num_tokens"]} tokens of {record["num_texts"]} texts, in'
    f' {record["num_rows"]} rows of prompts: mu = {_range(mu)} nats,'
    f' mu2 = {_range(mu2)}.'
  )


def _of_heads(record):
  if record['limits'] is None:
    return [_of_lacking(record)]
  between = (
    f'{name} is between {_range(record["limits"]["low"][name])} and'
    f' {_range(record["limits"]["high"][name])}'
    for name in ('mu', 'mu2')
  )
  return [
    f'The first K - 2 of K top_logprobs, all that does not depend on what was'
    f' drawn, leave out {record["missing"]["value"]:.1%} of the mass; whatever'
    f' tokens have it, {" and ".join(between)}, if there are no more than'
    f' --vocab_size={record["flags"]["vocab_size"]} tokens.'
  ]


def _of_lacking(record):
  return (
    f'run_context and two-sided limits of the moments are left out for want of'
    f' top_logprobs, 2 or more with every token, in {record["num_lacking"]} of'
    f' {record["num_texts"]} texts (the first is {record["first_lacking"]}).'
  )


def _of_law(record):
  if record['best_token_shares'] is None:
    return (
      'Without top_logprobs nothing shows whether these are log-probs of the'
      ' law that was sampled, after temperature, filters, penalties and'
      f' biases, and in base {record["flags"]["log_base"]}; no number here'
      ' holds if they are not.'
    )
  drawn, expected = record['best_token_shares']
  return (
    f'The most probable token was drawn {drawn:.1%} of the time and should have'
    f' been {expected:.1%}, as fits log-probs of the law that was sampled.'
  )


def _of_cuts(record):
  if not record['num_cut']:
    return []
  capacity, num_open = record['flags']['capacities'][-1], record['num_open'][-1]
  text = (
    f'Cut, or silent on why they ended, were {record["num_cut"]} of'
    f' {record["num_texts"]} texts; at capacity {capacity} they leave'
    f' {num_open} walks of dual and counting open.'
  )
  if num_open:
    text += (
      ' Open walks count their worst case, which lifts both curves;'
      ' --starts_before draws starts farther from the cut, after'
      f' {record["shortest_cut"]} tokens at the shortest.'
    )
  return [text]


def _of_bad_lines(record):
  count, examples = (record['bad_lines'][k] for k in ('count', 'examples'))
  if not count:
    return []
  lines = [f'{count} bad lines were left out:', *examples]
  return ['\n  '.join(lines + ['...'] * (count > len(examples)))]


def _of_limit(record):
  capacity = record['flags']['capacities'][-1]
  # Named beforehand: the smaller of two estimates would be too small.
  name = 'run' if record['limits'] is None else 'run_context'
  limit = curves.find(record['table'], name, capacity)
  gain = curves.find(record['doubling_run'], logprob_bounds.DOUBLING, capacity)
  return (
    f'At capacity {capacity} no run of any draft tree wins more than'
    f' {report.cell(limit)} tokens an iteration, by {name} as estimated from'
    f' these texts. A doubling of the capacity lifts the limit `run` by'
    f' {report.cell(gain)} tokens; in the i.i.d. model it buys'
    f' {_range(record["doubling_iid"])}.'
  )


def _range(row):
  return report.cell(row, digits=3)
