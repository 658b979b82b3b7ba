"""Start bounds from log-probs alone against sums, and against whole laws."""

import jax.numpy as jnp
import numpy as np
import pytest

from specjax.theory import entropy, sampled_starts, start_bounds

SURPRISALS = [
  np.array([0.5, 0.1, 2.0, 0.0]),
  np.array([0.2]),
  np.array([0.3, 0.3]),
  np.array([]),
  np.array([1.0, 0.2, 0.2, 0.4, 0.1, 0.3]),
]
HAS_ENDED = [True, False, True, False, False]


def slow_walk(surprisals, has_ended, capacity):
  """S_0 .. S_(N-1) by the definition, one depth at a time."""
  sums = [0.0]
  for n in range(1, capacity):
    if n <= len(surprisals):
      sums.append(sums[-1] + surprisals[n - 1])
    else:
      sums.append(np.inf if has_ended else sums[-1])
  return np.array(sums)


@pytest.mark.parametrize('capacity', [1, 2, 3, 5, 7, 40])
@pytest.mark.parametrize('threshold', [0.0, 0.45, 1.7, 9.0])
def test_bounds_are_their_definitions(capacity, threshold):
  walks = sampled_starts.of_surprisals(SURPRISALS, HAS_ENDED)
  theta = np.exp(-threshold)
  dual, counting, is_open = [], [], []
  for surprisals, ended in zip(SURPRISALS, HAS_ENDED, strict=True):
    sums = slow_walk(surprisals, ended, capacity)
    excess = np.maximum(1.0 - np.exp(sums - threshold), 0.0)
    dual.append(capacity * theta + excess.sum())
    counting.append((capacity - 1) * theta + np.sum(sums <= threshold))
    # More recorded text could have made a difference.
    more = [slow_walk([*surprisals, 50.0], ended, capacity), sums]
    is_open.append(
      not ended and np.sum(more[0] <= threshold) < np.sum(sums <= threshold)
    )
  for bound, expected in [
    (sampled_starts.dual, dual),
    (sampled_starts.counting, counting),
  ]:
    found = bound(walks, capacity, threshold)
    np.testing.assert_allclose(found.values, expected, rtol=2e-6)
    np.testing.assert_array_equal(found.is_open, is_open)


@pytest.mark.parametrize('capacity', [1, 3, 6, 30])
def test_uniform_laws_leave_no_difference_to_whole_laws(capacity):
  # All tokens of a uniform law are alike, so the sample of a depth is its mean.
  rng = np.random.default_rng(0)
  vocab_size, num_rows, length, eos = 9, 8, 12, 8
  num_tokens = rng.integers(3, length + 1, num_rows)
  num_tokens[:2] = length
  has_ended = np.arange(num_rows) % 2 == 0
  supports = rng.integers(1, vocab_size, (num_rows, length))
  log_p = np.full((num_rows, length, vocab_size), -np.inf)
  for place in np.ndindex(num_rows, length):
    log_p[place][: supports[place]] = -np.log(supports[place])
  tokens = rng.integers(0, supports)
  for row in np.flatnonzero(has_ended):
    # The end is sure, and the log leaves it out.
    log_p[row, num_tokens[row] - 1] = np.where(
      np.arange(vocab_size) == eos, 0.0, -np.inf
    )
    tokens[row, num_tokens[row] - 1] = eos
  texts = entropy.Texts(
    laws=entropy.summarise(jnp.asarray(log_p), jnp.asarray(tokens), vocab_size),
    tokens=jnp.asarray(tokens),
    num_tokens=jnp.asarray(num_tokens),
    eos_ids=jnp.asarray([eos]),
  )
  starts = [(r, p) for r in range(num_rows) for p in range(num_tokens[r])]
  rows, places = (jnp.asarray(x) for x in zip(*starts, strict=True))
  surprisals = np.asarray(texts.laws.surprisal)
  walks = sampled_starts.of_surprisals(
    [surprisals[r, p : num_tokens[r] - has_ended[r]] for r, p in starts],
    [has_ended[r] for r, _ in starts],
  )
  thresholds = jnp.asarray(rng.uniform(0.0, 4.0, len(starts)))
  for name in ('dual', 'counting'):
    found, expected = (
      getattr(module, name)(*args, capacity, thresholds)
      for module, args in [
        (sampled_starts, (walks,)),
        (start_bounds, (texts, rows, places)),
      ]
    )
    np.testing.assert_allclose(found.values, expected.values, rtol=1e-5)
    np.testing.assert_array_equal(found.is_open, expected.is_open)


def test_the_mean_is_the_optimum_at_the_threshold_of_the_best_tree():
  rng = np.random.default_rng(1)
  p = np.array([0.5, 0.25, 0.25])
  surprisals = -np.log(p[rng.choice(3, p=p, size=(20000, 6))])
  walks = sampled_starts.of_surprisals(surprisals, [False] * len(surprisals))
  # Root, 1/2, three nodes of 1/4 and two of those of 1/8.
  optimum = 1 + 0.5 + 3 * 0.25 + 2 * 0.125
  samples = sampled_starts.dual(walks, 7, np.log(8.0)).values
  error = np.std(samples) / np.sqrt(len(samples))
  assert abs(np.mean(samples) - optimum) < 4 * error


def test_the_threshold_of_a_row_is_fitted_on_other_rows():
  rng = np.random.default_rng(2)
  surprisals = list(rng.exponential(1.0, (60, 9)))
  walks = sampled_starts.of_surprisals(surprisals, [False] * 60)
  rows = np.repeat(np.arange(12), 5)
  fitted = np.asarray(sampled_starts.cross_fitted(walks, rows, 10, seed=3))
  assert len(np.unique(fitted)) <= 2
  for row in range(12):
    here = rows == row
    assert len(np.unique(fitted[here])) == 1
    changed = [s * 7 if h else s for s, h in zip(surprisals, here, strict=True)]
    again = sampled_starts.cross_fitted(
      sampled_starts.of_surprisals(changed, [False] * 60), rows, 10, seed=3
    )
    np.testing.assert_array_equal(fitted[here], np.asarray(again)[here])
  # No threshold of the grid is better on the half that it was fitted on.
  for t in np.unique(fitted):
    others = fitted != t
    mean = lambda x, o=others: np.mean(
      np.asarray(sampled_starts.dual(walks, 10, x).values)[o]
    )
    assert all(
      mean(t) <= mean(x) + 1e-6 for x in np.linspace(0, np.log(10) + 3, 64)
    )


def test_bad_arguments_are_named():
  walks = sampled_starts.of_surprisals(SURPRISALS, HAS_ENDED)
  with pytest.raises(ValueError, match='capacity >= 1, got 0'):
    sampled_starts.dual(walks, 0, 1.0)
  with pytest.raises(ValueError, match='thresholds >= 0, got -1'):
    sampled_starts.counting(walks, 4, -1.0)
  with pytest.raises(ValueError, match='at least 2 prompts'):
    sampled_starts.cross_fitted(walks, np.zeros(5, int), 4)
