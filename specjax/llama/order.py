"""Which order the matrices of layers are best stored in, by trying it out."""

import math
import time
from collections.abc import Mapping

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from specjax import programs
from specjax.llama import linear, storage

# Stacks below this fit in a cache; of larger ones no more is tried out.
_LEAST_BYTES = 2**24
_MOST_BYTES = 2**26
# The least of so many is right on a busy machine, too.
_ROUNDS = 12

# Rows of a pass that stands for all passes of more than a few.
_MORE_ROWS = 32

# What a second copy has to win for a single row.
_GAIN = 1.1


def choose(stacks: Mapping[str, storage.Stored]) -> str:
  """Times products of one row and of a few, where that is worth it.

  Args:
    stacks: of all layers, vectors `[L, size]` and matrices `[L, in, out]`.

  Returns:
    Of `storage.ORDERS`: `both` where one row is faster in the one order and a
    few are in the other.  `in_out` without trying it out where there is no CPU,
    for compilers of accelerators arrange matrices themselves; among several
    hosts, which have to agree; and where the matrices are small.
  """
  if jax.default_backend() != 'cpu' or jax.process_count() > 1:
    return 'in_out'
  largest = max(stacks.values(), key=storage.num_bytes)
  num_bytes = storage.num_bytes(largest)
  if num_bytes < _LEAST_BYTES:
    return 'in_out'
  num_layers = math.ceil(largest.shape[0] * min(1, _MOST_BYTES / num_bytes))
  some = jax.tree.map(lambda x: x[:num_layers], largest)
  return decide(_seconds(some))


def decide(seconds: np.ndarray) -> str:
  """Chooses the order by what products cost.

  Args:
    seconds: `[2, 2]` of one row and of a few, stored `in_out` and `out_in`.
  """
  one, few = seconds
  if one[0] < _GAIN * one[1]:
    return 'in_out'
  return 'both' if few[0] < few[1] else 'out_in'


def _seconds(stack):
  """Returns the least of each, timed in turns."""
  runs = []
  for num_rows in (1, _MORE_ROWS):
    x = jnp.zeros((num_rows, stack.shape[1]), linear.compute_dtype(stack.dtype))
    for order in ('in_out', 'out_in'):
      stacks = storage.ordered({'w': stack}, order)
      runs.append((_products.lower(x, stacks).compile(), x, stacks))
  samples = [[_timed(*run) for run in runs] for _ in range(1 + _ROUNDS)]
  return np.min(samples[1:], axis=0).reshape(2, 2)


@programs.jit
def _products(x, stacks):
  """Multiplies by one matrix after the other."""

  def step(x, number):
    y = linear.matmul(x, linear.entries(stacks, number)['w'])
    return x + y[:, :1], None

  num_layers = jax.tree.leaves(stacks)[0].shape[0]
  return lax.scan(step, x, jnp.arange(num_layers))[0]


def _timed(run, *arrays):
  begin = time.perf_counter()
  jax.block_until_ready(run(*arrays))
  return time.perf_counter() - begin
