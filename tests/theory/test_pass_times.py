"""Reading between measured times, against functions that are linear there."""

import itertools

import numpy as np
import pytest

from specjax.theory import pass_times, resample

SIZES, BATCHES, CONTEXTS = (1, 2, 8), (1, 4), (100, 200, 400)


def trilinear(n, b, c):
  return (1 + 2 * n) * (3 + b) * (5 + c / 100)


def grid(batches=BATCHES, contexts=CONTEXTS):
  values = trilinear(*np.meshgrid(SIZES, batches, contexts, indexing='ij'))
  return pass_times.Grid(
    np.array(SIZES),
    np.array(batches),
    np.array(contexts),
    resample.Interval(values, 0.9 * values, 1.2 * values),
    np.outer(SIZES, 0.1 * np.array(batches)),
  )


@pytest.mark.parametrize('batch', [1, 3, 4])
@pytest.mark.parametrize('context', [100, 130, 400])
def test_linear_between_points(batch, context):
  times = pass_times.across(grid(), batch, context)
  assert times.batch == batch
  sizes = np.array([1, 2, 5, 8])
  expected = trilinear(sizes, batch, context)
  found, visits = pass_times.at(times, sizes)
  np.testing.assert_allclose(visits, 0.1 * batch * sizes)
  for values, factor in zip(found, (1, 0.9, 1.2), strict=True):
    np.testing.assert_allclose(values, factor * expected)


def test_nothing_is_said_outside():
  for batch, context in itertools.product((1, 4), (100, 400)):
    pass_times.across(grid(), batch, context)
  with pytest.raises(ValueError, match='batch of 1 to 4, .* got 5'):
    pass_times.across(grid(), 5, 100)
  with pytest.raises(ValueError, match='context of 100 to 400, .* got 99'):
    pass_times.across(grid(), 1, 99)
  alone = grid(batches=(2,), contexts=(100,))
  times = pass_times.across(alone, 2, 100)
  np.testing.assert_allclose(
    times.seconds.value, trilinear(np.array(SIZES), 2, 100)
  )
  with pytest.raises(ValueError, match='batch of 2 to 2, .* got 3'):
    pass_times.across(alone, 3, 100)
  with pytest.raises(ValueError, match='passes of 1 to 8 nodes, .* got 9'):
    pass_times.at(times, np.array([2, 9]))
