"""Curves of hand-made measurements against sums written out."""

import json
import types

import jax.numpy as jnp
import numpy as np
import pytest
import reference_measured

from experiments import curves
from specjax.theory import (
  entropy,
  iid_bounds,
  run_bounds,
  start_bounds,
  thresholds,
)

VOCAB, EOS = 5, 0
NUM_ROWS, LENGTH, LIMIT = 6, 14, 8
CAPACITIES = [1, 3, 7]
SEED = 1
# Tokens and calls of rows differ, so a mean of ratios is no ratio of totals.
RUN_LENGTHS = np.array([8, 8, 2, 8, 5, 8])
CALLS = {
  'lookup': [[8, 8, 2, 8, 5, 8], [4, 7, 2, 3, 5, 8], [2, 6, 2, 3, 4, 8]],
  'oracle_run': [[8, 8, 2, 8, 5, 8], [3, 4, 1, 3, 3, 5], [2, 3, 1, 3, 2, 4]],
}


def make_texts(is_sure=False):
  """Random texts of random laws, or texts whose every token is sure."""
  rng = np.random.default_rng(SEED)
  logits = 2 * rng.normal(size=(NUM_ROWS, LENGTH, VOCAB))
  tokens = rng.integers(1, VOCAB, (NUM_ROWS, LENGTH))
  num_tokens = np.where(RUN_LENGTHS < LIMIT, RUN_LENGTHS, LENGTH)
  for row in np.flatnonzero(RUN_LENGTHS < LIMIT):
    tokens[row, num_tokens[row] - 1] = EOS
  if is_sure:
    logits = np.where(np.arange(VOCAB) == tokens[..., None], 0, -np.inf)
  log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
  return entropy.Texts(
    laws=entropy.summarise(jnp.asarray(log_p), jnp.asarray(tokens), VOCAB),
    tokens=jnp.asarray(tokens),
    num_tokens=jnp.asarray(num_tokens),
    eos_ids=jnp.asarray([EOS]),
  )


def make_starts():
  rows = np.array([0, 0, 1, 2, 3, 3, 4, 5])
  return {
    'rows': rows,
    'places': np.array([0, 3, 1, 0, 0, 4, 4, 2]),
    'won': np.array(
      [
        [1, 0, 1, 1, 0, 0, 1, 1],
        [1, 2, 0, 0, 1, 3, 1, 0],
        [4, 0, 1, 2, 1, 0, 1, 0],
      ]
    ),
    'values': np.stack(
      [1 + (n - 1) * np.linspace(0.1, 0.3, len(rows)) for n in CAPACITIES]
    ),
  }


def make_trees(is_sure=False):
  rng = np.random.default_rng(SEED)
  return reference_measured.best_trees(
    rng, NUM_ROWS, LIMIT, max(CAPACITIES), is_sure
  )


def tabulate(texts, starts, is_sure=False):
  runs = {
    name: [
      {'num_tokens': RUN_LENGTHS, 'num_steps': np.array(calls)}
      for calls in each
    ]
    for name, each in CALLS.items()
  }
  table, facts = curves.tabulate(
    texts,
    RUN_LENGTHS,
    runs,
    make_trees(is_sure),
    starts,
    'lookup',
    CAPACITIES,
    VOCAB,
    SEED,
  )
  return types.SimpleNamespace(
    table=table,
    facts=facts,
    column=lambda curve: [
      curves.find(table, curve, n)['D'] for n in CAPACITIES
    ],
    check=lambda curve: [
      curves.find(facts['checks'], curve, n)['D'] for n in CAPACITIES
    ],
  )


@pytest.fixture(scope='module')
def made():
  return tabulate(make_texts(), make_starts())


@pytest.fixture(scope='module')
def sure():
  return tabulate(make_texts(is_sure=True), make_starts(), is_sure=True)


def test_every_curve_has_a_row_at_every_capacity(made, sure):
  names = {*CALLS, 'won_at(lookup)', 'oracle_at(lookup)', *curves.BOUNDS}
  for result in (made, sure):
    keys = [(row['curve'], row['capacity']) for row in result.table]
    assert set(keys) == {(name, n) for name in names for n in CAPACITIES}
    assert len(set(keys)) == len(keys)
    json.dumps([result.table, result.facts], allow_nan=False)


def test_a_run_is_all_its_tokens_over_all_its_calls(made):
  for name, calls in CALLS.items():
    totals = [RUN_LENGTHS.sum() / sum(each) for each in calls]
    np.testing.assert_allclose(made.column(name), totals, rtol=1e-6)


def test_intervals_hold_their_values(made):
  for row in made.table:
    assert row['low'] <= row['D'] + 1e-5
    assert row['D'] <= row['high'] + 1e-5
  wide = curves.find(made.table, 'lookup', 7)
  assert wide['low'] < wide['D'] < wide['high']
  sharp = curves.find(made.table, 'lookup', 1)
  assert sharp['low'] == sharp['D'] == sharp['high'] == 1


def test_starts_count_where_they_were_visited(made):
  starts = make_starts()
  at = [
    values[won > 0].mean()
    for values, won in zip(starts['values'], starts['won'], strict=True)
  ]
  np.testing.assert_allclose(made.column('oracle_at(lookup)'), at, rtol=1e-6)
  won_at = [won[won > 0].mean() for won in starts['won']]
  np.testing.assert_allclose(made.column('won_at(lookup)'), won_at, rtol=1e-6)
  # What was not visited is not looked at.
  starts['values'][starts['won'] == 0] = np.nan
  again = tabulate(make_texts(), starts)
  assert again.table == made.table
  assert again.facts == made.facts


@pytest.mark.parametrize('name', list(curves.DUALS))
def test_start_bounds_are_taken_at_the_visited_starts(made, name):
  texts, starts = make_texts(), make_starts()
  samples = []
  for capacity, won in zip(CAPACITIES, starts['won'], strict=True):
    visited = won > 0
    at = (jnp.asarray(starts['rows']), jnp.asarray(starts['places']))
    fitted = thresholds.cross_fitted(
      texts, *at, capacity, curves.DUALS[name], SEED
    )
    bound = start_bounds.dual(
      texts, at[0][visited], at[1][visited], capacity, fitted[visited]
    )
    samples.append(float(np.mean(bound.values)))
  np.testing.assert_allclose(
    made.column(name), np.minimum(samples, CAPACITIES), rtol=1e-5
  )
  # The check is of the bound as it is, before it is cut off at N.
  np.testing.assert_allclose(
    made.check(f'{name} - oracle_at'),
    np.subtract(samples, made.column('oracle_at(lookup)')),
    atol=1e-5,
  )


def test_walks_that_outlive_their_text_are_counted(made):
  # From place 3 of 14 tokens on, none of at most 6 tokens does.
  assert made.facts['num_open'] == [0, 0, 0]
  late = make_starts()
  late['places'][1] = LENGTH - 1
  texts = make_texts()
  laws = texts.laws.replace(surprisal=0 * texts.laws.surprisal)
  assert tabulate(texts.replace(laws=laws), late).facts['num_open'] == [0, 1, 0]


def test_run_limits_are_those_of_the_runs_tokens(made):
  laws = make_texts().laws
  calls = {
    'run': run_bounds.run(laws.surprisal, RUN_LENGTHS, CAPACITIES, VOCAB, SEED),
    'run_context': run_bounds.run_context(laws, RUN_LENGTHS, CAPACITIES, SEED),
    'leaf': run_bounds.leaf(laws.entropy, RUN_LENGTHS, CAPACITIES, VOCAB, SEED),
  }
  for name, least in calls.items():
    rate = RUN_LENGTHS.sum() / np.asarray(least).sum(axis=1)
    np.testing.assert_allclose(
      made.column(name), np.minimum(rate, CAPACITIES), rtol=1e-5
    )
    for other in CALLS:
      np.testing.assert_allclose(
        made.check(f'{name} - {other}'),
        rate - made.column(other),
        atol=1e-5,
      )


def test_iid_bounds_are_those_of_the_pooled_law(made):
  laws = make_texts().laws
  is_token = np.arange(LENGTH) < RUN_LENGTHS[:, None]
  mu = np.asarray(laws.entropy)[is_token].mean()
  mu2 = np.asarray(laws.second_moment)[is_token].mean()
  moments = made.facts['moments']
  np.testing.assert_allclose([moments['mu'], moments['mu2']], [mu, mu2], 1e-6)
  for name in curves.IID:
    expected = getattr(iid_bounds, name)(mu, mu2, np.array(CAPACITIES))
    np.testing.assert_allclose(made.column(name), expected, rtol=1e-5)
  assert made.facts['vacuous'] == []


def test_the_checks_are_of_every_bound_that_holds(made):
  names = {row['curve'] for row in made.facts['checks']}
  limits = ('run', 'run_context', 'run_priced', 'leaf')
  assert names == {
    *(f'{dual} - oracle_at' for dual in curves.DUALS),
    *(f'{limit} - {run}' for limit in limits for run in CALLS),
  }


def test_a_sure_law_bounds_nothing(sure):
  assert set(sure.facts['vacuous']) == set(curves.BOUNDS)
  assert sure.facts['moments'] == {'mu': 0, 'mu2': 0}
  limits = ('run', 'run_context', 'run_priced', 'leaf')
  for name in (*limits, 'lorden', 'lorden_dual', 'sharp'):
    np.testing.assert_allclose(sure.column(name), CAPACITIES, rtol=1e-6)
  # An infinite bound has no value, and one from below says 1.
  assert sure.column('printed') == [1, None, None]
  assert sure.column('achievable') == [1, 1, 1]
  # The starts' bounds know where texts end, and nothing more.
  for name in curves.DUALS:
    assert np.all(np.array(sure.column(name)) <= CAPACITIES)
    assert min(sure.check(f'{name} - oracle_at')) > -1e-6


def test_prompts_without_entropy_may_make_an_end_infinite():
  texts = make_texts()
  laws = texts.laws.replace(
    entropy=texts.laws.entropy.at[1:].set(0),
    second_moment=texts.laws.second_moment.at[1:].set(0),
  )
  row = curves.find(
    tabulate(texts.replace(laws=laws), make_starts()).table, 'printed', 7
  )
  assert row['high'] is None
  assert row['low'] <= row['D']
