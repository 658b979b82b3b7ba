"""Tests of specjax.train.continuations: files are whole or not there."""

import pytest

from specjax.train import continuations


def text_of(number):
  return continuations.Continuation(
    id=f'chat-{number}',
    kind='chat',
    prompt=f'"{number}" \u2014 \n?',
    prompt_ids=[1, number],
    answer_ids=list(range(number)),
    temperature=0.5,
    seed=2**32 - 1 - number,
  )


def test_what_was_written_is_read_in_the_order_of_the_files(tmp_path):
  texts = [text_of(number) for number in range(7)]
  for shard, part in [(1, texts[3:]), (0, texts[:3])]:
    path = continuations.shard_path(tmp_path, shard)
    continuations.write(path, part)
  source = continuations.Source(tmp_path)
  assert list(source) == texts
  assert source[5] == texts[5]
  with pytest.raises(IndexError, match='below 7, got 7'):
    source[7]


def test_a_file_that_was_not_finished_is_not_seen(tmp_path):
  def broken():
    yield text_of(1)
    raise KeyboardInterrupt

  with pytest.raises(KeyboardInterrupt):
    continuations.write(continuations.shard_path(tmp_path, 0), broken())
  assert list(tmp_path.iterdir())  # What was begun lies there,
  with pytest.raises(ValueError, match='got none'):  # but is no text.
    continuations.Source(tmp_path)
  continuations.write(continuations.shard_path(tmp_path, 0), [text_of(2)])
  assert list(continuations.Source(tmp_path)) == [text_of(2)]
