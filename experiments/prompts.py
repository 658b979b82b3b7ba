"""The prompts that experiments decode: our own set, or the user's file.

A file holds one JSON object a line, in any of three layouts:

  ours       {"id": "chat-01", "kind": "chat", "prompt": "..."}
  HumanEval  {"task_id": "HumanEval/0", "prompt": "..."}
  MT-bench   {"question_id": 81, "category": "writing", "turns": ["...", ...]}

Of several turns the first is taken.
"""

import itertools
import json
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

EMBEDDED = pathlib.Path(__file__).parent / 'data' / 'prompts.jsonl'


class Prompt(NamedTuple):
  """What a user says to the model.

  Attributes:
    id: name, unique in its file.
    kind: what is asked for, such as 'chat' or 'code'.
    text: the words, without chat template.
  """

  id: str
  kind: str
  text: str


def load(
  path: str | pathlib.Path | None = None, prompts_per_kind: int | None = None
) -> list[Prompt]:
  """Reads prompts, the kinds taking turns.

  Args:
    path: a file as the head of this module says; None for our own set.
    prompts_per_kind: how many to take of each kind, from its first on; None
      for all.

  Returns:
    The first prompt of each kind, then the second of each kind, and so on;
    kinds in the order in which the file has them.

  Raises:
    ValueError: a missing, unreadable or empty file, or a line that is none of
      the layouts, with its number.
  """
  path = pathlib.Path(path or EMBEDDED)
  try:
    lines = path.read_text('utf-8').splitlines()
  except (OSError, UnicodeDecodeError) as error:
    reason = getattr(error, 'strerror', None) or error
    raise ValueError(
      f'expected a readable prompt file, got {path}: {reason}'
    ) from error
  prompts = [
    _parse(line, f'{path}, line {number}')
    for number, line in enumerate(lines, start=1)
    if line.strip()
  ]
  if not prompts:
    raise ValueError(f'expected at least one prompt in {path}, got none')
  ids = [prompt.id for prompt in prompts]
  if twice := [name for name in ids if ids.count(name) > 1]:
    raise ValueError(
      f'expected ids to differ in {path}, got {twice[0]!r} twice'
    )
  return _take_turns(prompts, prompts_per_kind)


def _parse(line: str, place: str) -> Prompt:
  try:
    entry = json.loads(line)
  except ValueError as error:
    raise ValueError(f'expected JSON in {place}, got: {error}') from error
  match entry:
    case {'question_id': name, 'category': kind, 'turns': [text, *_]}:
      pass
    case {'task_id': name, 'prompt': text}:
      kind = 'code'
    case {'id': name, 'prompt': text}:
      kind = entry.get('kind', 'other')
    case _:
      raise ValueError(
        f'expected the keys id, prompt and perhaps kind in {place}, '
        f'got {sorted(entry) if isinstance(entry, dict) else entry!r}'
      )
  if not isinstance(text, str) or not text.strip():
    raise ValueError(f'expected text as the prompt in {place}, got {text!r}')
  return Prompt(str(name), str(kind), text)


def _take_turns(
  prompts: Sequence[Prompt], prompts_per_kind: int | None
) -> list[Prompt]:
  kinds = dict.fromkeys(prompt.kind for prompt in prompts)
  queues = [
    [prompt for prompt in prompts if prompt.kind == kind][:prompts_per_kind]
    for kind in kinds
  ]
  return [
    prompt
    for turn in itertools.zip_longest(*queues)
    for prompt in turn
    if prompt is not None
  ]
