import jax.numpy as jnp
import numpy as np

from specjax.llama import mask


def test_causal_is_the_matrix_of_its_docstring():
  expected = [[[1, 0, 0], [1, 1, 0], [1, 1, 1]]]
  np.testing.assert_array_equal(mask.causal(3), expected)


def test_within_opens_the_same_document_alone():
  opened = mask.within(jnp.array([[1, 1, 2, 0]]))
  expected = [[[1, 0, 0, 0], [1, 1, 0, 0], [0, 0, 1, 0], [0, 0, 0, 1]]]
  np.testing.assert_array_equal(opened, expected)


def test_committed_opens_the_first_slots():
  opened = mask.committed(jnp.array([0, 2, 3]), 3)
  np.testing.assert_array_equal(opened, [[[0, 0, 0]], [[1, 1, 0]], [[1, 1, 1]]])
