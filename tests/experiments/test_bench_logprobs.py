"""The timed logs are of the right size."""

import numpy as np
import pytest

from experiments import (
  bench_logprobs,
  bound_from_logprobs,
)
from experiments.logprobs import files as logprob_files


@pytest.mark.parametrize('log', bench_logprobs.LOGS, ids=lambda log: log.name)
def test_logs_are_read(tmp_path, log):
  path = tmp_path / 'log.jsonl'
  bench_logprobs.write(path, log, 600, np.random.default_rng(0))
  bad_lines = logprob_files.BadLines()
  (texts,) = logprob_files.batches([str(path)], np.e, 10**6, bad_lines)
  assert bad_lines.count == 0
  assert [len(text.log_probs) for text in texts] == [500, 500]
  for text in texts:
    if log.num_top:
      assert text.top_log_probs.shape == (500, log.num_top)
      mass = np.exp(text.top_log_probs).sum(axis=1)
      np.testing.assert_allclose(mass, 0.5, rtol=1e-6)
      drawn = text.log_probs[:, None] == text.top_log_probs
      assert drawn.any(axis=1).all()
    else:
      assert text.top_log_probs is None
      np.testing.assert_allclose(text.log_probs, np.log(0.5))


def test_every_stretch_is_timed_and_told(tmp_path, monkeypatch):
  path = tmp_path / 'log.jsonl'
  bench_logprobs.write(
    path, bench_logprobs.LOGS[0], 1000, np.random.default_rng(0)
  )
  # The bounds themselves are tested elsewhere, and are slow to compile.
  monkeypatch.setattr(
    bound_from_logprobs.Stream, 'tabulate', lambda stream: None
  )
  row = bench_logprobs.pass_over(path, [1, 4], seed=0)
  assert row['num_tokens'] == 1000
  assert all(value >= 0 for value in row.values())
  words = bench_logprobs.say({'log': 'plain', **row})
  assert 'plain' in words and '1000 tokens' in words
