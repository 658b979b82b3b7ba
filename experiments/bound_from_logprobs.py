"""How fast can speculative decoding of your model be, on your traffic?

Claim: the log-probs that an engine reports of its sampled tokens are enough to
limit what any draft tree wins there.  Nothing is run but this; tokens may be of
text, images or sound.

  launch/run.sh bound_from_logprobs --input='logs/*.jsonl.gz'

`logprob_files` says which files are read.  Writes
results/bound_from_logprobs/<run>/: figure.png and figure.pdf, record.json with
the table of the figure, arrays.npz with the totals it rests on.

JSON is what it costs, 2 cores shared with other work: 0.7 microseconds a token
in the plain form, 2 in chat responses, 8 and 18 in completions and chat with 5
top_logprobs.  What is done with the arrays takes 0.1, and the bounds with their
intervals some seconds at the end, whatever the size.  Memory does not grow with
the files.
"""

from collections.abc import Sequence

import numpy as np
import tqdm
from absl import flags

from experiments import (
  common,
  logprob_bounds,
  logprob_check,
  logprob_files,
  logprob_report,
  logprob_totals,
  records,
)

FLAGS = flags.FLAGS

_INPUT = flags.DEFINE_string(
  'input', None, 'Files of log-probs, a name or glob.'
)
_LOG_BASE = flags.DEFINE_enum(
  'log_base', 'e', list(logprob_check.BASES), 'Base of the logarithms.'
)
_LOGPROBS_TEMPERATURE = flags.DEFINE_float(
  'logprobs_temperature',
  None,
  'Temperature of the laws in the files, if not the one of the text.',
  lower_bound=0,
)
_VOCAB_SIZE = flags.DEFINE_integer(
  'vocab_size',
  2**32,
  'Tokens of the vocabulary; a larger number is valid too.',
  lower_bound=1,
)
_NUM_STARTS = flags.DEFINE_integer(
  'num_starts', 4000, 'Starts drawn for dual and counting.', lower_bound=2
)
_STARTS_BEFORE = flags.DEFINE_integer(
  'starts_before',
  None,
  'Draw starts among the first places of every text only; all if none.',
  lower_bound=1,
)

NAME = 'bound_from_logprobs'

# What results depend on; the other shared flags have no meaning here.
_FLAGS = (
  'capacities',
  'input',
  'log_base',
  'logprobs_temperature',
  'min_p',
  'num_starts',
  'seed',
  'starts_before',
  'temperature',
  'top_k',
  'top_p',
  'vocab_size',
)

_BATCH_TOKENS = 2**18


def main():
  """Reads, checks, bounds, writes, and says what came out."""
  logprob_check.check_declared(
    FLAGS.temperature, FLAGS.top_k, _LOGPROBS_TEMPERATURE.value
  )
  stream = Stream(
    FLAGS.capacities,
    _LOG_BASE.value,
    _NUM_STARTS.value,
    _STARTS_BEFORE.value,
    FLAGS.seed,
  )
  stream.read(logprob_files.find(_INPUT.value or ''))
  stream.check()
  folder = records.open_run(FLAGS.results_dir, NAME, FLAGS.run_name)
  values = common.flag_values()
  record = records.new_record(NAME, {name: values[name] for name in _FLAGS})
  table, facts = logprob_bounds.tabulate(
    stream.rows,
    *stream.starts.walks(),
    FLAGS.capacities,
    _VOCAB_SIZE.value,
    FLAGS.seed,
  )
  records.write_npz(folder / 'arrays.npz', **stream.arrays())
  records.finish_record(folder, record, table, **facts, **stream.facts())
  logprob_report.show(records.load_record(folder / 'record.json'), folder)


class Stream:
  """Everything that is kept of the files."""

  def __init__(
    self,
    capacities: Sequence[int],
    base: str,
    num_starts: int,
    starts_before: int | None,
    seed: int,
  ):
    """Begins without texts.

    Args:
      capacities: sizes of trees.
      base: of the logarithms, of `logprob_check.BASES`.
      num_starts: starts to draw.
      starts_before: only places below it are starts; all if none.
      seed: of the draw.
    """
    self._base = base
    self.rows = logprob_totals.Rows()
    self.starts = logprob_totals.Starts(
      num_starts, max(capacities) - 1, starts_before, seed
    )
    self.calibration = logprob_check.Calibration(base)
    self.bad_lines = logprob_files.BadLines()
    self.num_texts, self.num_cut = 0, 0

  def read(self, paths: Sequence[str]) -> None:
    """Adds all texts of files."""
    base = logprob_check.BASES[self._base]
    with tqdm.tqdm(desc='log-probs', unit='tok', unit_scale=True) as bar:
      for texts in logprob_files.batches(
        paths, base, _BATCH_TOKENS, self.bad_lines
      ):
        self.add(texts)
        bar.update(sum(len(text.log_probs) for text in texts))

  def add(self, texts: Sequence[logprob_files.Text]) -> None:
    """Adds texts."""
    self.num_texts += len(texts)
    self.num_cut += sum(not text.has_ended for text in texts)
    tokens = self.rows.place(texts)
    self.rows.add(tokens)
    self.starts.add(tokens)
    self.calibration.add(texts)

  def check(self) -> None:
    """Refuses texts from which nothing can be said.

    Raises:
      ValueError: why.
    """
    num_tokens = int(self.rows.num_tokens.sum())
    if not num_tokens:
      raise ValueError(
        f'expected log-probs, got none and {self.bad_lines.count} bad lines'
        f' {self.bad_lines.examples[:1]}'
      )
    if len(self.rows.num_tokens) < 2:
      raise ValueError('expected 2 prompts or more, to fit on half of them')
    if not self.rows.moments[0].any():
      raise ValueError(
        f'expected log-probs below 0, got 0 for all {num_tokens} tokens: greedy'
        ' text, or an engine that does not report them'
      )
    self.calibration.check()

  def facts(self) -> dict:
    """Returns what the record says of the texts."""
    is_known = self.calibration.is_known
    return {
      'num_tokens': int(self.rows.num_tokens.sum()),
      'num_texts': self.num_texts,
      'num_cut': self.num_cut,
      'num_rows': len(self.rows.num_tokens),
      'best_token_shares': self.calibration.shares if is_known else None,
      'bad_lines': vars(self.bad_lines),
    }

  def arrays(self) -> dict[str, np.ndarray]:
    """Returns the totals and the starts, by name."""
    rows, walks = self.starts.walks()
    return {
      'rows/num_tokens': self.rows.num_tokens,
      'rows/moments': self.rows.moments,
      'rows/progress': self.rows.progress,
      'starts/rows': rows,
      **{f'starts/{k}': np.asarray(v) for k, v in vars(walks).items()},
    }


if __name__ == '__main__':
  common.run(main)
