"""How fast are limits found from log-probs, and what does JSON cost?

Claim: once a file is read, `mu`, `mu2` and the totals of `run` take less than a
microsecond a token; everything with its intervals takes less than 2 of a
million plain tokens, and about 5 where there are top_logprobs.  Reading JSON
costs some 0.4 plain, 4 to 6 with 5 top_logprobs, and 20 with 20.

  launch/run.sh bench_logprobs            a minute on 2 cores
  launch/run.sh bench_logprobs --quick    some seconds

Writes logs of random laws in each format and streams them as
`bound_from_logprobs` does.  Every stretch of the way is timed for itself, in
seconds of the processor, so that other work on the machine does not count; the
median over rounds is told, after one that compiles.  The bounds with their
intervals are found once at the end, whatever the size of the log.

Writes results/bench_logprobs/<run>/record.json.
"""

import json
import math
import pathlib
import resource
import statistics
import tempfile
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from absl import flags

from experiments import (
  bound_from_logprobs,
  common,
  records,
  write_logprobs,
)
from experiments.logprobs import files as logprob_files
from experiments.logprobs import totals as logprob_totals

FLAGS = flags.FLAGS

_TOKENS = flags.DEFINE_integer(
  'plain_tokens', 1_000_000, 'Tokens of the plain log.', lower_bound=10_000
)
_ROUNDS = flags.DEFINE_integer('rounds', 3, 'Timed rounds.', lower_bound=1)

NAME = 'bench_logprobs'

_TEXT_LENGTH = 500


class Log(NamedTuple):
  """A log to be written.

  Attributes:
    name: what it is called in the table.
    to_line: makes a line of it.
    num_top: tokens listed with every token.
    share: of `--plain_tokens` that it has, for long lines take long.
  """

  name: str
  to_line: write_logprobs.LineFn
  num_top: int
  share: float


LOGS = (
  Log('plain', write_logprobs.plain, 0, 1.0),
  Log('chat', write_logprobs.chat, 0, 0.2),
  Log('completion, 5 top_logprobs', write_logprobs.completion, 5, 0.05),
  Log('chat, 5 top_logprobs', write_logprobs.chat, 5, 0.05),
  Log('chat, 20 top_logprobs', write_logprobs.chat, 20, 0.02),
)


def main():
  """Times, writes, and says what came out."""
  folder = common.open_run(NAME)
  record = records.new_record(NAME, common.flag_values())
  rng = np.random.default_rng(FLAGS.seed)
  table = []
  for log in LOGS:
    with tempfile.TemporaryDirectory() as temporary:
      path = pathlib.Path(temporary) / 'log.jsonl'
      write(path, log, int(_TOKENS.value * log.share), rng)
      once = lambda p=path: pass_over(p, FLAGS.capacities, FLAGS.seed)
      once()
      rounds = [once() for _ in range(_ROUNDS.value)]
    row = {k: statistics.median(r[k] for r in rounds) for k in rounds[0]}
    table.append({'log': log.name, **row})
    print(say(table[-1]), flush=True)
  # Linux counts in KiB.
  mebibytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
  print(f'At most {mebibytes:.0f} MiB of memory.')
  records.finish_record(folder, record, table, mebibytes=mebibytes)


def write(
  path: pathlib.Path, log: Log, num_tokens: int, rng: np.random.Generator
) -> None:
  """Writes a log of random laws: numbers, not samples of them.

  Args:
    path: the file.
    log: what it is like.
    num_tokens: how many at least.
    rng: draws.
  """
  num_choices = max(log.num_top, 1)
  with open(path, 'w') as file:
    for number in range(-(-num_tokens // _TEXT_LENGTH)):
      # Half of the mass is not listed.
      listed = rng.dirichlet(np.ones(num_choices), _TEXT_LENGTH) / 2
      top = np.log(-np.sort(-listed, axis=1))
      drawn = rng.integers(num_choices, size=(_TEXT_LENGTH, 1))
      text = write_logprobs.Text(
        prompt=str(number),
        content='',
        tokens=[f'token_id:{i}' for i in drawn[:, 0]],
        log_probs=np.take_along_axis(top, drawn, axis=1)[:, 0].tolist(),
        tops=[
          {f'token_id:{i}': v for i, v in enumerate(row[: log.num_top])}
          for row in top.tolist()
        ],
        finish_reason='stop',
      )
      file.write(json.dumps(log.to_line(text)) + '\n')


def pass_over(
  path: pathlib.Path, capacities: Sequence[int], seed: int
) -> Mapping[str, float]:
  """Streams a log once.

  Args:
    path: the file.
    capacities: sizes of trees.
    seed: of the draw of starts, of halves and of resamples.

  Returns:
    `num_tokens`; microseconds a token of `json`, of the `totals` of mu, mu2
    and run, and of `all` that is kept; and the seconds of the `bounds`.
  """
  stream = bound_from_logprobs.Stream(capacities, 'e', 2**32, 4000, None, seed)
  rows = logprob_totals.Rows()
  spent = dict.fromkeys(['json', 'totals', 'all'], 0.0)
  begin = time.process_time()

  def lap(name):
    nonlocal begin
    now = time.process_time()
    spent[name] += now - begin
    begin = now

  for texts in logprob_files.batches(
    [str(path)], math.e, bound_from_logprobs.BATCH_VALUES, stream.bad_lines
  ):
    lap('json')
    rows.add(rows.place(texts))
    lap('totals')
    stream.add(texts)
    lap('all')
  stream.tabulate()
  bounds = time.process_time() - begin
  num_tokens = int(rows.num_tokens.sum())
  microseconds = {k: 1e6 * v / num_tokens for k, v in spent.items()}
  return {'num_tokens': num_tokens, **microseconds, 'bounds': bounds}


def say(row: Mapping) -> str:
  """Returns a line on a row of the table."""
  size, bounds = row['num_tokens'], row['bounds']
  with_bounds = size / (1e-6 * row['all'] * size + bounds)
  return (
    f'{row["log"]:27}{size:8} tokens: JSON {row["json"]:.2f} us a token;'
    f' then mu, mu2 and run {1 / row["totals"]:.1f} million tokens/s;'
    f' all {1 / row["all"]:.2f} million/s and {bounds:.1f} s for the bounds,'
    f' {with_bounds:.0f} tokens/s together'
  )


if __name__ == '__main__':
  common.run(
    main,
    quick={'rounds': 1, 'plain_tokens': 100_000},
    shared=('capacities', 'seed', 'quick'),
  )
