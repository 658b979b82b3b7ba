import jax.numpy as jnp
import numpy as np
import pytest

from specjax.llama import linear


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
