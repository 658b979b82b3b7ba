"""Machines that are found again from their times."""

import numpy as np
import pytest

from specjax.theory import roofline, roofline_fit

SIZES = roofline.Sizes(3, 32, 80, 4, 2, 8, 50, weight_bytes=4.0, value_bytes=2)


def points():
  nodes, batch, context = np.meshgrid([1, 4, 16, 64], [1, 8], [64, 512])
  return roofline.work(SIZES, *(x.ravel() for x in (nodes, batch, context)), 1)


@pytest.mark.parametrize('blend', roofline.BLENDS)
def test_a_machine_is_found_again(blend):
  machine = roofline.Machine(2e9, 3e10, 5e-6, blend=blend)
  times = roofline.seconds(machine, points())
  found = roofline_fit.fit(points(), times)
  assert found.machine.blend == blend
  assert found.errors[blend] < 1e-6
  other = [error for name, error in found.errors.items() if name != blend]
  assert other[0] > 1e-3
  np.testing.assert_allclose(
    [found.machine.bandwidth, found.machine.peak, found.machine.overhead],
    [2e9, 3e10, 5e-6],
    rtol=1e-4,
  )


def test_noise_is_reported_as_error():
  machine = roofline.Machine(2e9, 3e10, 5e-6)
  noise = np.exp(0.1 * np.random.default_rng(0).normal(size=16))
  found = roofline_fit.fit(
    points(), roofline.seconds(machine, points()) * noise
  )
  assert 0.03 < found.errors['max'] < 0.15
  assert found.machine.bandwidth == pytest.approx(2e9, rel=0.3)
  assert found.machine.peak == pytest.approx(3e10, rel=0.3)


def test_what_binds_no_pass_is_infinite():
  machine = roofline.Machine(2e9, np.inf, 5e-6)
  found = roofline_fit.fit(points(), roofline.seconds(machine, points()))
  assert np.isinf(found.machine.peak)
  assert found.machine.bandwidth == pytest.approx(2e9, rel=1e-6)


def test_refusals():
  with pytest.raises(ValueError, match='4 passes or more'):
    roofline_fit.fit(roofline.work(SIZES, np.arange(3), 1, 1, 1), np.ones(3))
