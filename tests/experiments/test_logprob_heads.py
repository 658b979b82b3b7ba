"""Heads of listed tokens against the whole laws, over all that can be drawn."""

import numpy as np
import pytest

from experiments import logprob_heads, logprob_totals

NUM_LISTED = 4
RNG = np.random.default_rng(0)
LAWS = {
  'random': RNG.dirichlet(np.full(9, 0.5)),
  'flat': np.full(9, 1 / 9),
  'ties at the end': np.array([0.3, 0.2, 0.1, 0.1, 0.1, 0.1, 0.05, 0.03, 0.02]),
  'peaked': np.array([0.9, *np.full(8, 0.0125)]),
}


def top_alone(top, drawn):
  """OpenAI and SGLang."""
  del drawn
  return top


def drawn_in_the_place_of_the_last(top, drawn):
  """Chat responses of vLLM."""
  return top if drawn in top else [drawn, *top[:-1]]


def drawn_beside(top, drawn):
  """Completions."""
  return top if drawn in top else [*top, drawn]


KINDS = (top_alone, drawn_in_the_place_of_the_last, drawn_beside)


def lists(p, kind, num_listed=NUM_LISTED):
  """The list that comes with each token of a law, `[V, num_listed + 1]`."""
  order = np.argsort(-p, kind='stable')[:num_listed].tolist()
  tops = np.full((len(p), num_listed + 1), -np.inf)
  for drawn, row in enumerate(tops):
    listed = kind(order, drawn)
    row[: len(listed)] = np.log(p[RNG.permutation(listed)])
  return tops


def tokens_of(tops, surprisals):
  """Tokens of which each is a row, so that totals are its own values."""
  each = np.arange(len(surprisals))
  return logprob_totals.Tokens(surprisals, each, each, each + 1, each > 0, tops)


def values(p, kind, vocab_size=9):
  heads = logprob_heads.Heads(vocab_size)
  heads.add(tokens_of(lists(p, kind), -np.log(p)))
  assert heads.are_known
  return heads.sums(len(p))


@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('name', LAWS)
def test_the_head_is_the_same_whatever_was_drawn(name, kind):
  p = LAWS[name]
  head, _, is_listed = logprob_heads.cut(lists(p, kind), -np.log(p))
  np.testing.assert_array_equal(head, np.broadcast_to(head[0], head.shape))
  found = np.exp(head[0][np.isfinite(head[0])])
  last = np.sort(p)[-NUM_LISTED + 1]
  np.testing.assert_allclose(found, np.sort(p[p > last])[::-1])
  np.testing.assert_array_equal(is_listed, p > last)


@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('name', LAWS)
def test_estimates_are_right_in_the_mean_and_limits_hold(name, kind):
  p = LAWS[name]
  limits = values(p, kind).limits
  exact = [np.sum(p * (-np.log(p)) ** j) for j in (1, 2)]
  for low, estimate, high, moment in zip(
    limits.low, limits.estimate, limits.high, exact, strict=True
  ):
    assert np.sum(p * estimate) == pytest.approx(moment, rel=1e-5)
    assert np.all(low <= moment + 1e-5)
    assert np.all(high >= moment - 1e-5)
  listed = np.sort(p)[-NUM_LISTED + 1]
  np.testing.assert_allclose(limits.missing, np.sum(p[p <= listed]), rtol=1e-5)


@pytest.mark.parametrize('kind', KINDS)
@pytest.mark.parametrize('name', LAWS)
def test_progress_is_that_of_a_valid_cap(name, kind):
  p = LAWS[name]
  surprisals = -np.log(p)
  progress = np.sum(p * values(p, kind).progress, axis=1)
  caps = np.linspace(0.0, 30.0, 3001)
  capped = [np.sum(p * np.minimum(surprisals, cap)) for cap in caps]
  growth = [np.sum(np.minimum(1.0, p * np.exp(cap))) for cap in caps]
  for surplus, found in zip(logprob_heads.SURPLUSES, progress, strict=True):
    # No more progress than under the largest cap that is allowed.
    allowed = np.searchsorted(growth, 1.0 + surplus)
    most = capped[min(allowed, len(caps) - 1)]
    assert 0.0 < found <= most + 1e-5


def test_whole_laws_give_all_of_the_progress():
  p = LAWS['random']
  heads = logprob_heads.Heads(9)
  heads.add(tokens_of(np.tile(np.log(p), (9, 1)), -np.log(p)))
  progress = heads.sums(9).progress
  for surplus, found in zip(logprob_heads.SURPLUSES, progress, strict=True):
    low, high = 0.0, 50.0
    for _ in range(60):
      cap = (low + high) / 2
      is_above = np.sum(np.minimum(1.0, p * np.exp(cap))) > 1.0 + surplus
      low, high = (low, cap) if is_above else (cap, high)
    exact = np.sum(p * np.minimum(-np.log(p), low))
    np.testing.assert_allclose(found, exact, rtol=1e-4)


def test_lists_that_hold_all_mass_do_not_count_as_short():
  p = LAWS['random']
  sure = np.full(NUM_LISTED + 1, -np.inf)
  sure[:2] = [0.0, -9999.0]  # What vLLM writes for a filtered token.
  tops = np.vstack([lists(p, top_alone), sure])
  surprisals = np.append(-np.log(p), 0.0)
  head, _, is_listed = logprob_heads.cut(tops, surprisals)
  np.testing.assert_array_equal(
    head[:-1], logprob_heads.cut(tops[:-1], surprisals[:-1])[0]
  )
  assert head[-1, 0] == 0.0 and np.all(np.isneginf(head[-1, 1:]))
  assert is_listed[-1]


def test_totals_are_of_rows_and_do_not_depend_on_batches():
  p = LAWS['random']
  rows = np.arange(9) % 2
  of_all, in_parts = logprob_heads.Heads(9), logprob_heads.Heads(9)
  tokens = tokens_of(lists(p, top_alone), -np.log(p))._replace(rows=rows)
  of_all.add(tokens)
  cut = lambda x, part: None if x is None else x[part]
  for part in (slice(0, 4), slice(4, 4), slice(4, 9)):
    in_parts.add(logprob_totals.Tokens(*(cut(x, part) for x in tokens)))
  for one, other in zip(
    of_all.sums(2).limits, in_parts.sums(2).limits, strict=True
  ):
    np.testing.assert_allclose(one, other, rtol=1e-6)
  each = values(p, top_alone).progress
  expected = np.stack([each[:, rows == row].sum(axis=1) for row in (0, 1)], 1)
  for heads in (of_all, in_parts):
    np.testing.assert_allclose(heads.sums(2).progress, expected, rtol=1e-6)


@pytest.mark.parametrize('num_listed', [None, 1])
def test_nothing_is_known_once_a_list_is_too_short(num_listed):
  p = LAWS['random']
  heads = logprob_heads.Heads(9)
  assert not heads.are_known
  good = tokens_of(lists(p, top_alone), -np.log(p))
  heads.add(good)
  assert heads.are_known
  tops = num_listed and lists(p, top_alone, num_listed)
  heads.add(good._replace(tops=tops))
  assert not heads.are_known
  heads.add(good)
  assert not heads.are_known
