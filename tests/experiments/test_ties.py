"""Tests of experiments.ties: scores, and how near they may lie by rounding."""

import jax.numpy as jnp
import numpy as np
import pytest
import reference_decode

from experiments import ties
from specjax import noise as noise_lib
from specjax import sampling as sampling_lib

VOCAB = 23
TEXT = [1, 2] * 4
PROMPT, OUTPUT = TEXT[:3], TEXT[3:]
SEED = 77


def slow_scores(params, temperature):
  logits = reference_decode.logits_after(params, TEXT)[-1]
  if not temperature:
    return logits
  law = reference_decode.slow_law(logits, temperature, 0, 1.0, 0.0)
  noise = noise_lib.gumbel(SEED, len(TEXT), noise_lib.USE_TOKEN, VOCAB)
  return np.log(law) + noise


def scores(params, temperature, num_together):
  return np.asarray(
    ties.next_scores(
      params,
      jnp.asarray(np.pad(TEXT, (0, 9))),
      len(TEXT),
      sampling_lib.make(1, temperature),
      np.uint32(SEED),
      num_together,
    )
  )


def gap(params, tokens, temperature, limit):
  sampling = sampling_lib.make(1, temperature)
  return ties.gap(
    params, PROMPT, OUTPUT, tokens, sampling, np.uint32(SEED), limit
  )


@pytest.mark.parametrize('temperature', [0.0, 0.7])
def test_scores_are_those_of_the_slow_twin(tiny, temperature):
  expected = slow_scores(tiny, temperature)
  for num_together in (len(TEXT), 5, 0):
    got = scores(tiny, temperature, num_together)
    np.testing.assert_allclose(got, expected, atol=1e-4)
  sampling = sampling_lib.make(1, temperature)
  text, _ = reference_decode.plain(tiny, TEXT, (), 1, 64, SEED, sampling)
  assert text == [int(np.argmax(expected))]


@pytest.mark.parametrize('temperature', [0.0, 1.0])
def test_a_gap_is_that_of_the_worse_token(tiny, temperature):
  expected = slow_scores(tiny, temperature)
  order = np.argsort(-expected)
  for pair in ((0, 3), (3, 0), (2, 5)):
    found = gap(tiny, tuple(order[list(pair)]), temperature, 0.5)
    worst = expected[order[0]] - expected[order[max(pair)]]
    np.testing.assert_allclose(found.size, worst, atol=1e-4)
    assert found.limit == 0.5


# Kinds: a shift of all scores that is taken for rounding, the wrong beginning.
def test_a_limit_is_measured_between_two_ways_to_read(tiny, monkeypatch):
  noise = np.random.default_rng(0).normal(size=VOCAB)
  real = ties.next_scores
  read = []

  def next_scores(*args):
    *_, num_together = args
    read.append(num_together)
    change = 3.0 + noise if num_together < len(TEXT) else 0.0
    return real(*args) + change

  exact = gap(tiny, (0, 1), 0.0, None)
  assert exact.limit < ties.TIE
  monkeypatch.setattr(ties, 'next_scores', next_scores)
  found = gap(tiny, (0, 1), 0.0, None)
  np.testing.assert_allclose(found.limit, 6 * noise.std(), rtol=1e-4)
  assert found.size == exact.size
  assert read == [len(TEXT), len(PROMPT) - 1]
