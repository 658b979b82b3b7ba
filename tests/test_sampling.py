"""The sampled law against a slow NumPy twin, and the noise against its law."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference_decode

from specjax import sampling

SETTINGS = [
  (1.0, 0, 1.0, 0.0),
  (0.0, 0, 1.0, 0.0),
  (0.7, 0, 1.0, 0.0),
  (1.3, 5, 1.0, 0.0),
  (1.0, 0, 0.8, 0.0),
  (1.0, 0, 1.0, 0.1),
  (0.9, 7, 0.6, 0.05),
  (1.0, 1, 1.0, 0.0),
  (1.0, 1000, 0.999, 1.0),
  (0.0, 3, 0.5, 0.3),
]


def test_law_equals_slow_twin_with_other_parameters_in_each_row():
  rows = len(SETTINGS)
  logits = 3 * np.random.default_rng(0).normal(size=(rows, 40))
  columns = [jnp.asarray(c) for c in zip(*SETTINGS, strict=True)]
  law = jax.jit(sampling.log_law)(
    jnp.asarray(logits, jnp.float32), sampling.Sampling(*columns)
  )
  expected = [
    reference_decode.slow_law(x, *s)
    for x, s in zip(logits, SETTINGS, strict=True)
  ]
  np.testing.assert_allclose(np.exp(law), expected, atol=2e-6)
  # What is cut is cut exactly.
  np.testing.assert_array_equal(np.isneginf(law), np.asarray(expected) == 0)


def test_law_takes_any_axes_between_row_and_vocabulary():
  logits = jax.random.normal(jax.random.key(0), (2, 3, 4, 17))
  laws = sampling.log_law(logits, sampling.make(2, 0.5, 4, 0.9))
  for row in range(2):
    for i in range(3):
      one = sampling.log_law(logits[row, i], sampling.make(4, 0.5, 4, 0.9))
      np.testing.assert_allclose(laws[row, i], one, atol=1e-6)


def test_ties_at_the_cut_are_kept_and_argmax_takes_the_first():
  logits = jnp.array([[1.0, 2.0, 2.0, 0.0]])
  law = sampling.log_law(logits, sampling.make(1, 1.0, top_k=1))
  np.testing.assert_allclose(np.exp(law), [[0, 0.5, 0.5, 0]], atol=1e-6)
  greedy = sampling.log_law(logits, sampling.make(1, 0.0))
  assert sampling.choose(greedy, jnp.uint32([3]), jnp.int32([9])) == 1


def test_greedy_rows_draw_alone_what_they_draw_beside_others():
  logits = 3 * np.random.default_rng(1).normal(size=(6, 40)).astype(np.float32)
  logits[1, [7, 9]] = 20.0
  # Kept apart by one step of rounding; tokens that cannot be.
  logits[2, [4, 30]] = np.nextafter(np.float32(9), np.float32(0)), 9.0
  logits[3, 5:] = -np.inf
  alone = sampling.draw(
    logits, sampling.make(6, 0.0), jnp.arange(6), jnp.arange(6)
  )
  beside = sampling.draw(
    np.concatenate([logits, logits[:1]]),
    jax.tree.map(
      lambda *x: jnp.concatenate(x),
      sampling.make(6, 0.0),
      sampling.make(1, 1.0),
    ),
    jnp.arange(7),
    jnp.arange(7),
  )
  np.testing.assert_array_equal(alone[0], np.argmax(logits, axis=1))
  np.testing.assert_array_equal(alone[0], beside[0][:6])
  p = np.exp(logits.astype(float) - logits.max(axis=1, keepdims=True))
  np.testing.assert_allclose(alone[1], -np.log(p.sum(axis=1)), atol=1e-6)
  np.testing.assert_allclose(alone[1], beside[1][:6], atol=1e-6)


@pytest.mark.parametrize(
  'wrong',
  [
    {'temperature': -1},
    {'temperature': float('nan')},
    {'top_k': -1},
    {'top_k': 1.5},
    {'top_p': 0.0},
    {'top_p': 1.1},
    {'min_p': -0.1},
    {'min_p': 2.0},
  ],
)
def test_bad_parameters_are_named(wrong):
  with pytest.raises(ValueError, match=f'expected .*{next(iter(wrong))}'):
    sampling.make(1, **wrong)


def test_tokens_follow_the_law():
  p = np.array([0.5, 0.3, 0.15, 0.05, 0.0])
  num_draws = 20_000
  log_p = jnp.broadcast_to(jnp.log(p), (num_draws, 5))
  tokens = jax.jit(sampling.choose)(
    log_p,
    jnp.arange(num_draws, dtype=jnp.uint32) // 100,
    jnp.arange(num_draws) % 100,
  )
  counts = np.bincount(tokens, minlength=5)
  assert counts[4] == 0
  expected = num_draws * p[:4]
  chi_square = ((counts[:4] - expected) ** 2 / expected).sum()
  assert chi_square < 16.3  # 0.999 quantile, 3 degrees of freedom


# Kinds: a sure row that gets noise where a neighbour needs some.
def test_a_token_is_the_same_alone_and_beside_others():
  # Rows in turn: a law like any other; one whose largest log-probability
  # rounds to 0, its rest exaggerated so that noise would often pick from it;
  # argmax.
  logits = jax.random.normal(jax.random.key(0), (60, 8))
  first = jnp.arange(8) == 0
  turn = jnp.arange(60)[:, None] % 3
  log_p = jnp.select(
    [turn == 0, turn == 1],
    [jax.nn.log_softmax(logits), jnp.where(first, 0.0, -1.0)],
    jnp.where(first, 0.0, -jnp.inf),
  )
  seeds, positions = jnp.arange(60, dtype=jnp.uint32), jnp.arange(60)
  choose = jax.jit(sampling.choose)
  together = choose(log_p, seeds, positions)
  alone = [
    choose(log_p[row, None], seeds[row, None], positions[row, None])[0]
    for row in range(60)
  ]
  np.testing.assert_array_equal(together, alone)
  assert np.any(together[::3] != 0)
