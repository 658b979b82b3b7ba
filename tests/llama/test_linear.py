import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.llama import linear, storage


@pytest.mark.parametrize('dtype', [jnp.float32, jnp.bfloat16, jnp.float16])
def test_products_are_those_of_the_stored_values(dtype):
  rng = np.random.RandomState(0)
  w = jnp.asarray(rng.randn(7, 5), dtype)
  x = jnp.asarray(rng.randn(2, 3, 7), linear.compute_dtype(w.dtype))
  exact = np.asarray(x, np.float64) @ np.asarray(w, np.float64)
  product, rows = linear.matmul(x, w), linear.matmul_rows(x, w.T)
  assert product.dtype == x.dtype
  assert rows.dtype == jnp.float32
  rounding = 2e-2 if dtype == jnp.bfloat16 else 1e-5
  np.testing.assert_allclose(product, exact, rtol=rounding, atol=rounding)
  np.testing.assert_allclose(rows, exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize('order', storage.ORDERS)
@pytest.mark.parametrize('num_rows', [1, 4])
def test_a_matrix_is_the_same_in_every_order(order, num_rows):
  rng = np.random.RandomState(1)
  stack = rng.randn(3, 7, 5).astype(np.float32)
  x = rng.randn(num_rows, 7).astype(np.float32)
  scale = rng.randn(3, 7).astype(np.float32)
  stacks = storage.ordered({'w': jnp.asarray(stack), 'norm': scale}, order)

  @jax.jit
  def product(x, stacks, number):
    layer = linear.entries(stacks, number)
    x = x * layer['norm']
    return linear.matmul(x, layer['w'], after=x[:, :1])

  for number in range(3):
    exact = (x * scale[number]).astype(np.float64) @ stack[number]
    got = product(x, stacks, number)
    np.testing.assert_allclose(got, exact, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize('order', storage.ORDERS)
def test_no_number_is_lost_to_the_order_of_products(order):
  # What products wait for is compared with infinity.
  stacks = storage.ordered({'w': jnp.ones((2, 3, 4))}, order)

  @jax.jit
  def product(x):
    return linear.matmul(x, linear.entries(stacks, jnp.array(1))['w'])

  for first in (np.inf, -np.inf, np.nan):
    got = product(jnp.array([[first, 0.0, 0.0]]))
    np.testing.assert_array_equal(got, np.full((1, 4), first))


def test_an_unknown_order_is_named():
  with pytest.raises(ValueError, match="expected an order of .*got 'up'"):
    storage.ordered({}, 'up')
