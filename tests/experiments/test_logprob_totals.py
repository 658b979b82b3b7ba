"""Totals of a stream against sums over all of it."""

import numpy as np
import pytest

from experiments.logprobs import files as logprob_files
from experiments.logprobs import totals as logprob_totals
from specjax.theory import run_bounds


def make_texts(num_texts, num_prompts, seed=0):
  rng = np.random.default_rng(seed)
  lengths = rng.integers(0, 9, num_texts)
  return [
    logprob_files.Text(
      prompt=str(rng.integers(num_prompts)),
      # Caps themselves and more than all of them are among the values.
      log_probs=-rng.choice(
        [0.0, 0.05, 30.0, *rng.exponential(1.0, 5)], length
      ),
      top_log_probs=None,
      has_ended=bool(rng.integers(2)),
      source='log:1',
    )
    for length in lengths
  ]


def gather(texts, size, *starts):
  rows, draws = logprob_totals.Rows(), [*starts]
  for first in range(0, len(texts), size):
    tokens = rows.place(texts[first : first + size])
    rows.add(tokens)
    for draw in draws:
      draw.add(tokens)
  return rows


@pytest.mark.parametrize('size', [1, 7, 100])
def test_rows_hold_the_totals_of_their_prompts(size):
  texts = make_texts(60, 20)
  rows = gather(texts, size)
  of_prompts = {}
  for text in texts:
    if len(text.log_probs):
      of_prompts.setdefault(text.prompt, []).extend(-text.log_probs)
  surprisals = [np.array(s) for s in of_prompts.values()]
  np.testing.assert_array_equal(rows.num_tokens, [len(s) for s in surprisals])
  np.testing.assert_allclose(
    rows.moments,
    [[s.sum() for s in surprisals], [(s**2).sum() for s in surprisals]],
  )
  progress = [
    [np.minimum(s, cap).sum() for s in surprisals] for cap in run_bounds.CAPS
  ]
  np.testing.assert_allclose(rows.progress, progress)


def test_more_prompts_than_rows_share_them():
  num_rows = logprob_totals.NUM_ROWS
  texts = [
    logprob_files.Text(
      str(i % (2 * num_rows)), -np.ones(3), None, True, 'log:1'
    )
    for i in range(6 * num_rows)
  ]
  rows = gather(texts, 500)
  assert len(rows.num_tokens) == num_rows
  assert rows.num_tokens.sum() == 18 * num_rows
  # A prompt is always in the same row: nine tokens of each are together.
  assert np.all(rows.num_tokens % 9 == 0)


def test_all_starts_are_drawn_where_there_are_few():
  texts = make_texts(30, 9)
  starts = logprob_totals.Starts(1000, 3, None, seed=0)
  rows = gather(texts, 8, starts)
  found_rows, walks = starts.walks()
  place = lambda text: rows.place([text]).rows[0]
  expected = sorted(
    (
      int(place(text)),
      *np.float32(-text.log_probs[i : i + 3]).tolist(),
    )
    for text in texts
    for i in range(len(text.log_probs))
  )
  found = sorted(
    (int(row), *np.diff(sums[: length + 1]))
    for row, sums, length in zip(
      found_rows, np.asarray(walks.sums), np.asarray(walks.lengths), strict=True
    )
  )
  assert len(found) == len(expected)
  for one, other in zip(found, expected, strict=True):
    np.testing.assert_allclose(one, other, atol=1e-4)


def test_starts_are_drawn_alike_from_all_places_and_batches():
  # The surprisal is the number of the text, the walk one token deep.
  texts = [
    logprob_files.Text(str(i), np.full(5, -float(i)), None, True, 'log:1')
    for i in range(400)
  ]
  counts = np.zeros(400)
  for seed in range(40):
    starts = logprob_totals.Starts(100, 1, None, seed)
    gather(texts, 50, starts)
    _, walks = starts.walks()
    assert len(walks.lengths) == 100
    np.add.at(counts, np.asarray(walks.sums)[:, 1].astype(int), 1)
  # 4000 draws of 400 texts; quarters of the file have 1000 each.
  quarters = counts.reshape(4, 100).sum(axis=1)
  assert np.all(np.abs(quarters - 1000) < 4 * np.sqrt(1000 * 0.75))


def test_starts_are_kept_by_place_alone():
  texts = [
    logprob_files.Text(str(i), -np.arange(6.0), None, i % 2 == 0, 'log:1')
    for i in range(4)
  ]
  starts = logprob_totals.Starts(100, 2, 3, seed=0)
  gather(texts, 2, starts)
  rows, walks = starts.walks()
  first = np.asarray(walks.sums)[:, 1]
  for row in range(4):
    assert sorted(first[rows == row]) == [0.0, 1.0, 2.0]
