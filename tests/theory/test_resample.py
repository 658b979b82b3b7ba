import numpy as np
import pytest

from specjax.theory import resample


def test_halves_split_rows_not_entries():
  rows = np.repeat(np.arange(7), [3, 1, 4, 1, 5, 9, 2])
  is_first = np.asarray(resample.halves(rows, seed=1))
  for row in range(7):
    assert len(set(is_first[rows == row])) == 1
  assert len(set(rows[is_first])) == 3
  np.testing.assert_array_equal(is_first, resample.halves(rows, seed=1))
  with pytest.raises(ValueError, match='at least 2 prompts .* got 1'):
    resample.halves(np.zeros(5, int), seed=0)


def test_ratio_is_of_totals_and_its_spread_is_that_of_theory():
  rng = np.random.default_rng(0)
  calls = rng.integers(5, 50, size=400)
  tokens = 2.0 * calls + rng.normal(size=400) * 20.0
  value, low, high = resample.ratio(tokens, calls, seed=0)
  np.testing.assert_allclose(value, tokens.sum() / calls.sum(), rtol=1e-5)
  # Linearised: variance of the ratio of totals over 400 rows.
  error = np.std(tokens - float(value) * calls) / np.sqrt(400) / calls.mean()
  np.testing.assert_allclose(high - low, 2 * 1.96 * error, rtol=0.1)
  assert low < value < high
  again = resample.ratio(tokens, calls, seed=0)
  np.testing.assert_array_equal(again.low, low)


def test_intervals_cover():
  rng = np.random.default_rng(1)
  tokens = rng.normal(3.0, 1.0, size=(200, 30))  # 200 experiments, 30 rows
  _, low, high = resample.ratio(tokens, np.ones(30), seed=0)
  assert 0.87 < np.mean((low < 3.0) & (high > 3.0)) < 0.99


def test_mean_weighs_entries_and_resamples_rows():
  rows = np.array([4, 4, 4, 9])
  value, low, high = resample.mean(np.array([1.0, 2.0, 3.0, 6.0]), rows, 0)
  np.testing.assert_allclose([value, low, high], [3.0, 2.0, 6.0], rtol=1e-6)


def test_difference_is_paired():
  rng = np.random.default_rng(2)
  calls = rng.integers(10, 20, size=50)
  tokens = calls * rng.uniform(1.0, 3.0, size=50)
  value, low, high = resample.ratio_difference(
    (tokens + 0.5 * calls, tokens), (calls, calls), seed=0
  )
  np.testing.assert_allclose([value, low, high], 0.5, rtol=1e-3)


def test_no_calls_at_all_is_no_limit_and_not_nan():
  value, low, high = resample.ratio(np.ones((2, 3)), np.zeros((2, 3)), seed=0)
  assert np.all(np.isposinf([value, low, high]))
