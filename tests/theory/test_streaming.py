import functools

import numpy as np
import pytest
from scipy import stats

from specjax.theory import entropy as entropy_lib
from specjax.theory import iid_bounds, resample, streaming


def stream(num_prompts, rng, length=20, num_cells=3):
  """Returns values, prompts and cells of texts with prompts unlike another."""
  size = num_prompts * length
  prompts = np.repeat(rng.integers(2**63, size=num_prompts), length)
  scale = np.repeat(rng.uniform(0.5, 3.0, size=num_prompts), length)
  s = scale * rng.exponential(size=size)
  cells = np.repeat(np.arange(num_prompts) % num_cells, length)
  return entropy_lib.Moments(mu=s, mu2=s**2), prompts, cells


def mu(means):
  return means.mu


def test_totals_do_not_depend_on_how_the_tokens_are_cut():
  rng = np.random.default_rng(0)
  values, prompts, cells = stream(40, rng)
  whole = streaming.of_batch(values, prompts, cells, 3, seed=7)
  order = rng.permutation(len(prompts))
  parts = [
    streaming.of_batch(
      entropy_lib.Moments(values.mu[part], values.mu2[part]),
      prompts[part],
      cells[part],
      3,
      seed=7,
    )
    for part in np.split(order, [1, 5, 300])
  ]
  added = functools.reduce(streaming.add, parts)
  for name in ('mu', 'mu2'):
    np.testing.assert_allclose(
      getattr(added.sums, name), getattr(whole.sums, name), rtol=1e-12
    )
  np.testing.assert_array_equal(added.counts, whole.counts)
  pooled = streaming.means(added)
  for cell in range(3):
    np.testing.assert_allclose(pooled.mu[cell], values.mu[cells == cell].mean())
    assert streaming.num_tokens(added)[cell] == np.sum(cells == cell)


def test_leading_axes_and_one_cell():
  rng = np.random.default_rng(1)
  values = rng.normal(size=(2, 4, 30))
  totals = streaming.of_batch(values, np.arange(30) % 5)
  np.testing.assert_allclose(
    streaming.means(totals)[..., 0], values.mean(axis=-1)
  )
  spread = streaming.jackknife(totals, lambda means: means[..., 0, :])
  assert spread.low.shape == (2, 4)


def test_weights_are_poisson_and_independent():
  weights = streaming._weights(np.arange(2000), seed=3)
  draws = weights[:, 1 + streaming._NUM_BLOCKS :].astype(int)
  counts = np.bincount(draws.ravel(), minlength=7)
  expected = stats.poisson.pmf(np.arange(6), 1.0) * draws.size
  expected = np.append(expected, draws.size - expected.sum())
  counts = np.append(counts[:6], counts[6:].sum())
  assert stats.chisquare(counts, expected).pvalue > 1e-3
  for axis in (0, 1):
    # Means over resamples and over prompts spread as independent draws do.
    spread = np.std(draws.mean(axis=axis)) * np.sqrt(draws.shape[axis])
    np.testing.assert_allclose(spread, 1.0, rtol=0.12)
  blocks = weights[:, 1 : 1 + streaming._NUM_BLOCKS]
  np.testing.assert_array_equal(blocks.sum(axis=1), 1.0)
  assert stats.chisquare(blocks.sum(axis=0)).pvalue > 1e-3
  other = streaming._weights(np.arange(2000), seed=4)
  assert np.mean(other == weights) < 0.95


def test_bootstrap_agrees_with_resampled_prompts():
  rng = np.random.default_rng(2)
  values, prompts, _ = stream(300, rng)
  totals = streaming.of_batch(values, prompts)
  ours = streaming.bootstrap(totals, lambda means: means.mu[0])
  direct = resample.mean(values.mu, prompts, seed=0)
  np.testing.assert_allclose(ours.value, direct.value, rtol=1e-5)
  np.testing.assert_allclose(
    ours.high - ours.low, direct.high - direct.low, rtol=0.2
  )
  # Statistics of several means: a bound for i.i.d. laws.
  bound = lambda means: iid_bounds.lorden_dual(means.mu, means.mu2, 16)[0]
  spreads = [
    f(totals, bound) for f in (streaming.bootstrap, streaming.jackknife)
  ]
  for spread in spreads:
    assert spread.low < spread.value < spread.high
  widths = [spread.high - spread.low for spread in spreads]
  np.testing.assert_allclose(*widths, rtol=0.3)


def test_jackknife_is_that_of_the_definition():
  rng = np.random.default_rng(3)
  values, prompts, _ = stream(200, rng)
  totals = streaming.of_batch(values, prompts)
  ratio = lambda means: means.mu2[0] / means.mu[0]
  spread = streaming.jackknife(totals, ratio)
  ids, place = np.unique(prompts, return_inverse=True)
  block = streaming._weights(ids, 0)[:, 1 : 1 + streaming._NUM_BLOCKS]
  block = np.argmax(block, axis=1)[place]
  used = np.unique(block)
  left = [
    values.mu2[block != j].sum() / values.mu[block != j].sum() for j in used
  ]
  n = len(used)
  error = np.sqrt((n - 1) / n * np.sum((left - np.mean(left)) ** 2))
  reach = stats.t.ppf(0.975, n - 1) * error
  exact = values.mu2.sum() / values.mu.sum()
  np.testing.assert_allclose(spread.value, exact)
  np.testing.assert_allclose(
    [spread.low, spread.high], [exact - reach, exact + reach]
  )


def test_intervals_cover():
  rng = np.random.default_rng(4)
  num_covered = np.zeros(2)
  for seed in range(100):
    values, prompts, _ = stream(50, rng, length=4)
    totals = streaming.of_batch(values, prompts, seed=seed)
    for i, spread_fn in enumerate((streaming.bootstrap, streaming.jackknife)):
      spread = spread_fn(totals, lambda means: means.mu[0])
      num_covered[i] += spread.low < 1.75 < spread.high
  assert np.all((num_covered >= 86) & (num_covered <= 100))


@pytest.mark.parametrize('num_prompts', [1, 2, 3])
def test_few_prompts_know_no_limits_and_sure_laws_no_spread(num_prompts):
  prompts = np.arange(num_prompts)
  totals = streaming.of_batch(np.zeros(num_prompts), prompts)
  first = lambda means: means[0]
  assert streaming.bootstrap(totals, first).value == 0.0
  assert np.all(np.isinf(streaming.bootstrap(totals, first)[1:]))
  spread = streaming.jackknife(totals, first)
  assert np.all(
    np.isinf(spread[1:]) if num_prompts == 1 else np.equal(spread, 0.0)
  )
  many = streaming.of_batch(np.zeros(40), np.arange(40))
  np.testing.assert_array_equal(streaming.bootstrap(many, first), 0.0)
  np.testing.assert_array_equal(streaming.jackknife(many, first), 0.0)


def test_a_cell_without_tokens_is_unknown():
  totals = streaming.of_batch(np.ones(20), np.arange(20), np.zeros(20, int), 2)
  np.testing.assert_array_equal(streaming.means(totals), [1.0, np.nan])
  for spread_fn in (streaming.bootstrap, streaming.jackknife):
    spread = spread_fn(totals, lambda means: means)
    np.testing.assert_allclose(spread.low[0], 1.0)
    assert np.isnan(spread.value[1]) and not np.isfinite(spread.low[1])


def test_tokens_needed_grow_with_the_square_of_the_precision():
  rng = np.random.default_rng(5)
  values, prompts, _ = stream(2000, rng)
  first = slice(200 * 20)
  few = streaming.of_batch(values.mu[first], prompts[first])
  spread = streaming.jackknife(few, lambda means: means[0])
  needed = streaming.tokens_needed(spread, 4000, 0.05)
  halved = streaming.tokens_needed(spread, 4000, 0.025)
  np.testing.assert_allclose(halved, 4 * needed, rtol=1e-3)
  # What is asked for is what ten times the prompts give.
  all_spread = streaming.jackknife(
    streaming.of_batch(values.mu, prompts), lambda means: means[0]
  )
  half_width = (all_spread.high - all_spread.low) / 2
  np.testing.assert_allclose(
    streaming.tokens_needed(spread, 4000, half_width), 40000, rtol=0.5
  )
  with pytest.raises(ValueError, match='expected half_width > 0, got 0'):
    streaming.tokens_needed(spread, 4000, 0.0)


def test_prompt_ids_are_stable():
  assert streaming.prompt_id('a') == streaming.prompt_id('a')
  ids = {streaming.prompt_id(str(i)) for i in range(1000)}
  assert len(ids) == 1000 and max(ids) < 2**64
  ids = np.array(sorted(ids), np.uint64)
  assert streaming.of_batch(np.ones(1000), ids).counts[0, 0] == 1000


def test_bad_batches_are_named():
  with pytest.raises(ValueError, match='of 3 tokens, got shape .2,'):
    streaming.of_batch(np.ones(2), np.arange(3))
  with pytest.raises(ValueError, match=r'expected cells in \[0, 2\), got 2'):
    streaming.of_batch(np.ones(3), np.arange(3), np.arange(3), 2)
  with pytest.raises(ValueError, match='expected finite values, got nan'):
    streaming.of_batch([np.ones(2), np.array([1, np.nan])], np.arange(2))
