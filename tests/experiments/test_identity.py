"""Tests of experiments.identity: what is the same, a tie, and a failure."""

import dataclasses
import math

import jax
import numpy as np
import pytest
import reference_decode

from experiments import drafters, identity, ties
from specjax import noise as noise_lib
from specjax.draft import lookup, oracle
from specjax.llama import model as llama_model

VOCAB = 23
EOS = (4, 22)
PROMPTS = [[18], [1], [1, 2] * 4, [7, 3, 9, 3, 9, 3]]
NUM_PROMPTS = len(PROMPTS)
MAX_NEW = 12
SEED = 5
TWIN = 7
DRAFTINGS = {
  'lookup': drafters.Drafting(lookup.make()),
  'oracle': drafters.Drafting(oracle.make(5, EOS)),
}


def no_progress(num_tokens):
  del num_tokens


def with_twin(params, factor):
  """A model that gives the logit of token 0, times a factor, to its twin."""
  config = dataclasses.replace(params.config, tie_embeddings=False)
  head = params.weights['embed']
  head = head.at[TWIN].set(factor * head[0])
  return llama_model.Params(params.weights | {'head': head}, config)


@pytest.fixture(scope='module')
def params(tiny):
  return with_twin(tiny, 1 - 1e-5)


def plain_texts(params, temperature, tie=ties.TIE):
  """A comparison and its plain texts."""
  comparison = identity.Comparison(
    params,
    EOS,
    PROMPTS,
    seed=SEED,
    max_new_tokens=MAX_NEW,
    max_length=64,
    tie=tie,
  )
  return comparison, comparison.plain(temperature, NUM_PROMPTS, no_progress)


def compare(comparison, plain, name, temperature):
  return comparison.compare(
    plain,
    DRAFTINGS[name],
    temperature=temperature,
    num_nodes=5,
    batch_size=NUM_PROMPTS,
    progress_fn=no_progress,
  )


def follow(text, output, gaps, redone):
  """Follows with looked-up gaps and continuations."""
  return identity.follow(
    text, output, lambda place, token: gaps[place, token], redone.__getitem__
  )


def test_what_is_the_same_is_followed_to_its_end():
  assert follow([1, 2, 3], [1, 2, 3], {}, {}) == (3, {})


def test_ties_are_counted_and_passed():
  # What is a tie is told for every place.
  gaps = {
    (1, 9): ties.Gap(1e-4, 1e-3),
    (2, 8): ties.Gap(0.2, 0.3),
    (4, 7): ties.Gap(0.0, 1e-3),
  }
  redone = {2: [8, 8, 8], 3: [4, 7]}
  assert follow([1, 2, 3, 4, 5], [1, 9, 9], gaps, redone) == (
    5,
    {place: gap for (place, _), gap in gaps.items()},
  )


def test_what_is_no_tie_ends_the_comparison():
  gaps = {(0, 9): ties.Gap(1e-4, 1e-3), (2, 8): ties.Gap(0.3, 0.3)}
  assert follow([1, 2, 3, 4], [9], gaps, {1: [2, 8, 4]}) == (
    2,
    {0: gaps[0, 9], 2: gaps[2, 8]},
  )


@pytest.mark.parametrize('output', [[1, 2], [1, 2, 3, 4], []])
def test_an_end_elsewhere_is_no_tie(output):
  place = min(len(output), 3)
  end = ties.Gap(math.inf, 0.0)
  assert follow([1, 2, 3], output, {}, {}) == (place, {place: end})


@pytest.mark.parametrize('temperature', [0.0, 1.0])
@pytest.mark.parametrize('name', ['lookup', 'oracle'])
def test_speculation_emits_the_plain_texts(params, name, temperature):
  comparison, plain = plain_texts(params, temperature)
  arrays = compare(comparison, plain, name, temperature)
  np.testing.assert_array_equal(arrays['num_compared'], plain['num_tokens'])
  np.testing.assert_array_equal(arrays['num_tokens'], plain['num_tokens'])
  assert arrays['gap'].size == 0
  assert arrays['num_steps'].sum() < arrays['num_tokens'].sum()


# A text that plain decoding would not have emitted.
@pytest.mark.parametrize('temperature', [0.0, 1.0])
def test_a_wrong_token_is_found_with_its_gap(params, temperature):
  comparison, plain = plain_texts(params, temperature)
  row = int(plain['num_tokens'].argmax())
  place = int(plain['num_tokens'][row]) // 2
  right = plain['tokens'][row, place]
  wrong = plain['tokens'][row, place] = (right + 1) % VOCAB
  arrays = compare(comparison, plain, 'lookup', temperature)
  assert (arrays['row'].tolist(), arrays['place'].tolist()) == ([row], [place])
  expected = np.where(np.arange(NUM_PROMPTS) == row, place, plain['num_tokens'])
  np.testing.assert_array_equal(arrays['num_compared'], expected)
  context = [*PROMPTS[row], *plain['tokens'][row, :place]]
  scores = reference_decode.logits_after(params, context)[-1]
  if temperature:
    seed = np.random.SeedSequence(SEED).generate_state(NUM_PROMPTS)[row]
    scores = jax.nn.log_softmax(scores) + noise_lib.gumbel(
      seed, len(context), noise_lib.USE_TOKEN, VOCAB
    )
  gap = scores[right] - scores[wrong]
  assert gap > ties.TIE
  assert arrays['limit'].tolist() == [ties.TIE]
  np.testing.assert_allclose(arrays['gap'], [gap], atol=1e-4)


# Two models that differ as passes of two widths do, and part at every tie.
def test_texts_agree_again_behind_ties(tiny, params):
  _, plain = plain_texts(with_twin(tiny, 1 + 1e-5), 0.0)
  comparison, other = plain_texts(params, 0.0)
  assert not np.any(other['tokens'] == TWIN)
  arrays = compare(comparison, plain, 'lookup', 0.0)
  np.testing.assert_array_equal(arrays['num_compared'], plain['num_tokens'])
  rows, places = np.nonzero(plain['tokens'] == TWIN)
  np.testing.assert_array_equal(arrays['row'], rows)
  np.testing.assert_array_equal(arrays['place'], places)
  assert len(rows) > len(set(rows)) > 1
  assert np.all((arrays['gap'] > 0) & (arrays['gap'] < 1e-4))


# Passes that differ by 0.01 up and down, so that more is a tie.
def test_a_measured_limit_is_that_of_its_place(tiny, monkeypatch):
  shake = np.resize([0.01, -0.01], VOCAB)
  real = ties.next_scores

  def next_scores(model, tokens, length, sampling, seed, num_together):
    scores = real(model, tokens, length, sampling, seed, num_together)
    return scores + shake * (num_together < length)

  monkeypatch.setattr(ties, 'next_scores', next_scores)
  _, plain = plain_texts(with_twin(tiny, 1 + 2e-3), 0.0)
  comparison, _ = plain_texts(with_twin(tiny, 1 - 2e-3), 0.0, tie=None)
  arrays = compare(comparison, plain, 'lookup', 0.0)
  np.testing.assert_array_equal(arrays['num_compared'], plain['num_tokens'])
  assert arrays['gap'].max() > ties.TIE
  np.testing.assert_allclose(arrays['limit'], 6 * shake.std(), rtol=1e-3)
