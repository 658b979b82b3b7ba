"""What is read of prompts, how they are put together, and what is refused."""

import dataclasses

import numpy as np
import pytest

from specjax import edits as edits_lib
from specjax import sampling as sampling_lib
from specjax.decode import prefill


def edited(num_rows, **kwargs):
  edits = edits_lib.make(num_rows, **kwargs)
  return sampling_lib.make(1).replace(edits=edits)


# Kinds: rows that are lost where the prompts do not fill the last batch, a root
# that is in the cache already.
def test_all_but_the_last_token_is_read(tiny):
  prompts = [[t] * (1 + 9 * t) for t in range(5)]
  batches = prefill.read_prompts(
    tiny, prompts, max_new_tokens=3, max_length=38, batch_size=3
  )
  assert [batch.num_prompts for batch in batches] == [3, 2]
  assert batches[1].limits.tolist() == [31, 38, 0]
  assert batches[1].prefix.seeds.tolist() == [3, 4, 4]
  rows = [(b.prefix, row) for b in batches for row in range(b.num_prompts)]
  for prompt, (prefix, row) in zip(prompts, rows, strict=True):
    assert prefix.lengths[row] == len(prompt)
    assert prefix.cache.length[row] == len(prompt) - 1
    np.testing.assert_array_equal(prefix.tokens[row, : len(prompt)], prompt)
    assert not np.any(prefix.tokens[row, len(prompt) :])


def test_batches_are_equally_large_and_lose_nobody():
  for num_prompts in range(1, 20):
    for batch_size in range(1, 22):
      groups = prefill.batch_rows(num_prompts, batch_size)
      np.testing.assert_array_equal(
        np.concatenate(groups), np.arange(num_prompts)
      )
      sizes = [len(group) for group in groups]
      assert len(groups) == -(-num_prompts // max(sizes))
      assert len(groups) <= -(-num_prompts // batch_size)
      assert max(sizes) <= batch_size
      assert set(sizes[:-1]) <= {sizes[0]} and 0 < sizes[-1] <= sizes[0]


@pytest.mark.parametrize(
  ('wrong', 'message'),
  [
    ({'prompts': []}, 'at least one prompt, got none'),
    ({'prompts': [[1], []]}, r'at least one token, got \[\] at 1'),
    ({'prompts': [[1] * 9]}, 'shorter than max_length 9, got 9 tokens at 0'),
    ({'prompts': [[1], [0, 23]]}, r'\[0, 23\), got 0 to 23 in prompt 1'),
    ({'prompts': [[-1, 4]]}, r'\[0, 23\), got -1 to 4 in prompt 0'),
    ({'max_new_tokens': 0}, 'max_new_tokens >= 1, got 0'),
    ({'batch_size': 0}, 'batch_size >= 1, got 0'),
    ({'seeds': [1, 2]}, 'got 2, 1 and 1'),
    ({'sampling': sampling_lib.make(3)}, 'got 1, 3 and 1'),
    ({'sampling': edited(2)}, 'for each of 1 prompts, got 2'),
    ({'sampling': edited(1, bias=[{23: 1.0}])}, r'\[0, 23\), got 0 to 23'),
    ({'sampling': edited(1, eos_ids=(-2,))}, r'\[0, 23\), got -2 to -2'),
  ],
)
def test_bad_arguments_are_named(tiny, wrong, message):
  good = {'prompts': [[1]], 'max_new_tokens': 2, 'max_length': 9}
  with pytest.raises(ValueError, match=f'expected .*{message}'):
    prefill.read_prompts(tiny, **good | wrong)


def test_a_text_longer_than_the_model_was_made_for_is_refused(tiny):
  config = dataclasses.replace(tiny.config, max_positions=9)
  short = tiny.replace(config=config)
  read = lambda **limits: prefill.read_prompts(short, [[1], [2] * 5], **limits)
  with pytest.raises(ValueError, match='at most 9 tokens.* got 10'):
    read(max_new_tokens=5)
  # Either limit will do.
  read(max_new_tokens=4)
  read(max_new_tokens=5, max_length=9)
