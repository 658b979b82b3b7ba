"""Tests of specjax.train.documents: what a record becomes, token by token."""

import numpy as np
import pytest

from specjax import tokenizer as tokenizer_lib
from specjax.train import continuations, documents

TOKENIZER = tokenizer_lib.byte_level()


def check(document, tokens, num_given):
  assert document.tokens.dtype == np.int32
  assert document.tokens.tolist() == tokens
  given = [False] * num_given + [True] * (len(tokens) - num_given)
  assert document.is_target.tolist() == given


@pytest.mark.parametrize('value', ['né', 'né'.encode()])
def test_a_text_begins_and_ends(value):
  document = documents.of_text(TOKENIZER, 'body')({'body': value})
  check(document, [256, *'né'.encode(), 257], 0)


def test_of_a_chat_the_answer_counts():
  document_fn = documents.of_chat(TOKENIZER, 'question', 'answer')
  document = document_fn({'question': b'2+2?', 'answer': b'4'})
  check(document, [256, *b'2+2?', *b'4', 257], 5)


def test_of_a_continuation_the_answer_counts():
  text = continuations.Continuation('a', 'chat', 'x', [1, 2], [3, 4], 0.0, 7)
  check(documents.of_continuation(text), [1, 2, 3, 4], 2)


def test_a_missing_field_is_named():
  with pytest.raises(ValueError, match=r"field 'body', got \['id', 'text'\]"):
    documents.of_text(TOKENIZER, 'body')({'text': b'x', 'id': b'y'})
