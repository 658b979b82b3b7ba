import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference_runs
import reference_theory as reference
from hypothesis import given, settings
from hypothesis import strategies as st

from specjax.theory import entropy as entropy_lib
from specjax.theory import heads as heads_lib
from specjax.theory import resample, run_bounds

CAPS = np.append(np.geomspace(0.05, 20.0, 2000), np.inf)
SURPLUSES = np.geomspace(1e-3, 40.0, 400)
CAPACITIES = np.array([1, 2, 4, 16])


def heads_of(laws, num_top=None):
  """Heads of laws `[..., V]`."""
  log_p = jnp.log(jnp.asarray(laws))
  tokens = jnp.zeros(log_p.shape[:-1], jnp.int32)
  summary = entropy_lib.summarise(log_p, tokens, num_top or log_p.shape[-1])
  return heads_lib.of_laws(summary)


def moment_limit(law, capacity, vocab_size):
  """The limit of `moment_ceiling` for one law, at its best cap."""
  s = -np.log(law)
  progress = np.array([np.sum(law * np.minimum(s, cap)) for cap in CAPS])
  ceiling = run_bounds.moment_ceiling(CAPS, capacity, vocab_size)
  return np.min(ceiling / progress)


def context_progress(heads, surplus):
  """Mean progress of `run_context` at each law, for one B."""
  cap = heads_lib.saturating_cap(heads, surplus)
  return heads_lib.capped_surprisal(heads, cap)


def context_limit(law, capacity):
  """The limit of `run_context` for one law, at its best B."""
  heads = heads_of(law)
  progress = jax.vmap(lambda b: context_progress(heads, b))(SURPLUSES)
  return np.min(np.log1p(capacity * SURPLUSES) / progress)


@pytest.mark.parametrize(
  ('law', 'capacity', 'optimum', 'moment', 'context'),
  [
    (reference.PEAKED, 2, 1.850, 1.860, 1.855),
    (reference.PEAKED, 5, 3.709, 3.892, 3.775),
    (reference.ZIPF, 21, 2.458, 3.216, 2.780),
  ],
)
def test_limits_of_single_laws(law, capacity, optimum, moment, context):
  best = reference.optimum(law, capacity)[-1]
  np.testing.assert_allclose(best, optimum, atol=6e-4)
  unbounded = moment_limit(law, capacity, 10**9)
  np.testing.assert_allclose(unbounded, moment, atol=1e-3)
  np.testing.assert_allclose(context_limit(law, capacity), context, atol=1e-3)
  # A known vocabulary sharpens it down to `leaf`, at an infinite cap.
  known = moment_limit(law, capacity, len(law))
  leaf = np.log1p((len(law) - 1) * capacity) / reference.moments(law)[0]
  assert best <= context <= known + 1e-3 <= min(unbounded, leaf) + 2e-3


@pytest.mark.parametrize('arity', [2, 5])
def test_run_context_is_attained_by_uniform_laws_on_complete_trees(arity):
  law = np.full(arity, 1.0 / arity)
  heads = heads_of(law)
  for depth in range(1, 5):
    capacity = (arity**depth - 1) // (arity - 1)
    limit = np.log1p(capacity * (arity - 1)) / context_progress(
      heads, arity - 1.0
    )
    np.testing.assert_allclose(limit, depth, rtol=1e-5)


def test_split_ceiling_solves_its_recursion():
  # A(N) is the value of the best split of N - 1 nodes among the children.
  value = [0.0, 0.0]

  @functools.cache
  def most(nodes, largest):
    """Largest sum of e^A(n_c) over splits into parts of at most `largest`."""
    if nodes == 0:
      return 0.0
    return max(
      np.exp(value[part]) + most(nodes - part, part)
      for part in range(1, min(nodes, largest) + 1)
    )

  for size in range(2, 25):
    most.cache_clear()
    x = most(size - 1, size - 1)
    value.append(x / np.e if x <= np.e else np.log(x))
  sizes = np.arange(1, 25)
  np.testing.assert_allclose(
    run_bounds.split_ceiling(0.0, sizes), value[1:], atol=1e-6
  )
  np.testing.assert_allclose(
    run_bounds.split_ceiling(0.0, sizes[:4]),
    [0.0, 1 / np.e, 2 / np.e, np.log(3)],
    atol=1e-6,
  )


def test_no_policy_exceeds_the_limits_on_a_regime_switching_source():
  rng = np.random.default_rng(0)
  source = reference_runs.regime_source()
  runs, texts = reference_runs.sampled_runs(source, 200, 40, rng)
  tokens, laws = texts.num_tokens, texts.laws
  assert 0.1 < np.mean(tokens < 40) < 0.9  # some texts end by themselves
  calls = {
    'run': run_bounds.run(laws.surprisal, tokens, CAPACITIES, 8),
    'run_context': run_bounds.run_context(laws, tokens, CAPACITIES),
    'leaf': run_bounds.leaf(laws.entropy, tokens, CAPACITIES, 8),
  }
  limits = {
    name: run_bounds.rate(call, tokens, CAPACITIES, seed=0)
    for name, call in calls.items()
  }
  assert np.all(limits['run_context'].value <= limits['leaf'].value + 1e-3)
  for c, capacity in enumerate(CAPACITIES):
    for name, policy in reference_runs.policies(
      source, int(capacity), rng
    ).items():
      used = np.array([reference.num_calls(run, 2, policy) for run in runs])
      achieved = float(tokens.sum() / used.sum())
      for bound, limit in limits.items():
        assert achieved <= limit.value[c] + 1e-5, (name, bound, capacity)
      if capacity > 1:  # and so on the resampled texts
        least = jnp.stack([calls[bound][c] for bound in calls])
        ahead = resample.ratio_difference(
          (tokens[None], tokens[None]), (least, used[None]), seed=0
        )
        assert np.all(ahead.low > 0.0), (name, capacity)
      if name == 'oracle' and capacity > 1:
        assert achieved > 1.5


@pytest.mark.parametrize('vocab', [2, 3])
@pytest.mark.parametrize('has_eos', [False, True])
def test_ceilings_hold_against_the_best_policy_by_dynamic_programming(
  vocab, has_eos
):
  rng = np.random.default_rng(vocab)
  eos = vocab - 1 if has_eos else None
  length = 6
  for concentration in (0.2, 1.0, 5.0):
    laws = rng.dirichlet(np.full(vocab, concentration), size=vocab)
    source = reference.MarkovSource(np.maximum(laws, 1e-4), eos)
    heads = heads_of(source.laws)
    s = -np.log(source.laws)
    for capacity in (1, 2, 3, 4):
      calls = reference_runs.least_calls(source, 0, length, capacity)
      tokens = reference_runs.expected_totals(source, 0, length, np.ones(vocab))
      assert tokens <= calls * capacity + 1e-6
      for cap in np.append(np.geomspace(0.05, 10.0, 15), np.inf):
        gain = np.sum(source.laws * np.minimum(s, cap), axis=1)
        total = reference_runs.expected_totals(source, 0, length, gain)
        split = float(run_bounds.split_ceiling(cap, capacity))
        moment = float(run_bounds.moment_ceiling(cap, capacity, vocab))
        assert total <= calls * min(split, moment) + 1e-5
      for surplus in np.geomspace(0.01, vocab, 15):
        gain = np.asarray(context_progress(heads, surplus))
        total = reference_runs.expected_totals(source, 0, length, gain)
        assert total <= calls * np.log1p(capacity * surplus) + 1e-5


def test_limits_match_hand_made_frequencies():
  # Texts that hold the peaked law's tokens exactly as often as it says.
  block = np.repeat(np.arange(31), [170] + 30 * [1])
  tokens = np.tile(block, (4, 1))
  log_p = np.broadcast_to(np.log(reference.PEAKED), (*tokens.shape, 31))
  texts = reference.texts(log_p, tokens)
  capacities = np.array([1, 2, 5])
  args = (texts.num_tokens, capacities)
  run = run_bounds.run(texts.laws.surprisal, *args, vocab_size=31)
  context = run_bounds.run_context(texts.laws, *args)
  for calls, known in ((run, (1.860, 3.892)), (context, (1.855, 3.775))):
    limit = run_bounds.rate(calls, *args, seed=0)
    np.testing.assert_allclose(limit.value, [1.0, *known], rtol=5e-3)
    np.testing.assert_allclose(limit.low, limit.high, rtol=1e-4)


def test_parameters_are_fitted_on_the_other_half():
  rng = np.random.default_rng(8)
  surprisals = rng.exponential(1.0, size=(10, 20))
  surprisals[:5] *= 4.0
  num_tokens = np.full(10, 20)
  calls = run_bounds.run(surprisals, num_tokens, [4], 1000, seed=3)[0]
  is_first = np.asarray(resample.halves(np.arange(10), 3))
  caps = np.array(run_bounds.CAPS)
  ceiling = np.minimum(
    run_bounds.split_ceiling(caps, 4), run_bounds.moment_ceiling(caps, 4, 1000)
  )
  per_row = np.minimum(surprisals, caps[:, None, None]).sum(-1)
  for half in (is_first, ~is_first):
    best = np.argmax(per_row[:, ~half].sum(1) / ceiling)
    np.testing.assert_allclose(
      calls[half], per_row[best][half] / ceiling[best], rtol=1e-5
    )


@settings(max_examples=12, deadline=None)
@given(
  seed=st.integers(0, 10**6),
  sizes=st.sampled_from([(1, 1), (2, 1), (2, 2), (6, 2)]),
  is_sure=st.booleans(),
)
def test_rates_are_finite_and_within_capacity(seed, sizes, is_sure):
  vocab, num_top = sizes
  rng = np.random.default_rng(seed)
  laws = rng.dirichlet(np.full(vocab, 0.3), size=(4, 6))
  if is_sure:
    laws = np.eye(vocab)[np.zeros((4, 6), int)]
  laws = np.maximum(laws, 0.0 if is_sure else 1e-6)
  laws /= laws.sum(axis=-1, keepdims=True)
  with np.errstate(divide='ignore'):
    texts = reference.texts(
      np.log(laws), laws.argmax(-1), rng.integers(1, 7, size=4), num_top
    )
  capacities = np.array([1, 2, 5, 10**6])
  tokens = texts.num_tokens
  for calls in (
    run_bounds.run(texts.laws.surprisal, tokens, capacities, vocab),
    run_bounds.run_context(texts.laws, tokens, capacities),
    run_bounds.leaf(texts.laws.entropy, tokens, capacities, vocab),
  ):
    limit = run_bounds.rate(calls, tokens, capacities, seed=0)
    assert np.all(np.isfinite(limit))
    assert np.all(limit.value <= capacities)
    if is_sure or vocab == 1:
      np.testing.assert_allclose(limit.value, capacities, rtol=1e-5)


def test_bad_arguments_are_named():
  surprisals, num_tokens = np.ones((3, 4)), np.full(3, 4)
  with pytest.raises(ValueError, match='capacities >= 1, got'):
    run_bounds.run(surprisals, num_tokens, [0, 1], 5)
  with pytest.raises(ValueError, match='at least 2 prompts'):
    run_bounds.run(surprisals[:1], num_tokens[:1], [1], 5)
