"""Matrices in the blocks of a GGUF file, and what they hold."""

import jax
import jax.numpy as jnp
import numpy as np

from specjax.llama import storage

KINDS = ('Q4_1', 'Q8_0')


def random_blocks(rng, kind, num_outputs, num_inputs):
  """Blocks `[out, in]`, and their values by a loop over inputs in float64."""
  of_blocks = (num_outputs, num_inputs // 32)
  # A file has them in float16, so that products with numbers are exact.
  scales, offsets = np.float32(np.float16(rng.randn(2, *of_blocks)))
  if kind == 'Q8_0':
    offsets = None
    quants = rng.randint(-128, 128, (num_outputs, num_inputs)).astype(np.int8)
  else:
    quants = rng.randint(0, 256, (num_outputs, num_inputs // 2))
    quants = quants.astype(np.uint8)
  values = np.empty((num_outputs, num_inputs))
  for i in range(num_inputs):
    block, place = divmod(i, 32)
    if kind == 'Q8_0':
      values[:, i] = quants[:, i] * np.float64(scales[:, block])
    else:
      byte = quants[:, 16 * block + place % 16].astype(int)
      number = byte % 16 if place < 16 else byte // 16
      values[:, i] = number * np.float64(scales[:, block]) + offsets[:, block]
  blocks = storage.Blocks(quants, scales, offsets)
  return jax.tree.map(jnp.asarray, blocks), values
