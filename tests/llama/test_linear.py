import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference_blocks

from specjax import programs
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
    return linear.matmul(x, layer['w'])

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
    storage.ordered({'w': jnp.zeros((1, 2, 3))}, 'up')


def stored(rng, num_outputs, form, num_inputs):
  """A matrix `[out, in]` as it is stored, and its values."""
  shape = (num_outputs, num_inputs)
  if form not in reference_blocks.KINDS:
    w = jnp.asarray(rng.randn(*shape), form)
    return w, np.asarray(w, np.float64)
  return reference_blocks.random_blocks(rng, form, num_outputs, num_inputs)


@pytest.mark.parametrize(
  'form', ['float32', 'float16', 'bfloat16', 'Q4_1', 'Q8_0']
)
@pytest.mark.parametrize('num_outputs', [1, 3, 5, 8, 37])
@pytest.mark.parametrize('shape', [(1,), (2, 3), (8,), (3, 4), (17,)])
def test_loops_are_products(form, num_outputs, shape):
  rng = np.random.RandomState(2)
  w, values = stored(rng, num_outputs, form, 64)
  x = jnp.asarray(rng.randn(*shape, 64), linear.compute_dtype(w.dtype))
  exact = np.asarray(x, np.float64) @ values.T
  stack = jax.tree.map(lambda y: jnp.stack([0 * y, y]), w)
  entry = linear.Entry(storage.Matrix(None, stack), jnp.int32(1))
  product = programs.jit(lambda x: linear.matmul(x, entry))(x)
  rows = programs.jit(lambda x: linear.matmul_rows(x, w))(x)
  assert product.dtype == x.dtype and rows.dtype == jnp.float32
  rounding = 2e-2 if form == 'bfloat16' else 1e-5
  scale = 64 * rounding
  np.testing.assert_allclose(product, exact, rtol=rounding, atol=scale)
  np.testing.assert_allclose(rows, exact, rtol=1e-5, atol=64e-5)


@pytest.mark.parametrize('order', storage.ORDERS)
@pytest.mark.parametrize(
  'forms',
  [['float32'] * 3, ['Q4_1'] * 3, ['Q8_0'] * 3, ['Q4_1', 'Q8_0', 'Q4_1']],
)
@pytest.mark.parametrize('num_rows', [1, 4, 6, 12, 17])
def test_matrices_of_one_input_share_a_loop(order, forms, num_rows):
  rng = np.random.RandomState(3)
  sizes = 37, 8, 12
  pairs = [stored(rng, *sized, 64) for sized in zip(sizes, forms, strict=True)]
  x = jnp.asarray(rng.randn(num_rows, 64), jnp.float32)
  turn = lambda y: jnp.stack([0 * y.T, y.T])
  stacks = {str(i): jax.tree.map(turn, w) for i, (w, _) in enumerate(pairs)}
  stacks = storage.ordered(stacks, order)

  def products(x, number):
    layer = linear.entries(stacks, number)
    return linear.matmuls(x, [layer[name] for name in '012'])

  found = programs.jit(products)(x, jnp.int32(1))
  for got, (_, values) in zip(found, pairs, strict=True):
    exact = np.asarray(x, np.float64) @ values.T
    np.testing.assert_allclose(got, exact, rtol=1e-5, atol=64e-5)
  text = programs.jit(products).lower(x, jnp.int32(1)).as_text()
  # Eight pieces for these sizes; more than 32 sums are shared out, and so are
  # matrices of different kinds.
  loops = {1: 1, 4: 1, 6: 3, 12: 6, 17: 0}[num_rows]
  loops = max(loops, 3) if len(set(forms)) > 1 and num_rows < 17 else loops
  loops = 0 if order == 'in_out' else loops
  assert text.count('stablehlo.reduce(') == loops


@pytest.mark.parametrize('order', ['out_in', 'both'])
@pytest.mark.parametrize('num_rows', [1, 16, 17])
def test_few_rows_are_a_loop_where_sums_may_be_reordered(order, num_rows):
  """Not where they may not: there the loop would be slow."""
  stacks = storage.ordered({'w': jnp.ones((2, 16, 24))}, order)
  x = jnp.ones((num_rows, 16))

  def product(x):
    return linear.matmul(x, linear.entries(stacks, x[0, 0].astype(int))['w'])

  text = lambda jit: jit(product).lower(x).compile().as_text()
  assert ('dot(' in text(programs.jit)) == (num_rows == 17)
  assert 'dot(' in text(jax.jit)
