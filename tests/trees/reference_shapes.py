"""Slow oracles of static shapes, and a published example."""

import itertools

import numpy as np

from specjax.trees import shapes

# Sequoia (Chen et al. 2024): chance that the r-th ranked child is the accepted
# one; 68M drafter, 13B verifier, CNN, temperature 0.6; rounded.  Then the
# expected tokens of the best trees and of the best chains, by size.
SEQUOIA = np.array(
  [
    0.6342,
    0.1079,
    0.0570,
    0.0225,
    0.0195,
    0.0150,
    0.0045,
    0.0030,
    0.0120,
    0.0045,
    0.0075,
    0.0045,
    0.0060,
    0.0030,
    0.0015,
    0.0030,
    0.0015,
    0.0030,
    0,
    0.0030,
    0.0030,
    0.0030,
    0,
    0.0015,
    0,
    0.0015,
    0,
    0,
    0,
    0.0015,
    0.0015,
    0.0015,
  ]
)
SEQUOIA_TREES = {
  2: 1.6342,
  4: 2.2915,
  8: 2.7322,
  16: 3.1303,
  32: 3.5008,
  64: 3.8602,
  128: 4.2079,
  256: 4.5508,
  1024: 5.2272,
}
SEQUOIA_CHAINS = {2: 1.6342, 4: 2.2915, 8: 2.6622, 16: 2.7319, 32: 2.7337}


def every_shape(size, num_ranks):
  """All trees of `size` nodes with children of distinct ranks."""
  for parents in itertools.product(*[range(i) for i in range(1, size)]):
    for ranks in itertools.product(range(num_ranks), repeat=size - 1):
      edges = list(zip(parents, ranks, strict=True))
      if len(set(edges)) == len(edges):
        yield shapes.Shape(np.array((-1, *parents)), np.array((0, *ranks)))
