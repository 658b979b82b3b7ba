"""Records of any source become documents: tokens, and which of them count."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from specjax import tokenizer as tokenizer_lib
from specjax.train import continuations


class Document(NamedTuple):
  """A text to learn from.

  Attributes:
    tokens: `[T]` int32.
    is_target: `[T]` bool, whether a token counts when it is predicted.
  """

  tokens: np.ndarray
  is_target: np.ndarray


# Makes a document of a record.
DocumentFn = Callable[[Any], Document]


def of_text(tokenizer: tokenizer_lib.Tokenizer, field: str) -> DocumentFn:
  """Returns what makes documents of plain texts, all of whose tokens count.

  Args:
    tokenizer: puts its begin token in front and its first end token behind.
    field: of the records that holds the text.
  """

  def document_fn(record):
    tokens = tokenizer.encode(_string(record, field), add_special=True)
    tokens += tokenizer.eos_ids[:1]
    return _document(tokens, 0)

  return document_fn


def of_chat(
  tokenizer: tokenizer_lib.Tokenizer, prompt: str, answer: str
) -> DocumentFn:
  """Returns what makes documents of questions whose answers count.

  Args:
    tokenizer: knows the chat template.
    prompt: field of the records that holds what the user says.
    answer: field that holds the answer.
  """

  def document_fn(record):
    message = {'role': 'user', 'content': _string(record, prompt)}
    asked = tokenizer.chat([message])
    answered = tokenizer.encode(_string(record, answer))
    tokens = [*asked, *answered, *tokenizer.eos_ids[:1]]
    return _document(tokens, len(asked))

  return document_fn


def of_continuation(text: continuations.Continuation) -> Document:
  """Returns what a model was asked and answered; the answer counts.

  Args:
    text: the record.
  """
  tokens = [*text.prompt_ids, *text.answer_ids]
  return _document(tokens, len(text.prompt_ids))


def _document(tokens, num_given):
  """Returns a document whose first tokens are given, not learnt."""
  tokens = np.asarray(tokens, np.int32)
  return Document(tokens, np.arange(len(tokens)) >= num_given)


def _string(record: Mapping[str, bytes | str], field: str) -> str:
  """Returns a field as text; TFDS gives bytes."""
  if field not in record:
    raise ValueError(f'expected the field {field!r}, got {sorted(record)}')
  value = record[field]
  return value.decode() if isinstance(value, bytes) else value
