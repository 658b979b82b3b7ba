import jax.numpy as jnp
import numpy as np
import pytest

from specjax.llama import order, storage


@pytest.mark.parametrize(
  'one, few, chosen',
  [
    ([1.5, 1.0], [2.0, 3.0], 'both'),
    ([1.5, 1.0], [3.0, 2.0], 'out_in'),
    ([1.0, 1.5], [2.0, 3.0], 'in_out'),
    # A second copy has to be worth it.
    ([1.05, 1.0], [2.0, 3.0], 'in_out'),
  ],
)
def test_each_order_is_chosen_where_it_is_faster(one, few, chosen):
  assert order.decide(np.array([one, few])) == chosen


def test_small_matrices_are_not_tried_out(monkeypatch):
  monkeypatch.delattr(order, '_seconds')
  stacks = {'w': jnp.ones((4, 64, 64)), 'norm': jnp.ones((4, 64))}
  assert order.choose(stacks) == 'in_out'


def test_the_largest_matrix_is_tried_out(monkeypatch):
  tried = []
  seconds = order._seconds
  monkeypatch.setattr(
    order, '_seconds', lambda stack: tried.append(seconds(stack)) or tried[0]
  )
  stacks = {'small': jnp.ones((5, 8, 8)), 'large': jnp.ones((5, 1024, 1024))}
  assert order.choose(stacks) in storage.ORDERS
  assert len(tried) == 1
  assert tried[0].shape == (2, 2)
  assert np.all(tried[0] > 0)
