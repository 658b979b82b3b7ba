"""Log-probs of any engine: JSON Lines, a response a line, to arrays.

A line is one of

- a chat or completion response as OpenAI, vLLM, SGLang and the server of
  llama.cpp write it, with `choices[].logprobs.content[].logprob` and perhaps
  `top_logprobs`, or with the older `choices[].logprobs.token_logprobs`;
- a line of a batch job's output, with such a response in `response.body`;
- `{"prompt_id": ..., "logprobs": [...], "finish_reason": ...}`, and perhaps
  `"top_logprobs": [[...], ...]`, for tokens of any kind.

Texts of one prompt are not independent.  Choices of one response share its
prompt; a `prompt_id`, or a batch job's `custom_id`, says so across lines.  A
line that cannot be used is counted and named.
"""

import dataclasses
import glob
import gzip
import json
import math
import zlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

# Reasons by which a text came to its own end; any other may have cut it.
_ENDS = ('stop', 'eos', 'tool_calls', 'function_call')

_NUM_EXAMPLES = 5

# Engines write such as -9999 for a log-prob that they do not know, and rounding
# lifts that of a sure token above 0.
_LOWEST, _HIGHEST = -1000.0, 1e-3


class Text(NamedTuple):
  """The log-probs of one sampled text.

  Attributes:
    prompt: name of its prompt.
    log_probs: `[T]` nats, of the sampled tokens.
    top_log_probs: `[T, K]` nats, of the most probable tokens, in any order and
      padded with -inf; None where they are not recorded.
    has_ended: it came to its own end and was not cut.
    source: file and line of it.
  """

  prompt: str
  log_probs: np.ndarray
  top_log_probs: np.ndarray | None
  has_ended: bool
  source: str


@dataclasses.dataclass
class BadLines:
  """Lines that could not be used.

  Attributes:
    count: how many.
    examples: file, line and reason of the first few.
  """

  count: int = 0
  examples: list[str] = dataclasses.field(default_factory=list)

  def add(self, path: str, number: int, reason: object) -> None:
    """Counts a line.

    Args:
      path: its file.
      number: of the line, from 1.
      reason: what is wrong.
    """
    self.count += 1
    if len(self.examples) < _NUM_EXAMPLES:
      self.examples.append(f'{path}:{number}: {reason}')


def find(pattern: str) -> list[str]:
  """Returns the files of a name or glob, sorted.

  Raises:
    ValueError: there is none.
  """
  paths = sorted(glob.glob(pattern, recursive=True))
  if not paths:
    raise ValueError(f'expected files of log-probs, got none at {pattern!r}')
  return paths


def batches(
  paths: Sequence[str], base: float, num_values: int, bad_lines: BadLines
) -> Iterator[list[Text]]:
  """Reads texts, so many at a time that memory stays bounded.

  Args:
    paths: JSON Lines, each gzip or not.
    base: of the logarithms in the files.
    num_values: a batch ends with the text that reaches as many log-probs,
      those of the most probable tokens included.
    bad_lines: told of every line that is left out.
  """
  batch, size = [], 0
  for path in paths:
    for number, line in _lines(path, bad_lines):
      try:
        texts = parse(line, f'{path}:{number}', base)
      except ValueError as error:
        bad_lines.add(path, number, error)
        continue
      batch += texts
      size += sum(_num_values(text) for text in texts)
      if size >= num_values:
        yield batch
        batch, size = [], 0
  if batch:
    yield batch


def parse(line: bytes, source: str, base: float = math.e) -> list[Text]:
  """Returns the texts of a line, whose log-probs become nats.

  Args:
    line: JSON.
    source: file and line, which name the prompt where the line does not.
    base: of the logarithms.

  Raises:
    ValueError: what is wrong with the line.
  """
  try:
    content = json.loads(line)
  except ValueError as error:  # UnicodeDecodeError is one, too.
    raise ValueError(f'expected JSON, got: {error}') from error
  if not isinstance(content, dict):
    raise ValueError(f'expected an object, got {_short(content)}')
  prompt = str(content.get('prompt_id', content.get('custom_id', source)))
  if isinstance(content.get('response'), dict):
    content = content['response'].get('body')
  if not isinstance(content, dict):
    raise ValueError(f'expected a response, got {_short(content)}')
  if 'choices' not in content:
    if 'logprobs' not in content:
      raise ValueError(f'expected choices or logprobs, got {_short(content)}')
    content = {'choices': [content]}
  if not isinstance(content['choices'], list):
    raise ValueError(f'expected choices, got {_short(content["choices"])}')
  return [_text(choice, prompt, source, base) for choice in content['choices']]


def _num_values(text):
  """Returns how many log-probs a text holds."""
  top = text.top_log_probs
  return text.log_probs.size + (0 if top is None else top.size)


def _lines(path, bad_lines):
  """Gives the numbers and lines of a file that are not blank."""
  number = 0
  with open(path, 'rb') as file:
    is_gzip = file.read(2) == b'\x1f\x8b'
  with (gzip.open if is_gzip else open)(path, 'rb') as file:
    try:
      for number, line in enumerate(file, 1):  # noqa: B007
        if not line.isspace():
          yield number, line
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
      bad_lines.add(path, number + 1, f'expected whole gzip, got: {error}')


def _text(choice, prompt, source, base):
  """Returns the text of one choice, or raises."""
  if not isinstance(choice, dict):
    raise ValueError(f'expected a choice, got {_short(choice)}')
  if 'delta' in choice:
    raise ValueError('expected a whole response, got a chunk of a stream')
  recorded = choice.get('logprobs')
  try:
    values, tops = _lists(choice)
    log_probs = np.asarray(values)
    top = _padded(tops)
  except (AttributeError, KeyError, TypeError, ValueError) as error:
    raise ValueError(
      f'expected log-probs of every token, got {_short(recorded)}'
    ) from error
  _check(log_probs, top)
  scale = math.log(base)
  return Text(
    prompt=prompt,
    log_probs=np.minimum(log_probs, 0.0) * scale,
    top_log_probs=None if top is None else np.minimum(top, 0.0) * scale,
    has_ended=choice.get('finish_reason') in _ENDS,
    source=source,
  )


def _lists(choice):
  """Returns the tokens' log-probs and lists of the top ones, as recorded."""
  recorded = choice.get('logprobs')
  if isinstance(recorded, list):
    return recorded, choice.get('top_logprobs') or []
  if 'content' in recorded:
    entries = recorded['content']
    return [entry['logprob'] for entry in entries], [
      [top['logprob'] for top in entry.get('top_logprobs') or ()]
      for entry in entries
    ]
  tops = recorded.get('top_logprobs') or ()
  return recorded['token_logprobs'], [list(top.values()) for top in tops]


def _padded(rows):
  """Returns lists of numbers as `[T, K]`; None if one of them is empty."""
  if not rows or not all(rows):
    return None
  width = max(map(len, rows))
  if any(len(row) < width for row in rows):
    rows = [row + [-np.inf] * (width - len(row)) for row in rows]
  return np.asarray(rows)


def _check(log_probs, top):
  """Raises for values that are no log-probs, or not of sampled tokens."""
  if log_probs.dtype == object and None in log_probs.tolist():
    raise ValueError('expected a number, got null; was the prompt echoed?')
  for values, rank in ((log_probs, 1), (top, 2)):
    if values is not None and (
      values.ndim != rank or values.dtype.kind not in 'fi'
    ):
      raise ValueError(f'expected numbers, got {_short(values.tolist())}')
  is_bad = ~((log_probs >= _LOWEST) & (log_probs <= _HIGHEST))
  if np.any(is_bad):
    place = int(np.argmax(is_bad))
    raise ValueError(
      f'expected log-probs from {_LOWEST:g} to 0, got {log_probs[place]:g} at'
      f' token {place}'
    )
  if top is None:
    return
  if len(top) != len(log_probs):
    raise ValueError(
      f'expected top_logprobs of {len(log_probs)} tokens, got {len(top)}'
    )
  if not np.all(top <= _HIGHEST):
    raise ValueError(f'expected top_logprobs of at most 0, got {np.max(top):g}')


def _short(content):
  """Returns the beginning of what was found."""
  text = json.dumps(content)
  return text if len(text) <= 60 else f'{text[:60]}...'
