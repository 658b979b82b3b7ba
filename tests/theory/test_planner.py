"""Plans against a published table, closed forms and brute force."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special

from specjax.theory import (
  iid_bounds,
  pass_times,
  planner,
  profiles,
  resample,
  roofline,
)

# Sequoia's published acceptance vector (68M drafter, 13B verifier, CNN,
# temperature 0.6), sorted; what lies behind is 0.0015.
RATES = (0.6342, 0.1079, 0.0570, 0.0225, 0.0195, 0.0150, 0.0120, 0.0075)
SIZES = (1, 2, 4, 8, 16, 32)

positive = st.floats(0.01, 100.0)


def sure(values):
  values = np.asarray(values, float)
  return resample.Interval(values, values, values)


def profile_of(tokens, num_nodes=None, draft_seconds=0.0):
  sizes = np.arange(1, len(tokens) + 1) if num_nodes is None else num_nodes
  return profiles.Profile(
    ('tree',) * len(tokens),
    np.asarray(sizes),
    sure(tokens),
    np.broadcast_to(draft_seconds, len(tokens)),
  )


def test_the_choice_of_a_published_table():
  times = pass_times.exact(SIZES, [10, 10, 10, 12, 14, 18])
  candidates = profiles.of_rates(RATES, SIZES, level_seconds=0.3)
  found = planner.plan(times, candidates)
  assert found.best.num_nodes == 4
  # 1 + .6342 + .6342^2 + .6342^3, in 10 and three levels of drafting.
  assert found.best.name == 'drafter, chain'
  assert found.best.tokens == pytest.approx(2.2915, abs=1e-4)
  assert found.best.rate.value == pytest.approx(2.2915 / 10.9, rel=1e-4)
  assert found.best.speedup.value == pytest.approx(22.915 / 10.9, rel=1e-4)
  # More tokens are not more tokens a second.
  most = max(found.choices, key=lambda choice: choice.tokens)
  assert most.num_nodes == 32
  assert most.rate.value < found.best.rate.value


def slow_best(times, tokens, draft_seconds, visit, batch):
  """The fastest candidate, by a loop; None for plain decoding."""
  best, best_rate = None, batch / times[0]
  for i, won in enumerate(tokens):
    rate = batch * won / (times[i] + draft_seconds[i] + visit[i] * (won - 1))
    if rate > best_rate:
      best, best_rate = i, rate
  return best, best_rate


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_plan_is_the_fastest_and_never_slower_than_plain(data):
  size = data.draw(st.integers(1, 8))
  column = lambda element: data.draw(
    st.lists(element, min_size=size, max_size=size)
  )
  times, drafts = column(positive), column(positive)
  tokens = 1 + np.array(column(st.floats(0, 1))) * np.arange(size)
  visit, batch = column(st.floats(0, 1)), data.draw(st.integers(1, 64))
  sizes = np.arange(1, size + 1)
  known = pass_times.PassTimes(sizes, sure(times), batch, np.array(visit))
  found = planner.plan(known, profile_of(tokens, sizes, np.array(drafts)))
  best, rate = slow_best(times, tokens, drafts, visit, batch)
  assert found.best.rate.value == pytest.approx(rate)
  assert (found.best.name == planner.PLAIN) == (best is None)
  assert found.best.rate.value >= found.plain.rate.value
  assert found.best.speedup.value == pytest.approx(rate * times[0] / batch)
  rates = [choice.rate.value for choice in found.choices]
  assert rates == sorted(rates, reverse=True)
  assert len(rates) == size + 1


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_unimodal_where_tokens_are_concave_and_times_convex(data):
  size = data.draw(st.integers(2, 12))
  draws = lambda element, count: data.draw(
    st.lists(element, min_size=count, max_size=count)
  )
  gains = np.sort(draws(st.floats(0, 1), size - 1))[::-1]
  tokens = np.concatenate([[1.0], 1.0 + np.cumsum(gains)])
  steps = np.sort(draws(st.floats(0, 5), size - 1))
  times = data.draw(positive) + np.concatenate([[0.0], np.cumsum(steps)])
  drafts = np.arange(size) * data.draw(st.floats(0, 5))
  sizes = np.arange(1, size + 1)
  known = pass_times.PassTimes(
    sizes, sure(times), 3, data.draw(st.floats(0, 1))
  )
  found = planner.plan(known, profile_of(tokens, sizes, drafts))
  rates = {c.num_nodes: c.rate.value for c in found.choices if c.name == 'tree'}
  rates = np.array([rates[size] for size in sizes])
  peak = int(np.argmax(rates))
  slack = 1e-9 * rates.max()
  assert np.all(np.diff(rates[: peak + 1]) >= -slack)
  assert np.all(np.diff(rates[peak:]) <= slack)


def test_a_staircase_has_several_tops():
  times = pass_times.exact(range(1, 7), [1, 1.4, 1.4, 1.4, 2, 2])
  found = planner.plan(times, profile_of([1, 1.5, 1.4, 2, 2.1, 3]))
  rates = {c.num_nodes: c.rate.value for c in found.choices if c.name == 'tree'}
  assert rates[2] > rates[3] < rates[4] > rates[5] < rates[6]
  assert found.best.num_nodes == 6


SMALL = roofline.Sizes(2, 64, 128, 4, 2, 16, 1000)


@settings(max_examples=60, deadline=None)
@given(
  *(st.floats(1e6, 1e12) for _ in range(3)),
  st.floats(0, 1e-3),
  st.integers(1, 64),
  st.sampled_from(roofline.BLENDS),
)
def test_more_bandwidth_never_plans_fewer_tokens(
  one, other, peak, overhead, batch, blend
):
  sizes = np.arange(1, 17)
  work = roofline.work(SMALL, sizes, batch, 100, sizes)
  candidates = profiles.of_rates(RATES, sizes, level_seconds=1e-5)

  def rate(bandwidth):
    machine = roofline.Machine(bandwidth, peak, overhead, blend=blend)
    times = pass_times.exact(sizes, roofline.seconds(machine, work), batch)
    return planner.plan(times, candidates).best.rate.value

  assert rate(max(one, other)) >= rate(min(one, other)) * (1 - 1e-12)


@pytest.mark.parametrize('ratio', [20.0, 100.0, 1000.0])
def test_affine_passes_and_logarithmic_gains_by_lambert(ratio):
  """`max (log N + k) / (mu (a + b N))` is at `N = r / W(r e^(k-1))`, r = a/b.

  Its derivative is 0 where `r / N + 1 = log N + k`; with `x = log N + k - 1`
  that is `x e^x = r e^(k-1)`.
  """
  mu, mu2 = 1.2, 2.5
  k = np.log(mu) + mu2 / (2 * mu)
  expected = ratio / special.lambertw(ratio * np.exp(k - 1)).real
  sizes = np.arange(1, 400)
  times = pass_times.exact(sizes, ratio + sizes)
  candidates = profiles.of_moments(mu, mu2, sizes)
  found = planner.plan(times, candidates)
  assert found.best.tokens == pytest.approx(
    (np.log(found.best.num_nodes) + k) / mu
  )
  assert abs(found.best.num_nodes - expected) <= 1


@pytest.mark.parametrize('rate', [0.5, 0.7, 0.9])
@pytest.mark.parametrize('cost', [0.02, 0.1, 0.4])
def test_chains_by_lambert(rate, cost):
  """Leviathan's `(1 - a^(g+1)) / ((1 - a) (1 + c g))` over real g.

  With `A = -log a`, `k = 1 + A / c - A`, the best `g + 1` is
  `(-k - W_-1(-e^-k)) / A`.
  """
  a = -np.log(rate)
  k = 1 + a / cost - a
  best = (-k - special.lambertw(-np.exp(-k), -1).real) / a
  sizes = np.arange(1, 65)
  times = pass_times.exact(sizes, np.ones(len(sizes)))
  found = planner.plan(times, profiles.of_rates([rate], sizes, cost))
  assert abs(found.best.num_nodes - max(best, 1)) <= 1
  g = found.best.num_nodes - 1
  assert found.best.tokens == pytest.approx((1 - rate ** (g + 1)) / (1 - rate))


def test_errors_add_in_squares():
  tokens = resample.Interval(np.array([2.0]), np.array([1.6]), np.array([2.5]))
  seconds = resample.Interval(*(np.array(x) for x in ([2, 4], [1, 3], [3, 8])))
  times = pass_times.PassTimes(np.array([1, 2]), seconds, 5)
  profile = profiles.Profile(('tree',), np.array([2]), tokens, np.zeros(1))
  found = planner.plan(times, profile)
  tree = next(c for c in found.choices if c.name == 'tree')
  low = np.exp(-np.hypot(np.log(2 / 1.6), np.log(2)))
  high = np.exp(np.hypot(np.log(2.5 / 2), np.log(4 / 3)))
  np.testing.assert_allclose(tree.rate, [2.5, 2.5 * low, 2.5 * high])
  # Plain decoding took 2, in [1, 3].
  logs = np.log([2 / 1.6, 2, 2]), np.log([2.5 / 2, 4 / 3, 1.5])
  ends = [np.exp(-np.linalg.norm(logs[0])), np.exp(np.linalg.norm(logs[1]))]
  np.testing.assert_allclose(tree.speedup, [1, *ends])
  assert found.best.name == planner.PLAIN  # On a tie.
  assert found.plain.speedup == (1, 1, 1)
  np.testing.assert_allclose(found.plain.rate, [2.5, 5 / 3, 5])


def test_the_ceiling_is_the_best_that_the_limit_allows():
  times = pass_times.exact([1, 2, 4], [1.0, 1.5, 3.0], batch=2)
  limit = profile_of([1, 2, 3], [1, 2, 4])
  found = planner.plan(times, profile_of([1.2], [2]), limit)
  assert found.ceiling.num_nodes == 2
  assert found.ceiling.rate.value == pytest.approx(2 * 2 / 1.5)
  assert found.ceiling.rate.value >= found.best.rate.value
  assert planner.plan(times, profile_of([1.2], [2])).ceiling is None


def test_moments_plan_below_their_limit():
  sizes = np.array([1, 2, 8, 64])
  times = pass_times.exact(sizes, [1, 1, 1.2, 2])
  limit = profiles.limit_of_moments(2.0, 9.0, sizes)
  candidates = profiles.of_moments(2.0, 9.0, sizes)
  found = planner.plan(times, candidates, limit)
  assert found.best.rate.value <= found.ceiling.rate.value
  np.testing.assert_allclose(
    candidates.tokens.low, iid_bounds.achievable(2.0, 9.0, sizes), rtol=1e-6
  )
  np.testing.assert_allclose(
    limit.tokens.value, iid_bounds.lorden_dual(2.0, 9.0, sizes), rtol=1e-6
  )
  inside = candidates.tokens
  assert np.all(inside.low <= inside.value)
  assert np.all(inside.value <= inside.high)


def test_price():
  # 100 tokens a second are 360,000 an hour.
  assert planner.price_per_million(100, 3.6) == pytest.approx(10.0)


def test_refusals():
  times = pass_times.exact([1, 2], [1.0, 1.0])
  with pytest.raises(
    ValueError, match='from 1 to N tokens .* got 2.5 at N = 2'
  ):
    planner.plan(times, profile_of([2.5], [2]))
  with pytest.raises(ValueError, match='passes of 1 to 2 nodes, .* got 3'):
    planner.plan(times, profile_of([2.5], [3]))
  short = profile_of([1.5], [2])._replace(draft_seconds=np.zeros(2))
  with pytest.raises(ValueError, match='columns of one length'):
    planner.plan(times, short)
  with pytest.raises(ValueError, match='mu2 >= mu'):
    profiles.of_moments(2.0, 3.0, [1, 2])
