"""What a record of `bound_from_logprobs` says: figure, table and sentences."""

import pathlib
from collections.abc import Mapping

import matplotlib.figure

from experiments import curves, figure_files, report
from specjax import plotting

_STYLES = {
  'printed': plotting.Style(
    'printed bound (leading term, O(1) omitted)', 'tab:gray', ':', '', False
  ),
  'lorden_dual': plotting.Style(
    'i.i.d. bound (Lorden, dual)', 'tab:blue', '--', '', False
  ),
  'run': plotting.Style('limit of any run', 'tab:red', '-', 'o'),
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
  figure_files.save(draw(record), folder / 'figure')
  print(report.table_text(record))
  for sentence in sentences(record):
    print()
    print(sentence)
  print(f'Figure: {folder / "figure.png"}')


def draw(record: Mapping) -> matplotlib.figure.Figure:
  """Draws `D` against capacity: the limits of runs, of starts and of i.i.d."""
  name = pathlib.Path(record['flags']['input']).name
  return report.draw_curves(
    record['table'], _STYLES, f'{name}: what draft trees could win'
  )


def sentences(record: Mapping) -> list[str]:
  """Says in words what the numbers rest on, and what they mean."""
  return [
    _of_texts(record),
    *_of_law(record),
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


def _of_law(record):
  if record['best_token_shares'] is None:
    return [
      'Without top_logprobs nothing shows whether these are log-probs of the'
      ' law that was sampled, after temperature and filters, and in base'
      f' {record["flags"]["log_base"]}; no number here holds if they are not.'
    ]
  drawn, expected = record['best_token_shares']
  return [
    f'The most probable token was drawn {drawn:.1%} of the time and should have'
    f' been {expected:.1%}: these are log-probs of the law that was sampled.'
  ]


def _of_cuts(record):
  if not record['num_cut']:
    return []
  capacity, num_open = record['flags']['capacities'][-1], record['num_open'][-1]
  text = (
    f'{record["num_cut"]} texts were cut or do not say why they ended, and'
    f' {num_open} walks of dual and counting are open at capacity {capacity}.'
  )
  if num_open:
    text += (
      ' They count their worst case; --starts_before draws starts farther from'
      ' the cut.'
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
  run = curves.find(record['table'], 'run', capacity)
  gain = curves.find(record['doubling_run'], 'run(2 N) - run(N)', capacity)
  return (
    f'At capacity {capacity} no run of any draft tree wins more than'
    f' {run["D"]:.2f} tokens an iteration; doubling the capacity lifts this'
    f' limit by {gain["D"]:.2f} [{gain["low"]:.2f}, {gain["high"]:.2f}]. In the'
    f' i.i.d. model a doubling buys {_range(record["doubling_iid"])} tokens.'
  )


def _range(interval):
  ends = (
    'inf' if interval[end] is None else f'{interval[end]:.3f}'
    for end in ('low', 'high')
  )
  return f'{interval["value"]:.3f} [{", ".join(ends)}]'
