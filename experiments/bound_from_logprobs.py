"""How fast can speculative decoding of your model be, on your traffic?

Claim: the log-probs that an engine reports of its sampled tokens are enough to
limit what any draft tree wins there.  No model is run.  Tokens may be of text,
images or sound.

  launch/run.sh bound_from_logprobs --input='logs/*.jsonl.gz'
  launch/run.sh write_logprobs       logs of a small model, to try it with

FILES are JSON Lines, gzip or not, a response a line, as OpenAI, vLLM, SGLang or
the server of llama.cpp write them when asked for log-probs:

  {"choices": [{"logprobs": {"content": [{"logprob": -0.2,        chat
     "top_logprobs": [{"logprob": -0.2}, {"logprob": -2.1}]}]},
     "finish_reason": "stop"}]}
  {"choices": [{"logprobs": {"token_logprobs": [-0.2],            completion
     "top_logprobs": [{"a": -0.2, "b": -2.1}]},
     "finish_reason": "stop"}]}
  {"custom_id": "7", "response": {"body": either of them}}        batch job
  {"prompt_id": "7", "logprobs": [-0.2],                          anything else
     "top_logprobs": [[-0.2, -2.1]], "finish_reason": "stop"}

Other fields are not looked at.  Texts of one prompt belong together: they are
choices of one line, or lines of one prompt_id or custom_id.  A text without a
finish_reason counts as cut.  A line that cannot be used is counted and named.

LAW.  The log-probs must be of the law that was sampled, after temperature,
filters such as top-p, penalties and biases.  At temperature 1 without any of
these, which engines may take from a model's generation config, those of every
engine are; else vLLM needs --logprobs-mode=processed_logprobs.  --temperature,
--top_k, --top_p and --min_p say how your texts were sampled.  Ask for
top_logprobs, 5 or more, with every text: they show whether the law is the right
one, limit the moments from both sides and give `run_context`, mostly the
sharper limit.

RESULT: results/bound_from_logprobs/<run>/ with figure.png and figure.pdf,
record.json with the table of the figure, arrays.npz with the totals it rests
on.  `mu` is the mean entropy of the laws and `mu2` the mean squared surprisal,
in nats; D is the tokens of an iteration, the bonus token included.

COST.  10 million plain tokens take 15 seconds of one core and 0.6 GiB, most of
it for reading JSON; launch/run.sh bench_logprobs measures other formats.
Memory does not grow with the files.  A run is not resumed, it begins anew.
"""

import time
from collections.abc import Sequence

import numpy as np
import tqdm
from absl import flags

from experiments import (
  common,
  records,
)
from experiments.logprobs import bounds as logprob_bounds
from experiments.logprobs import check as logprob_check
from experiments.logprobs import files as logprob_files
from experiments.logprobs import heads as logprob_heads
from experiments.logprobs import report as logprob_report
from experiments.logprobs import totals as logprob_totals

FLAGS = flags.FLAGS

_INPUT = flags.DEFINE_string(
  'input', None, 'Files of log-probs, a name or a quoted glob.'
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
  'Tokens of the vocabulary; a larger number is valid, limits are wider.',
  lower_bound=1,
)
_NUM_STARTS = flags.DEFINE_integer(
  'num_starts',
  4000,
  'Places drawn from all texts for dual and counting; more are slower.',
  lower_bound=2,
)
_STARTS_BEFORE = flags.DEFINE_integer(
  'starts_before',
  None,
  'Draw them among so many first places of every text; all if none.',
  lower_bound=1,
)

NAME = 'bound_from_logprobs'

# The shared flags that have a meaning here.
SHARED_FLAGS = ('capacities', 'min_p', 'seed', 'temperature', 'top_k', 'top_p')

# Log-probs that are held at a time.
BATCH_VALUES = 2**18


def main():
  """Reads, checks, bounds, writes, and says what came out."""
  begin = time.perf_counter()
  logprob_check.check_declared(
    FLAGS.temperature, FLAGS.top_k, _LOGPROBS_TEMPERATURE.value
  )
  if _INPUT.value is None:
    raise ValueError("expected --input='logs/*.jsonl', got none; see --help")
  stream = Stream(
    FLAGS.capacities,
    _LOG_BASE.value,
    _VOCAB_SIZE.value,
    _NUM_STARTS.value,
    _STARTS_BEFORE.value,
    FLAGS.seed,
  )
  stream.read(logprob_files.find(_INPUT.value))
  stream.check()
  folder = common.open_run(NAME)
  if (folder / 'record.json').exists():
    print(f'{folder} has the results of an earlier run; they are made anew.')
  record = records.new_record(NAME, common.flag_values())
  table, facts = stream.tabulate()
  records.write_npz(folder / 'arrays.npz', **stream.arrays())
  records.finish_record(folder, record, table, **facts, **stream.facts())
  logprob_report.show(records.load_record(folder / 'record.json'), folder)
  seconds = time.perf_counter() - begin
  print(f'Finished in {seconds:.0f} s: {folder / "record.json"}')


class Stream:
  """Everything that is kept of the files."""

  def __init__(
    self,
    capacities: Sequence[int],
    base: str,
    vocab_size: int,
    num_starts: int,
    starts_before: int | None,
    seed: int,
  ):
    """Begins without texts.

    Args:
      capacities: sizes of trees.
      base: of the logarithms, of `logprob_check.BASES`.
      vocab_size: `V`; a larger number is valid too.
      num_starts: starts to draw.
      starts_before: only places below it are starts; all if none.
      seed: of the draw, of halves and of resamples.
    """
    self._capacities, self._base = capacities, base
    self._vocab_size, self._seed = vocab_size, seed
    self.rows = logprob_totals.Rows()
    self.heads = logprob_heads.Heads(vocab_size)
    self.starts = logprob_totals.Starts(
      num_starts, max(capacities) - 1, starts_before, seed
    )
    self.calibration = logprob_check.Calibration(base)
    self.bad_lines = logprob_files.BadLines()
    self.num_texts, self.num_cut, self.shortest_cut = 0, 0, np.inf

  def read(self, paths: Sequence[str]) -> None:
    """Adds all texts of files."""
    base = logprob_check.BASES[self._base]
    with tqdm.tqdm(desc='log-probs', unit='tok', unit_scale=True) as bar:
      for texts in logprob_files.batches(
        paths, base, BATCH_VALUES, self.bad_lines
      ):
        self.add(texts)
        bar.update(sum(len(text.log_probs) for text in texts))

  def add(self, texts: Sequence[logprob_files.Text]) -> None:
    """Adds texts."""
    self.num_texts += len(texts)
    cuts = [len(text.log_probs) for text in texts if not text.has_ended]
    self.num_cut += len(cuts)
    self.shortest_cut = min([*cuts, self.shortest_cut])
    tokens = self.rows.place(texts)
    self.rows.add(tokens)
    self.heads.add(texts, tokens)
    self.starts.add(tokens)
    self.calibration.add(texts)

  def check(self) -> None:
    """Refuses texts from which nothing can be said.

    Raises:
      ValueError: why.
    """
    num_tokens = int(self.rows.num_tokens.sum())
    if not num_tokens:
      count = self.bad_lines.count
      raise ValueError(
        f'expected log-probs, got none and {count} bad lines'
        + ''.join(f'; the first is {x}' for x in self.bad_lines.examples[:1])
      )
    if len(self.rows.num_tokens) < 2:
      raise ValueError(
        'expected 2 prompts or more, to fit on half of them, got 1: are all'
        ' lines of one prompt_id?'
      )
    if not self.rows.moments[0].any():
      raise ValueError(
        f'expected log-probs below 0, got 0 for all {num_tokens} tokens: greedy'
        ' text, or an engine that does not report them'
      )
    self.calibration.check()

  def tabulate(self) -> tuple[list[dict], dict]:
    """Returns the table and facts of `logprob_bounds.tabulate`."""
    return logprob_bounds.tabulate(
      self.rows,
      self.heads,
      *self.starts.walks(),
      self._capacities,
      self._vocab_size,
      self._seed,
    )

  def facts(self) -> dict:
    """Returns what the record says of the texts."""
    is_known = self.calibration.is_known
    return {
      'num_tokens': int(self.rows.num_tokens.sum()),
      'num_texts': self.num_texts,
      'num_cut': self.num_cut,
      'shortest_cut': self.shortest_cut if self.num_cut else None,
      'num_rows': len(self.rows.num_tokens),
      'best_token_shares': self.calibration.shares if is_known else None,
      'num_lacking': self.heads.num_lacking,
      'first_lacking': self.heads.first_lacking,
      'bad_lines': vars(self.bad_lines),
    }

  def arrays(self) -> dict[str, np.ndarray]:
    """Returns the totals and the starts, by name."""
    rows, walks = self.starts.walks()
    arrays = {
      'rows/num_tokens': self.rows.num_tokens,
      'rows/moments': self.rows.moments,
      'rows/progress': self.rows.progress,
      'starts/rows': rows,
      **{f'starts/{k}': np.asarray(v) for k, v in vars(walks).items()},
    }
    if self.heads.are_known:
      sums = self.heads.sums(len(self.rows.num_tokens))
      arrays['heads/progress'] = sums.progress
      for name, limit in sums.limits._asdict().items():
        arrays[f'heads/{name}'] = np.asarray(limit)
    return arrays


if __name__ == '__main__':
  common.run(main, shared=SHARED_FLAGS)
