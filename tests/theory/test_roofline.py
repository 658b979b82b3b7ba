"""Work counted matrix by matrix, alone and shared out to chips."""

import jax
import numpy as np
import pytest

from specjax.llama import config as llama_config
from specjax.llama import model as llama_model
from specjax.llama import split
from specjax.theory import roofline

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


@pytest.mark.parametrize('num_chips', [1, 2, 3, 4, 8, 16])
def test_parts_are_those_of_the_model(num_chips):
  """Each chip holds what `split` gives it, down to the last bit."""
  params = jax.eval_shape(
    lambda: llama_model.init_params(jax.random.key(0), CONFIG, np.float32)
  )

  def held(path, array):
    axis = split.axis(CONFIG, path[-1].key, num_chips)
    is_whole = array.ndim < 2 or path[-1].key.endswith('norm')
    return 0 if is_whole else array.size // (1 if axis is None else num_chips)

  matrices = jax.tree.map_with_path(held, params.weights)
  expected = 4 * sum(jax.tree.leaves(matrices))
  own = roofline.part(SIZES, num_chips)
  assert roofline.kept_bytes(own, 2, 0) == expected
  heads = 2 // num_chips if 2 % num_chips == 0 else 2
  rows = 2 * 10 * (3 * 2 * heads * 8 * 2)
  assert roofline.kept_bytes(own, 2, 10) == expected + rows


def test_bytes_that_a_chip_sends_by_hand():
  """The traffic of a ring of four, sum by sum and step by step."""
  nodes, batch = 5, 2
  sent = 0
  for _ in range(1 + 3 + 3):  # The embedding, attentions, feed-forwards.
    vectors = batch * nodes * 32 * 2  # of two bytes an entry
    for _ in range(3):
      sent += vectors / 4  # Adds up a fourth, on its way to where it ends.
    for _ in range(3):
      sent += vectors / 4  # Passes on fourths that are added up.
  found = roofline.work(SIZES, nodes, batch, 11, 3, num_chips=4)
  assert found.sent == sent == 7 * 1.5 * 640
  assert found.sums == 7
  alone = roofline.work(SIZES, nodes, batch, 11, 3)
  assert (alone.sent, alone.sums) == (0, 0)


def test_chips_share_the_work():
  sizes = SIZES._replace(vocab_size=52)
  of = lambda n: roofline.work(sizes, 5, 2, 11, 3, num_chips=n)
  # Two key heads: of two chips each has one.
  for name in ('read', 'flops'):
    assert getattr(of(2), name) == getattr(of(1), name) / 2
  # Of four each has both, and their weights: all but a fourth more.
  of_keys = 2 * 3 * (32 * 2 * 8)
  more = 3 / 4 * (of_keys * 4 + 2 * 16 * 3 * 2 * (2 * 8) * 2)
  assert of(4).read == of(1).read / 4 + more
  assert of(4).flops == of(1).flops / 4 + 3 / 4 * 2 * of_keys * 2 * 5


def test_sending_is_paid_for():
  machine = roofline.Machine(2e9, 3e10, 1e-3, link=1e8, sum_seconds=1e-5)
  done = roofline.work(SIZES, [1, 64], 2, 11, 1, num_chips=2)
  spent = roofline.spent(machine, done)
  np.testing.assert_allclose(spent.sending, done.sent / 1e8 + 7e-5)
  np.testing.assert_allclose(
    roofline.seconds(machine, done),
    1e-3 + np.maximum(done.read / 2e9, done.flops / 3e10) + spent.sending,
  )
  np.testing.assert_allclose(
    roofline.seconds(machine._replace(blend='sum'), done), sum(spent)
  )


def test_refusals():
  with pytest.raises(ValueError, match='blend of'):
    roofline.seconds(
      roofline.Machine(1, 1, blend='mean'), roofline.work(SIZES, 1, 1, 1, 1)
    )
