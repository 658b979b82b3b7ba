"""Which children of a node cost between two limits: how many, and each by rank.

A node of cost c has a child of cost `c - log p` for every token.  There are two
ways to find those that cost at least `low` and less than `high`.  Asked again
with other limits both compare the very same costs, so no child is found twice
and none is missed between readings.

  of_sorted  searches a table of laws whose costs rise: `log V` looks at a node
  of_rows    counts along the whole law of each node: `V` looks at a node
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax


class Offers(NamedTuple):
  """The children of W nodes that cost between the limits.

  Attributes:
    num: `[W]` int32, of each node.
    child_fn: `(node [M], rank [M]) -> (token [M], cost [M])`, the child of a
      rank below the node's `num`, in an order that is the node's own.
  """

  num: jax.Array
  child_fn: Callable[[jax.Array, jax.Array], tuple[jax.Array, jax.Array]]


def of_sorted(
  edges: jax.Array,
  tokens: jax.Array,
  rows: jax.Array,
  costs: jax.Array,
  low: jax.Array,
  high: jax.Array,
) -> Offers:
  """Finds the children of nodes whose laws stand in a table.

  Args:
    edges: `[G, V]` the costs `-log p` of each law's tokens, rising.
    tokens: `[G, V]` int32, the tokens in that order.
    rows: `[W]` int32, the law of each node.
    costs: `[W]` nats, of the nodes.
    low: `[]` nats, which the children reach.
    high: `[]` nats, which they stay below.
  """

  def num_below(limit):
    is_below = lambda rank: costs + edges[rows, rank] < limit
    return _num_true(is_below, rows.shape, edges.shape[1])

  first = num_below(low)

  def child(node, rank):
    place = rows[node], first[node] + rank
    return tokens[place], costs[node] + edges[place]

  return Offers(num=num_below(high) - first, child_fn=child)


def of_rows(
  log_p: jax.Array, costs: jax.Array, low: jax.Array, high: jax.Array
) -> Offers:
  """Finds the children of nodes that each have a law of their own.

  Args:
    log_p: `[W, V]` nats, the law after each node.
    costs: `[W]` nats, of the nodes.
    low: `[]` nats, which the children reach.
    high: `[]` nats, which they stay below.
  """
  child_costs = costs[:, None] - log_p
  count = _running_count((child_costs >= low) & (child_costs < high))

  def child(node, rank):
    is_before = lambda token: count[node, token] <= rank
    token = _num_true(is_before, node.shape, log_p.shape[1])
    return token, child_costs[node, token]

  return Offers(num=count[:, -1], child_fn=child)


def _num_true(test_fn, shape, size):
  """Returns how many of `0 .. size - 1` pass a test that only the first pass.

  Args:
    test_fn: `(number int32 shape) -> bool shape`.
    shape: of the searches, many at a time.
    size: how many numbers there are.
  """

  def try_bit(i, found):
    trial = found + (1 << (size.bit_length() - 1 - i))
    is_true = (trial <= size) & test_fn(jnp.minimum(trial, size) - 1)
    return jnp.where(is_true, trial, found)

  return lax.fori_loop(
    0, size.bit_length(), try_bit, jnp.zeros(shape, jnp.int32)
  )


def _running_count(is_true):
  """Returns `[W, V]` int32, the cumulated sum over columns."""

  # A third of the time of jnp.cumsum on CPUs.
  def add(count, column):
    count = count + column
    return count, count

  columns = is_true.T.astype(jnp.int32)
  return lax.scan(add, jnp.zeros_like(columns[0]), columns)[1].T
