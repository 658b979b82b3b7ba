"""Work counted matrix by matrix, and machines found again from their times."""

import jax
import numpy as np
import pytest

from specjax.llama import config as llama_config
from specjax.llama import model as llama_model
from specjax.theory import hardware, roofline

CONFIG = llama_config.LlamaConfig(
  num_layers=3,
  width=32,
  ffn_width=80,
  num_heads=4,
  num_kv_heads=2,
  head_dim=8,
  vocab_size=50,
)
SIZES = roofline.Sizes(3, 32, 80, 4, 2, 8, 50, weight_bytes=4.0, value_bytes=2)


def test_weights_are_those_of_the_model():
  params = jax.eval_shape(
    lambda: llama_model.init_params(jax.random.key(0), CONFIG, np.float32)
  )
  matrices = [
    x for x in jax.tree.leaves(params.weights['layers']) if x.ndim > 2
  ]
  head = params.weights['head']
  count = sum(x.size for x in matrices) + head.size
  assert roofline.num_weights(SIZES) == count
  embedded = count + params.weights['embed'].size
  kept = roofline.kept_bytes(SIZES, 2, 10)
  assert kept == 4 * embedded + 2 * 10 * (3 * 2 * 2 * 8 * 2)


def test_work_matrix_by_matrix():
  """Every matrix product of `[m, k]` by `[k, n]` takes 2 m k n operations."""
  nodes, batch, context, logits = 5, 2, 11, 3
  flops = 0
  for _ in range(CONFIG.num_layers):
    for inputs, outputs in [
      (32, 4 * 8),  # q
      (32, 2 * 8),  # k
      (32, 2 * 8),  # v
      (4 * 8, 32),  # o
      (32, 80),  # gate
      (32, 80),  # up
      (80, 32),  # down
    ]:
      flops += batch * 2 * nodes * inputs * outputs
    for _ in range(batch * CONFIG.num_heads):
      flops += 2 * nodes * 8 * (context + nodes)  # scores
      flops += 2 * nodes * (context + nodes) * 8  # mixed values
  flops += batch * 2 * logits * 32 * 50
  found = roofline.work(SIZES, nodes, batch, context, logits)
  assert found.flops == flops
  of_rows = batch * (context + nodes) * 3 * 2 * (2 * 8) * 2
  assert found.read == roofline.num_weights(SIZES) * 4 + of_rows
  assert found.sent == 3 * 2 * (batch * nodes * 32) * 2


def points():
  nodes, batch, context = np.meshgrid([1, 4, 16, 64], [1, 8], [64, 512])
  return roofline.work(SIZES, *(x.ravel() for x in (nodes, batch, context)), 1)


@pytest.mark.parametrize('blend', roofline.BLENDS)
def test_a_machine_is_found_again(blend):
  machine = roofline.Machine(2e9, 3e10, 5e-6, blend=blend)
  times = roofline.seconds(machine, points())
  found = roofline.fit(points(), times)
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
  found = roofline.fit(points(), roofline.seconds(machine, points()) * noise)
  assert 0.03 < found.errors['max'] < 0.15
  assert found.machine.bandwidth == pytest.approx(2e9, rel=0.3)
  assert found.machine.peak == pytest.approx(3e10, rel=0.3)


def test_what_binds_no_pass_is_infinite():
  machine = roofline.Machine(2e9, np.inf, 5e-6)
  found = roofline.fit(points(), roofline.seconds(machine, points()))
  assert np.isinf(found.machine.peak)
  assert found.machine.bandwidth == pytest.approx(2e9, rel=1e-6)


def test_chips_share_the_work_and_pay_for_it():
  one = roofline.Machine(2e9, 3e10)
  four = one._replace(num_chips=4)
  np.testing.assert_allclose(
    roofline.seconds(four, points()), roofline.seconds(one, points()) / 4
  )
  linked = four._replace(link=1e8)
  # Two parts of three quarters: to add up, and to tell the others.
  np.testing.assert_allclose(
    roofline.seconds(linked, points()) - roofline.seconds(four, points()),
    points().sent * 0.75 * 2 / 1e8,
  )
  assert np.all(
    roofline.seconds(one._replace(link=1e8), points())
    == roofline.seconds(one, points())
  )


def test_refusals():
  with pytest.raises(ValueError, match='4 passes or more'):
    roofline.fit(roofline.work(SIZES, np.arange(3), 1, 1, 1), np.ones(3))
  with pytest.raises(ValueError, match='blend of'):
    roofline.seconds(roofline.Machine(1, 1, blend='mean'), points())


@pytest.mark.parametrize('name', hardware.PRESETS)
def test_as_few_chips_as_there_is_room_on(name):
  chip = hardware.PRESETS[name]
  for num_bytes in (1e9, 16e9, 141e9, 500e9):
    count = hardware.chips_needed(chip, num_bytes)
    assert hardware.is_room(chip, count, num_bytes)
    assert count == 1 or not hardware.is_room(chip, count // 2, num_bytes)
  # A pass of many nodes computes, one of a single node reads.
  ridge = chip.peak / chip.bandwidth
  assert 100 < ridge < 1000
  assert hardware.machine(chip, 2, 1e-3).num_chips == 2
