"""Tests of experiments.law_tests: restricted laws, and what is found out."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference_decode
from scipy import stats

from experiments import draft_models, law_tests, lossless
from specjax.decode import rules

VOCAB, NUM_TEXTS = 5, 20_000
PROMPTS = [[1, 2, 3], [7, 7], [5, 6, 5]]
KEPT = 6
STOCHASTIC = [rule for rule in rules.RULES if rule != 'match']


def random_laws(seed):
  logits = np.random.default_rng(seed).normal(size=(2, VOCAB + 1, VOCAB))
  return law_tests.Laws(*jax.nn.log_softmax(jnp.asarray(logits)))


@functools.cache
def p_value(rule, error):
  arrays = lossless.compare(
    [random_laws(0), random_laws(1)], rule, error, NUM_TEXTS, seed=0
  )
  return lossless.table_row(rule, error, arrays)['p_value']


@pytest.mark.parametrize('rule', rules.RULES)
def test_every_rule_has_the_verifiers_law(rule):
  assert p_value(rule, 0.0) > 1e-3


@pytest.mark.parametrize('rule', STOCHASTIC)
def test_laws_that_are_off_by_5_percent_are_found_out(rule):
  assert p_value(rule, 0.05) < 1e-6


def test_laws_are_those_after_contexts_of_their_likeliest_tokens(tiny):
  skipped = [0]
  reader, params, _ = draft_models.layer_skip(tiny.config, skipped)
  found = law_tests.read(tiny, reader, params, PROMPTS, KEPT)
  for row, prompt in enumerate(PROMPTS):
    logits = reference_decode.logits_after(tiny, prompt)[-1]
    tokens = np.argsort(-logits)[:KEPT]
    np.testing.assert_array_equal(found['tokens'][row], tokens)
    contexts = [[*prompt, token] for token in tokens.tolist()] + [prompt]
    for place, context in enumerate(contexts):
      kept = reference_decode.logits_after(tiny, context)[-1][tokens]
      law = kept - np.log(np.exp(kept).sum())
      np.testing.assert_allclose(found['log_p'][row, place], law, atol=1e-4)
  # Another law over the same tokens.
  assert np.abs(found['log_q'] - found['log_p']).max() > 0.1
  np.testing.assert_allclose(np.exp(found['log_q']).sum(axis=-1), 1, atol=1e-5)


def test_no_layer_left_out_reads_the_verifiers_laws(tiny):
  reader, params, _ = draft_models.layer_skip(tiny.config, [])
  found = law_tests.read(tiny, reader, params, PROMPTS, KEPT)
  np.testing.assert_allclose(found['log_q'], found['log_p'], atol=1e-4)


def test_laws_that_are_off_keep_their_mass():
  q = np.array([[0.2, 0.5, 0.3], [1.0, 0.0, 0.0]])
  off = np.exp(law_tests.told_off(jnp.log(q), 0.05))
  expected = [[0.19, 0.525, 0.285], [1, 0, 0]]
  np.testing.assert_allclose(off, expected, atol=1e-6)


def test_the_statistic_is_pearsons_over_joined_cells():
  log_p = jnp.log(jnp.array([[0.7, 0.3], [0.998, 0.002], [0.4, 0.6]]))
  # Of 1000 texts it expects 280, 120, 598.8 and 1.2; all but the first joined.
  found = [300, 100, 590, 10]
  texts = np.repeat([[0, 0], [0, 1], [1, 0], [1, 1]], found, axis=0)
  laws = law_tests.Laws(log_p, log_p)
  statistic, degrees = law_tests.chi_square(laws, texts)
  wanted = stats.chisquare([300, 700], [280, 720])
  np.testing.assert_allclose(statistic, wanted.statistic, rtol=1e-5)
  assert degrees == 1
  np.testing.assert_allclose(
    law_tests.p_value([(statistic, 1)]), wanted.pvalue, rtol=1e-5
  )


# A sum of independent statistics has as many degrees of freedom as all.
def test_p_values_of_sums():
  assert law_tests.p_value([(3.0, 1), (2.0, 1)]) == pytest.approx(
    np.exp(-2.5), rel=1e-9
  )
