import itertools

import jax.numpy as jnp
import numpy as np
import pytest
import reference_theory as reference
from hypothesis import given, settings
from hypothesis import strategies as st

from specjax.theory import resample, start_bounds, thresholds

# Probabilities are multiples of 1/4, so that 4^n equal texts enumerate a law.
DYADIC = np.array([0.5, 0.25, 0.25])
SHARES = [0, 0, 1, 2]


def all_dyadic_texts(length, eos_ids=()):
  """Every text of the dyadic law, as often as its probability says."""
  tokens = np.array(list(itertools.product(SHARES, repeat=length)))
  num_tokens = np.full(len(tokens), length)
  for row, text in enumerate(tokens):
    ends = np.flatnonzero(np.isin(text, eos_ids))
    if len(ends):
      num_tokens[row] = ends[0] + 1
  log_p = np.broadcast_to(np.log(DYADIC), (*tokens.shape, 3))
  return reference.texts(log_p, tokens, num_tokens, eos_ids=eos_ids)


def first_starts(texts):
  num_rows = len(texts.num_tokens)
  return np.arange(num_rows), np.zeros(num_rows, int)


@pytest.mark.parametrize('capacity', [1, 2, 3, 5])
def test_means_over_all_texts_are_the_exact_bounds(capacity):
  texts = all_dyadic_texts(4)
  rows, positions = first_starts(texts)
  nodes = reference.node_probabilities(DYADIC, 2000)
  # Thresholds between lattice points, that no walk of depth N - 1 survives.
  for t in np.arange(0.3, (capacity - 1) * np.log(2), 0.4):
    args = (texts, rows, positions, capacity, t)
    dual, counting = start_bounds.dual(*args), start_bounds.counting(*args)
    np.testing.assert_allclose(
      np.mean(dual.values), reference.exact_dual(nodes, capacity, t), rtol=1e-5
    )
    np.testing.assert_allclose(
      np.mean(counting.values),
      reference.exact_counting(nodes, capacity, t),
      rtol=1e-5,
    )
    assert dual.num_open == 0


def test_dual_is_the_optimum_at_its_own_threshold():
  texts = all_dyadic_texts(4)
  rows, positions = first_starts(texts)
  nodes = reference.node_probabilities(DYADIC, 5)
  for capacity in (1, 2, 3, 4, 5):
    t = -np.log(nodes[capacity - 1])
    dual = start_bounds.dual(texts, rows, positions, capacity, t)
    np.testing.assert_allclose(
      np.mean(dual.values), np.sum(nodes[:capacity]), rtol=1e-5
    )


def test_paths_through_eos_count_nothing():
  texts = all_dyadic_texts(4, eos_ids=(0,))
  rows, positions = first_starts(texts)
  # Tokens 1 and 2 with 1/4 each are all that can be drafted.
  nodes = np.concatenate([np.full(2**n, 0.25**n) for n in range(8)])
  for capacity in (2, 4, 5):
    t = -np.log(nodes[capacity - 1])
    dual = start_bounds.dual(texts, rows, positions, capacity, t)
    np.testing.assert_allclose(
      np.mean(dual.values), np.sum(nodes[:capacity]), rtol=1e-5
    )
    assert dual.num_open == 0


@settings(max_examples=25, deadline=None)
@given(
  seed=st.integers(0, 10**6),
  capacity=st.integers(1, 9),
  t=st.floats(0.0, 5.0),
)
def test_every_start_equals_its_slow_twin(seed, capacity, t):
  rng = np.random.default_rng(seed)
  log_p = rng.normal(size=(3, 6, 5)) * 3.0
  log_p[:, 2] = -np.inf  # a sure token, surprisal 0
  log_p[:, 2, 3] = 0.0
  log_p -= np.log(np.sum(np.exp(log_p), axis=-1, keepdims=True))
  tokens = rng.integers(5, size=(3, 6))
  tokens[:, 2] = 3
  num_tokens, eos = rng.integers(3, 7, size=3), [0, 4]
  texts = reference.texts(log_p, tokens, num_tokens, eos_ids=eos)
  rows = np.repeat(np.arange(3), 3)
  positions = np.tile(np.arange(3), 3)
  dual = start_bounds.dual(texts, rows, positions, capacity, t)
  for m, (row, position) in enumerate(zip(rows, positions, strict=True)):
    value, is_open = reference.walk_dual(
      log_p[row], tokens[row], num_tokens[row], eos, position, capacity, t
    )
    np.testing.assert_allclose(dual.values[m], value, rtol=1e-4, atol=1e-4)
    assert dual.is_open[m] == is_open
  counting = start_bounds.counting(texts, rows, positions, capacity, t)
  assert np.all(dual.values <= counting.values + 1e-4)
  assert np.all(np.isfinite(counting.values))


def test_a_short_head_is_exact_down_to_its_reach_and_valid_below():
  rng = np.random.default_rng(3)
  whole = reference.iid_texts(reference.ZIPF, 40, 12, rng)
  log_p = np.broadcast_to(np.log(reference.ZIPF), (40, 12, 50))
  short = reference.texts(log_p, whole.tokens, num_top=8)
  rows, positions = first_starts(whole)
  for t in (1.0, np.log(8.0), 4.0):
    args = (rows, positions, 9, t)
    exact = start_bounds.dual(whole, *args).values
    bound = start_bounds.dual(short, *args).values
    assert np.all(bound >= exact - 1e-5)
    if t <= np.log(8.0):
      np.testing.assert_allclose(bound, exact, atol=1e-5)


def test_open_walks_keep_the_bound_valid_and_dropping_them_does_not():
  best = reference.optimum(reference.PEAKED, 257)[-1]
  np.testing.assert_allclose(best, 7.50, atol=5e-3)
  texts = reference.iid_texts(
    reference.PEAKED, 300, 24, np.random.default_rng(4)
  )
  rows = np.repeat(np.arange(300), 24)
  positions = np.tile(np.arange(24), 300)
  t = -np.log(reference.node_probabilities(reference.PEAKED, 257)[-1])
  dual = start_bounds.dual(texts, rows, positions, 257, t)
  closed = ~np.asarray(dual.is_open)
  assert 0.1 < 1.0 - closed.mean() < 0.9
  assert np.mean(dual.values[closed]) < best - 0.3
  assert resample.mean(dual.values, rows, seed=0).low > best
  # Starts kept by position alone leave few open and stay close.
  early = positions == 0
  assert np.mean(~closed[early]) < 0.1
  interval = resample.mean(dual.values[early], rows[early], seed=0)
  assert interval.low > best - 0.5
  assert interval.high > best


def test_root_thresholds_are_tighter_where_contexts_differ():
  # The flat root's first child is less likely than the other root's second.
  laws = np.array([8 * [1 / 8], [0.5, 0.44] + 6 * [0.01]])
  log_p = np.broadcast_to(np.log(laws)[:, None], (2, 3, 8)).repeat(20, axis=0)
  texts = reference.texts(log_p, np.zeros((40, 3), int))
  rows, positions = first_starts(texts)
  optimum = 1.0 + (1 / 8 + 0.5) / 2
  values = {}
  for name in ('CONSTANT', 'BY_ROOT'):
    chosen = thresholds.cross_fitted(
      texts, rows, positions, 2, getattr(thresholds, name)
    )
    values[name] = np.mean(
      start_bounds.dual(texts, rows, positions, 2, chosen).values
    )
  np.testing.assert_allclose(values['BY_ROOT'], optimum, rtol=1e-5)
  assert values['CONSTANT'] > optimum + 0.05


def test_cross_fitting_uses_the_other_half():
  texts = reference.iid_texts(reference.ZIPF, 60, 10, np.random.default_rng(6))
  rows, positions = first_starts(texts)
  chosen = np.asarray(thresholds.cross_fitted(texts, rows, positions, 17))
  is_first = np.asarray(resample.halves(rows, 0))
  for half in (is_first, ~is_first):
    assert len(set(chosen[half])) == 1
    grid = np.linspace(0.0, np.log(17) + 3.0, 64)
    means = [
      np.mean(start_bounds.dual(texts, rows, positions, 17, t).values[~half])
      for t in grid
    ]
    np.testing.assert_allclose(chosen[half][0], grid[np.argmin(means)])
  dual = start_bounds.dual(texts, rows, positions, 17, chosen)
  optimum = reference.optimum(reference.ZIPF, 17)[-1]
  interval = resample.mean(dual.values, rows, seed=0)
  assert interval.high > optimum
  np.testing.assert_allclose(interval.value, optimum, rtol=0.1)


def test_dual_is_compiled_once_for_all_capacities():
  texts = all_dyadic_texts(3)
  rows, positions = first_starts(texts)
  start_bounds.dual(texts, rows, positions, 2, 1.0)
  before = start_bounds._dual._cache_size()
  for capacity in (1, 7, 10**6):
    values = start_bounds.dual(texts, rows, positions, capacity, 2.0).values
    assert np.all(np.isfinite(values))
  assert start_bounds._dual._cache_size() == before


@pytest.mark.parametrize('vocab', [1, 2])
def test_tiny_vocabularies(vocab):
  law = np.full(vocab, 1.0 / vocab)
  texts = reference.iid_texts(law, 2, 5, np.random.default_rng(7))
  rows, positions = first_starts(texts)
  # One token: a chain wins every node, also past the end of the text.
  dual = start_bounds.dual(texts, rows, positions, 7, np.log(7 / vocab))
  best = reference.optimum(law, 7)[-1]
  assert np.mean(dual.values) >= best - 1e-4
  if vocab == 1:
    np.testing.assert_allclose(dual.values, 7.0, rtol=1e-5)


def test_bad_arguments_are_named():
  texts = all_dyadic_texts(2)
  start = (jnp.array([0]), jnp.array([0]))
  with pytest.raises(ValueError, match='expected capacity >= 1, got 0'):
    start_bounds.dual(texts, *start, 0, 1.0)
  with pytest.raises(ValueError, match='expected thresholds >= 0, got -1'):
    start_bounds.counting(texts, *start, 2, -1.0)
  with pytest.raises(ValueError, match='position 2 of 2 tokens'):
    start_bounds.dual(texts, jnp.array([0]), jnp.array([2]), 2, 1.0)
  with pytest.raises(ValueError, match='at least 2 prompts'):
    thresholds.cross_fitted(texts, *start, 2)
