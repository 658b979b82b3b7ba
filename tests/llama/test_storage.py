import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference_blocks

from specjax.llama import linear, storage


def random_blocks(seed, num_outputs, num_inputs, kind='Q4_1'):
  return reference_blocks.random_blocks(
    np.random.RandomState(seed), kind, num_outputs, num_inputs
  )


@pytest.mark.parametrize('kind', reference_blocks.KINDS)
def test_values_are_scale_times_number_and_offset(kind):
  out_in, values = random_blocks(0, 3, 64, kind)
  in_out = jax.tree.map(jnp.transpose, out_in)
  np.testing.assert_array_equal(out_in.values(), values.astype(np.float32))
  np.testing.assert_array_equal(in_out.values(), values.T.astype(np.float32))
  assert (in_out.shape, in_out.ndim, in_out.dtype) == ((64, 3), 2, jnp.float32)


@pytest.mark.parametrize('kind', reference_blocks.KINDS)
@pytest.mark.parametrize('order', storage.ORDERS)
@pytest.mark.parametrize('num_rows', [1, 3])
def test_products_are_those_of_the_values(kind, order, num_rows):
  layers = [random_blocks(seed, 5, 64, kind) for seed in range(2)]
  stored = [stored for stored, _ in layers]
  stack = jax.tree.map(lambda *x: jnp.stack(x).swapaxes(1, 2), *stored)
  x = np.random.RandomState(9).randn(1, num_rows, 64).astype(np.float32)
  stacks = storage.ordered({'w': stack}, order)

  @jax.jit
  def product(x, stacks, number):
    return linear.matmul(x, linear.entries(stacks, number)['w'])

  for number, (_, values) in enumerate(layers):
    got = product(x, stacks, number)
    np.testing.assert_allclose(got, x @ values.T, rtol=1e-5, atol=1e-2)


@pytest.mark.parametrize('kind', reference_blocks.KINDS)
@pytest.mark.parametrize('num_rows', [1, 3])
@pytest.mark.parametrize('chunk', [1, 4 * 32, 100 * 32])
def test_rows_are_those_of_the_values(monkeypatch, kind, num_rows, chunk):
  monkeypatch.setattr(linear, '_CHUNK', chunk)
  stored, values = random_blocks(2, 11, 32, kind)
  x = np.random.RandomState(3).randn(num_rows, 32).astype(np.float32)
  got = jax.jit(lambda x: linear.matmul_rows(x, stored))(x)
  np.testing.assert_allclose(got, x @ values.T, rtol=1e-5, atol=1e-2)
  numbers = jnp.array([[10, 0], [3, 3]])
  taken = storage.take_rows(stored, numbers)
  np.testing.assert_array_equal(taken, values[numbers].astype(np.float32))


@pytest.mark.parametrize('order', storage.ORDERS)
def test_masked_layers_are_zero(order):
  layers = [random_blocks(seed, 5, 64)[0] for seed in range(3)]
  blocks = jax.tree.map(lambda *x: jnp.stack(x).swapaxes(1, 2), *layers)
  for stack in (blocks, blocks.values()):
    before = storage.ordered({'w': stack}, order)['w']
    after = storage.masked(before, jnp.array([1, 0, 1]))
    # Of each order that there is.
    arrays = lambda w: [
      np.asarray(storage.values(each))
      for each in ([w.in_out, w.out_in] if order != 'in_out' else [w])
      if each is not None
    ]
    assert len(arrays(before)) == (2 if order == 'both' else 1)
    for was, now in zip(arrays(before), arrays(after), strict=True):
      np.testing.assert_array_equal(now[[0, 2]], was[[0, 2]])
      assert np.any(was[1])
      assert not np.any(now[1])


def test_bytes_are_those_that_one_product_reads():
  blocks, values = random_blocks(0, 3, 64)
  assert storage.num_bytes(blocks) == 3 * 64 / 2 + 2 * 3 * 2 * 4
  stack = jnp.asarray(values, jnp.float32)[None]
  for order in storage.ORDERS:
    stored = storage.ordered({'w': stack}, order)['w']
    assert storage.num_bytes(stored) == 4 * 3 * 64
