import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax import programs


@functools.partial(programs.jit, static_argnames='power', donate_argnames='x')
def scaled(x, factor, *, power):
  """Says whether it may reorder; counts how often it is traced."""
  scaled.seen.append(programs.may_reorder())
  return factor * x**power


@pytest.fixture(autouse=True)
def fresh():
  scaled.seen = []


def test_a_program_of_its_own_may_reorder():
  x = jnp.arange(3.0)
  np.testing.assert_array_equal(scaled(x, 2.0, power=2), [0, 2, 8])
  assert x.is_deleted()
  scaled(jnp.arange(3.0), 3.0, power=2)
  assert scaled.seen == [True]
  assert not programs.may_reorder()


def test_a_part_is_as_its_program_is():
  plain = jax.jit(lambda x: 1 + scaled(x, 2.0, power=3))
  np.testing.assert_array_equal(plain(jnp.arange(2.0)), [1, 3])
  mapped = jax.vmap(functools.partial(scaled, power=5))
  np.testing.assert_array_equal(mapped(jnp.ones(2), jnp.arange(2.0)), [0, 1])
  assert scaled.seen == [False, False]

  @programs.jit
  def whole(x):
    return 1 + scaled(x, 2.0, power=4)

  np.testing.assert_array_equal(whole(jnp.arange(2.0)), [1, 3])
  assert scaled.seen == [False, False, True]


def test_an_error_leaves_nothing_behind():
  @programs.jit
  def fail(x):
    raise ValueError('no')

  with pytest.raises(ValueError, match='no'):
    fail(jnp.ones(1))
  assert not programs.may_reorder()


def test_a_program_can_be_lowered():
  lowered = scaled.lower(jnp.ones(3), 2.0, power=7)
  assert lowered.compile().memory_analysis().argument_size_in_bytes > 0


@pytest.mark.parametrize(
  'fn',
  [
    jnp.isnan,
    jnp.isinf,
    jnp.isfinite,
    jnp.exp,
    lambda x: x < jnp.inf,
    lambda x: x > -jnp.inf,
    lambda x: jnp.max(x, axis=1),
    lambda x: jnp.sort(x, axis=1),
    lambda x: jax.nn.softmax(jnp.where(x < 2, x, -jnp.inf)),
    lambda x: jnp.where(x < 2, x, 0.0) - jnp.where(x < 2, 0.0, x),
  ],
)
def test_infinities_and_nan_stay_what_they_are(fn):
  row = [-jnp.inf, jnp.inf, jnp.nan, 1.0, -2.0, 3.0]
  x = jnp.array([row, row[3:] + row[:3], row[:2] + row[3:] + row[:1]])
  np.testing.assert_allclose(programs.jit(fn)(x), fn(x), rtol=1e-6)
