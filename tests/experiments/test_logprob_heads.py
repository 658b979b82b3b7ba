"""Heads of listed tokens against the whole laws, over all that can be drawn."""

import numpy as np
import pytest

from experiments.logprobs import files as logprob_files
from experiments.logprobs import heads as logprob_heads
from experiments.logprobs import totals as logprob_totals

NUM_LISTED = 4
RNG = np.random.default_rng(0)
LAWS = {
  'random': RNG.dirichlet(np.full(9, 0.5)),
  'flat': np.full(9, 1 / 9),
  'ties at the end': np.array([0.3, 0.2, 0.1, 0.1, 0.1, 0.1, 0.05, 0.03, 0.02]),
  'peaked': np.array([0.9, *np.full(8, 0.0125)]),
  # Whole where the last is drawn and listed beside the others.
  'one more than is listed': np.array([0.4, 0.25, 0.2, 0.1, 0.05]),
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


def texts_of(tops, surprisals):
  """Texts of one token, each a row: totals are the tokens' own values."""
  return [
    logprob_files.Text(
      str(i),
      -surprisals[[i]],
      None if tops is None else tops[[i]],
      True,
      f'{i}',
    )
    for i in range(len(surprisals))
  ]


def totals(*batches, vocab_size=9):
  """What is kept of batches of texts."""
  heads, rows = logprob_heads.Heads(vocab_size), logprob_totals.Rows()
  for texts in batches:
    heads.add(texts, rows.place(texts))
  return heads


def values(p, kind):
  heads = totals(texts_of(lists(p, kind), -np.log(p)))
  assert heads.are_known and heads.first_lacking is None
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
  heads = totals(texts_of(np.tile(np.log(p), (9, 1)), -np.log(p)))
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
  texts = [
    text._replace(prompt=str(row))
    for text, row in zip(
      texts_of(lists(p, top_alone), -np.log(p)), rows, strict=True
    )
  ]
  of_all, in_parts = totals(texts), totals(texts[:4], [], texts[4:])
  for one, other in zip(
    of_all.sums(2).limits, in_parts.sums(2).limits, strict=True
  ):
    np.testing.assert_allclose(one, other, rtol=1e-6)
  each = values(p, top_alone).progress
  expected = np.stack([each[:, rows == row].sum(axis=1) for row in (0, 1)], 1)
  for heads in (of_all, in_parts):
    np.testing.assert_allclose(heads.sums(2).progress, expected, rtol=1e-6)


@pytest.mark.parametrize('tops', [None, [[-1.0]], [[-1.0, -9999.0]]])
def test_nothing_is_known_once_a_list_is_too_short(tops):
  p = LAWS['random']
  good = texts_of(lists(p, top_alone), -np.log(p))
  bad = good[2]._replace(
    top_log_probs=None if tops is None else np.array(tops), source='log:7'
  )
  assert not totals().are_known
  assert totals(good).are_known
  for batches in ([[bad], good], [good, [bad]], [[*good[:2], bad]]):
    heads = totals(*batches)
    assert not heads.are_known
    assert (heads.num_lacking, heads.first_lacking) == (1, 'log:7')
  worse = bad._replace(source='log:8')
  heads = totals(good, [bad, worse], good, [worse])
  assert (heads.num_lacking, heads.first_lacking) == (3, 'log:7')


def test_a_sure_token_needs_no_longer_list_and_no_token_needs_none():
  p = LAWS['random']
  good = texts_of(lists(p, top_alone), -np.log(p))
  sure = good[0]._replace(
    log_probs=np.zeros(1), top_log_probs=np.array([[0.0, -9999.0]])
  )
  empty = good[0]._replace(log_probs=np.zeros(0), top_log_probs=None)
  assert totals([*good, sure, empty], [sure]).are_known
