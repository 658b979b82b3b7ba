"""Lines of engines become arrays, and what is no such line is named."""

import gzip
import json
import math

import numpy as np
import pytest
import reference_logprobs

from experiments.logprobs import files as logprob_files

SAMPLES = [
  reference_logprobs.Sample(
    np.array([-0.5, -2.25, 0.0]),
    np.array([[-0.5, -1.5], [-0.25, -3.0], [0.0, -9999.0]]),
    'stop',
  ),
  reference_logprobs.Sample(
    np.array([-1.0]), np.array([[-0.75, -1.0]]), 'length'
  ),
]


def parse(content, **arguments):
  line = content if isinstance(content, bytes) else json.dumps(content).encode()
  return logprob_files.parse(line, 'file:1', **arguments)


@pytest.mark.parametrize('name', ['chat', 'completion', 'batch_job'])
def test_a_response_is_a_text_for_each_choice(name):
  texts = parse(reference_logprobs.FORMATS[name]('p', SAMPLES))
  assert len(texts) == 2
  for text, sample in zip(texts, SAMPLES, strict=True):
    assert text.prompt == ('p' if name == 'batch_job' else 'file:1')
    assert text.source == 'file:1'
    np.testing.assert_array_equal(text.log_probs, sample.log_probs)
    # The older form lists the drawn token too, where it is not at the top.
    width = sample.top.shape[1]
    top = -np.sort(-text.top_log_probs, axis=1)
    assert top.shape[1] == width + (
      name == 'completion' and len(sample.top) > 1
    )
    np.testing.assert_array_equal(np.max(top, 1), np.max(sample.top, 1))
    assert text.has_ended == (sample.finish_reason == 'stop')


@pytest.mark.parametrize('name', ['chat', 'completion', 'batch_job', 'plain'])
def test_top_log_probs_may_be_missing(name):
  (text,) = parse(
    reference_logprobs.FORMATS[name]('p', [SAMPLES[0]._replace(top=None)])
  )
  np.testing.assert_array_equal(text.log_probs, SAMPLES[0].log_probs)
  assert text.top_log_probs is None
  assert text.has_ended


def test_plain_lines_may_list_most_probable_tokens():
  tops = [[-0.5, -1.5], [-0.25, -3.0, -4.0]]
  (text,) = parse({'logprobs': [-0.5, -0.25], 'top_logprobs': tops})
  np.testing.assert_array_equal(
    text.top_log_probs, [[-0.5, -1.5, -math.inf], tops[1]]
  )


def test_a_text_without_tokens_or_end_is_one():
  (text,) = parse({'prompt_id': 7, 'logprobs': []})
  assert text.prompt == '7'
  assert text.log_probs.shape == (0,)
  assert not text.has_ended


def test_other_bases_become_nats():
  nats = np.array([-0.5, -2.25])
  line = {'prompt_id': 'p', 'logprobs': (nats / math.log(2)).tolist()}
  (text,) = parse(line, base=2.0)
  np.testing.assert_allclose(text.log_probs, nats)
  chat = reference_logprobs.chat('p', SAMPLES[:1])
  (text,) = parse(chat, base=10.0)
  np.testing.assert_allclose(
    text.top_log_probs, SAMPLES[0].top * math.log(10.0)
  )


def test_rounding_above_a_sure_token_is_none():
  (text,) = parse({'prompt_id': 'p', 'logprobs': [1e-6]})
  assert text.log_probs == [0.0]


def chat_with(**changes):
  line = reference_logprobs.chat('p', SAMPLES[:1])
  line['choices'][0].update(changes)
  return line


BAD = {
  'no json': (b'{"prompt_id": ', 'expected JSON'),
  'no utf-8': (b'"\xff\xfe"', 'expected JSON'),
  'a number': (3, 'expected an object, got 3'),
  'another object': ({'error': 'busy'}, 'expected choices or logprobs'),
  'a failed request': (
    {'custom_id': 'p', 'response': {'body': None}},
    'expected a response, got null',
  ),
  'no choices': ({'choices': None}, 'expected choices, got null'),
  'no object as choice': ({'choices': [1]}, 'expected a choice, got 1'),
  'a chunk': (chat_with(delta={}), 'chunk of a stream'),
  'none asked for': (chat_with(logprobs=None), 'of every token, got null'),
  'no content': (chat_with(logprobs={'content': None}), 'of every token'),
  'no value': (chat_with(logprobs={'content': [{'token': 'x'}]}), 'every'),
  'text': ({'logprobs': ['-1.0']}, 'expected numbers, got'),
  'a list of lists': ({'logprobs': [[-1.0]]}, 'expected numbers, got'),
  'ragged': ({'logprobs': [[-1.0], -2.0]}, 'of every token'),
  'null': ({'logprobs': [None, -1.0]}, 'got null; was the prompt echoed?'),
  'nan': ({'logprobs': [-1.0, math.nan]}, 'got nan at token 1'),
  'positive': ({'logprobs': [-1.0, 0.5]}, 'to 0, got 0.5 at token 1'),
  'unknown': ({'logprobs': [-9999.0]}, 'from -1000 to 0, got -9999 at'),
  'infinite': ({'logprobs': [-math.inf]}, 'got -inf at token 0'),
  'tops of others': (
    chat_with(
      logprobs={'token_logprobs': [-1.0], 'top_logprobs': [{'a': -1}] * 2}
    ),
    'top_logprobs of 1 tokens, got 2',
  ),
  'positive top': (
    chat_with(
      logprobs={'token_logprobs': [-1.0], 'top_logprobs': [{'a': 2.0}]}
    ),
    'top_logprobs of at most 0, got 2',
  ),
}


@pytest.mark.parametrize('name', list(BAD))
def test_what_is_wrong_with_a_line_is_said(name):
  content, reason = BAD[name]
  with pytest.raises(ValueError, match='expected') as error:
    parse(content)
  assert reason in str(error.value)


def read(paths, num_values=100):
  bad_lines = logprob_files.BadLines()
  batches = list(
    logprob_files.batches(
      [str(p) for p in paths], math.e, num_values, bad_lines
    )
  )
  return batches, bad_lines


def test_bad_lines_are_counted_and_the_first_few_named(tmp_path):
  path = tmp_path / 'log.jsonl'
  good = {'prompt_id': 'p', 'logprobs': [-1.0]}
  reference_logprobs.write(path, [good, '', *['nonsense'] * 7, good])
  batches, bad_lines = read([path])
  assert [len(batch) for batch in batches] == [2]
  assert bad_lines.count == 7
  assert len(bad_lines.examples) == 5
  assert bad_lines.examples[0].startswith(f'{path}:3: expected JSON')


def test_one_bad_choice_makes_a_bad_line(tmp_path):
  path = tmp_path / 'log.jsonl'
  line = reference_logprobs.chat('p', SAMPLES)
  line['choices'][1]['logprobs']['content'][0]['logprob'] = 5.0
  reference_logprobs.write(path, [line])
  batches, bad_lines = read([path])
  assert batches == []
  assert bad_lines.count == 1


def test_gzip_is_told_by_its_content_and_may_be_cut(tmp_path):
  line = json.dumps({'prompt_id': 'p', 'logprobs': [-1.0, -2.0]}) + '\n'
  packed = gzip.compress(line.encode() * 50, mtime=0)
  paths = [tmp_path / name for name in ('a.jsonl', 'b.jsonl', 'c.jsonl')]
  paths[0].write_bytes(packed)
  paths[1].write_bytes(packed[:-9])
  paths[2].write_text(line)
  batches, bad_lines = read(paths, 1000)
  assert len(batches) == 1
  assert 51 <= len(batches[0]) <= 101
  assert bad_lines.count == 1
  assert f'{paths[1]}:' in bad_lines.examples[0]
  assert 'whole gzip' in bad_lines.examples[0]


def test_batches_are_of_whole_texts(tmp_path):
  path = tmp_path / 'log.jsonl'
  lines = [{'prompt_id': i, 'logprobs': [-1.0] * 4} for i in range(7)]
  reference_logprobs.write(path, lines)
  batches, _ = read([path], 10)
  assert [len(batch) for batch in batches] == [3, 3, 1]
  assert [t.prompt for b in batches for t in b] == [str(i) for i in range(7)]


def test_listed_tokens_fill_a_batch_too(tmp_path):
  path = tmp_path / 'log.jsonl'
  line = {'logprobs': [-1.0] * 2, 'top_logprobs': [[-1.0, -2.0]] * 2}
  reference_logprobs.write(path, [line] * 5)
  batches, _ = read([path], 12)
  assert [len(batch) for batch in batches] == [2, 2, 1]


def test_files_are_found_by_glob(tmp_path):
  for name in ('b.jsonl', 'a.jsonl', 'c.txt'):
    (tmp_path / name).touch()
  found = logprob_files.find(f'{tmp_path}/*.jsonl')
  assert found == [f'{tmp_path}/a.jsonl', f'{tmp_path}/b.jsonl']
  with pytest.raises(ValueError, match='got none at'):
    logprob_files.find(f'{tmp_path}/*.csv')
