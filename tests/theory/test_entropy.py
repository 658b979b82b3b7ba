import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference_theory as reference
from hypothesis import given, settings
from hypothesis import strategies as st

from specjax import sampling
from specjax.theory import entropy as entropy_lib
from specjax.theory import heads as heads_lib


def random_log_p(rng, *shape):
  log_p = rng.normal(size=shape) * rng.uniform(0.1, 4.0)
  log_p[..., -1] = -np.inf  # a token that a filter removed
  return log_p - np.log(np.sum(np.exp(log_p), axis=-1, keepdims=True))


def summary_of(law, num_top):
  log_p = jnp.log(jnp.asarray(law))
  return entropy_lib.summarise(log_p, jnp.argmax(log_p), num_top)


def test_summary_is_that_of_the_definition():
  rng = np.random.default_rng(0)
  log_p = random_log_p(rng, 2, 3, 7)
  tokens = rng.integers(6, size=(2, 3))
  laws = entropy_lib.summarise(jnp.asarray(log_p), jnp.asarray(tokens), 4)
  for row in range(2):
    for t in range(3):
      here = log_p[row, t]
      mu, mu2 = reference.moments(np.exp(here))
      np.testing.assert_allclose(laws.entropy[row, t], mu, rtol=1e-5)
      np.testing.assert_allclose(laws.second_moment[row, t], mu2, rtol=1e-5)
      np.testing.assert_allclose(
        laws.surprisal[row, t], -here[tokens[row, t]], rtol=1e-5
      )
      order = np.argsort(-here)[:4]
      np.testing.assert_array_equal(laws.top_tokens[row, t], order)
      np.testing.assert_allclose(laws.top_log_p[row, t], here[order], rtol=1e-5)


def test_the_zipf_law_has_its_published_moments():
  laws = summary_of(reference.ZIPF, 4)
  np.testing.assert_allclose(laws.entropy, 2.30421, atol=1e-5)
  np.testing.assert_allclose(laws.second_moment, 8.00423, atol=1e-5)


@pytest.mark.parametrize('law', [[1.0], [1.0, 0.0], [0.0, 0.0, 1.0]])
def test_sure_laws_are_zeros_without_nan(law):
  laws = summary_of(law, 2)
  assert laws.surprisal == laws.entropy == laws.second_moment == 0.0
  heads = heads_lib.of_laws(laws)
  for value in (
    heads_lib.excess(heads, jnp.float32(-1.0)) - (1 - np.exp(-1)),
    heads_lib.mass_above(heads, jnp.float32(0.0)) - 1.0,
    heads_lib.capped_surprisal(heads, jnp.float32(jnp.inf)),
  ):
    np.testing.assert_allclose(value, 0.0, atol=1e-6)
  assert not np.isnan(heads_lib.saturating_cap(heads, 1.0))


def test_moments_pool_tokens_and_ignore_padding():
  rng = np.random.default_rng(1)
  log_p = random_log_p(rng, 3, 5, 6)
  tokens = rng.integers(5, size=(3, 5))
  num_tokens = np.array([5, 0, 2])
  log_p[2, 3] = np.nan
  texts = reference.texts(log_p, tokens, num_tokens)
  kept = [(0, t) for t in range(5)] + [(2, 0), (2, 1)]
  expected = np.mean([reference.moments(np.exp(log_p[k])) for k in kept], 0)
  np.testing.assert_allclose(
    entropy_lib.moments_of_laws(texts.laws, texts.num_tokens),
    expected,
    rtol=1e-5,
  )
  s = np.array([-log_p[k][tokens[k]] for k in kept])
  np.testing.assert_allclose(
    entropy_lib.moments_of_surprisals(texts.laws.surprisal, texts.num_tokens),
    [s.mean(), np.mean(s**2)],
    rtol=1e-5,
  )


def test_num_top_must_be_positive():
  with pytest.raises(ValueError, match='expected num_top >= 1, got 0'):
    summary_of([0.5, 0.5], 0)


@settings(max_examples=40, deadline=None)
@given(
  seed=st.integers(0, 10**6),
  vocab=st.sampled_from([1, 2, 5, 12]),
  num_top=st.sampled_from([1, 3, 12]),
  u=st.floats(0.0, 6.0),
)
def test_heads_err_to_the_valid_side_and_are_exact_in_reach(
  seed, vocab, num_top, u
):
  rng = np.random.default_rng(seed)
  law = rng.dirichlet(np.full(vocab, rng.uniform(0.1, 3.0))).astype(np.float32)
  law = np.maximum(law, 1e-6) / np.sum(np.maximum(law, 1e-6))
  heads = heads_lib.of_laws(summary_of(law, num_top))
  theta, s = np.exp(-u), -np.log(law)
  pairs = {
    'excess': (
      heads_lib.excess(heads, jnp.float32(-u)),
      np.sum(np.maximum(law - theta, 0.0)),
    ),
    # A tie of law and threshold may fall on either side.
    'mass': (
      heads_lib.mass_above(heads, jnp.float32(-u - 1e-5)),
      np.sum(law[law >= theta]),
    ),
  }
  for name, (value, exact) in pairs.items():
    assert value >= exact - 1e-5, name
  if u <= np.log(min(num_top, vocab)) or num_top >= vocab:
    np.testing.assert_allclose(*pairs['excess'], atol=1e-5)
    assert pairs['mass'][0] <= np.sum(law[law >= theta * (1 - 3e-5)]) + 1e-5
  capped = heads_lib.capped_surprisal(heads, jnp.float32(u))
  exact = np.sum(law * np.minimum(s, u))
  assert capped <= exact + 1e-4
  if u <= -heads.log_p[-1] or num_top >= vocab:
    np.testing.assert_allclose(capped, exact, atol=1e-4)


@settings(max_examples=40, deadline=None)
@given(
  seed=st.integers(0, 10**6),
  vocab=st.sampled_from([1, 2, 5, 12]),
  num_top=st.sampled_from([1, 3, 12]),
  surplus=st.floats(0.01, 12.0),
)
def test_saturating_cap_solves_its_equation(seed, vocab, num_top, surplus):
  rng = np.random.default_rng(seed)
  law = np.maximum(rng.dirichlet(np.full(vocab, rng.uniform(0.1, 3.0))), 1e-6)
  law /= law.sum()
  heads = heads_lib.of_laws(summary_of(law, num_top))
  cap = float(heads_lib.saturating_cap(heads, surplus))
  left = np.sum(np.minimum(1.0, law * np.exp(min(cap, 60.0))))
  assert left <= 1.0 + surplus + 1e-3
  if 1.0 + surplus < min(num_top, vocab) - 0.01:
    np.testing.assert_allclose(left, 1.0 + surplus, rtol=1e-3)


def test_excluded_tokens_do_not_count():
  laws = summary_of([0.5, 0.3, 0.2], 3)
  heads = heads_lib.of_laws(laws, excluded=jnp.array([0]))
  np.testing.assert_allclose(
    heads_lib.excess(heads, jnp.log(0.1)), 0.2 + 0.1, atol=1e-6
  )
  np.testing.assert_allclose(
    heads_lib.mass_above(heads, jnp.log(0.25)), 0.3, atol=1e-6
  )


def test_summaries_jit_and_vmap():
  rng = np.random.default_rng(2)
  log_p = jnp.asarray(random_log_p(rng, 4, 6))
  tokens = jnp.arange(4)
  whole = entropy_lib.summarise(log_p, tokens, 3)
  rows = jax.jit(jax.vmap(lambda lp, y: entropy_lib.summarise(lp, y, 3)))(
    log_p, tokens
  )
  jax.tree.map(
    lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-6), whole, rows
  )


def test_moments_under_settings_are_those_of_each_setting_alone():
  rng = np.random.default_rng(3)
  logits = jnp.asarray(rng.normal(size=(5, 9)) * 2.0)
  settings = [
    {},
    {'temperature': 0.0},
    {'temperature': 0.7, 'top_k': 3},
    {'top_p': 0.8},
    {'temperature': 2.0, 'min_p': 0.2},
  ]
  together = jax.tree.map(
    lambda *x: jnp.concatenate(x), *(sampling.make(1, **s) for s in settings)
  )
  moments = entropy_lib.moments_under(logits, together)
  log_law = jax.jit(sampling.log_law)
  for place, setting in enumerate(settings):
    log_p = log_law(logits, sampling.make(5, **setting))
    exact = np.array([reference.moments(np.exp(row)) for row in log_p])
    np.testing.assert_allclose(moments.mu[place], exact[:, 0], atol=1e-4)
    np.testing.assert_allclose(moments.mu2[place], exact[:, 1], atol=1e-4)
  assert np.all(moments.mu[1] == 0.0)


@settings(max_examples=60, deadline=None)
@given(
  seed=st.integers(0, 10**6),
  vocab=st.sampled_from([1, 2, 3, 5, 12]),
  num_top=st.integers(1, 5),
  spare=st.sampled_from([0, 1, 10**5]),
)
def test_limits_of_cut_laws_hold_the_whole(seed, vocab, num_top, spare):
  rng = np.random.default_rng(seed)
  law = np.sort(rng.dirichlet(np.full(vocab, rng.uniform(0.1, 9.0))))[::-1]
  law = np.maximum(law, 1e-12) / np.sum(np.maximum(law, 1e-12))
  # One row for each sampled token, padded to 12.
  top, surprisals = np.full((12, 5), -np.inf), np.zeros(12)
  top[:, : min(num_top, vocab)] = np.log(law[:num_top])
  surprisals[:vocab] = -np.log(law)
  limits = entropy_lib.moment_limits(
    jnp.asarray(top), surprisals, np.arange(12) < num_top, vocab + spare
  )
  missing = law[num_top:].sum()
  np.testing.assert_allclose(limits.missing, missing, atol=1e-6)
  for j, exact in enumerate(reference.moments(law)):
    assert np.all(limits.low[j] <= exact + 1e-4)
    assert np.all(limits.high[j] >= exact - 1e-4)
    # The estimate is right in the mean over the sampled token.
    np.testing.assert_allclose(
      law @ limits.estimate[j][:vocab], exact, atol=1e-4
    )
    if num_top >= vocab and spare == 0:
      np.testing.assert_allclose(limits.high[j], exact, atol=1e-4)


def test_limits_of_cut_laws_are_attained():
  # A flat tail is the highest; one that repeats the last token the lowest.
  flat = [0.5, 0.2] + 6 * [0.05]
  lowest = [0.4, 0.2, 0.2, 0.2]
  for law, vocab_size, side in ((flat, 8, 'high'), (lowest, 50, 'low')):
    limits = entropy_lib.moment_limits(
      jnp.log(jnp.array(law[:2])), np.array(1), np.array(True), vocab_size
    )
    np.testing.assert_allclose(
      getattr(limits, side), reference.moments(law), rtol=1e-5
    )
  # Without a vocabulary there still is a limit.
  args = (jnp.log(jnp.array([0.9])), np.array(1.0), np.array(True))
  limits = entropy_lib.moment_limits(*args)
  assert 0.3 < limits.low.mu < limits.high.mu < 3.0
  with pytest.raises(ValueError, match='expected vocab_size >= 1, got 0'):
    entropy_lib.moment_limits(*args, vocab_size=0)


def test_limits_of_a_sure_law_are_zeros():
  top = jnp.array([[0.0, -jnp.inf], [1e-7, -jnp.inf]])
  limits = entropy_lib.moment_limits(top, jnp.zeros(2), jnp.array([True, True]))
  for value in jax.tree.leaves(limits):
    np.testing.assert_array_equal(value, 0.0)
