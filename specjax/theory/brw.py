"""Branching random walks, simulated: the best draft trees of an environment.

A node's cost is `-log p` of its path.  Edges cost `>= 0`, so the N cheapest
nodes form a tree, and no tree of N nodes is worth more: `D = sum of p(w)`.

How it is grown.  A queue of nodes, parents before children, is read in blocks;
reading a node means to look at its law and append those children that cost less
than a limit.  When all are read the queue holds every node below the limit.

  too few  The limit is raised as if the number of nodes grew like `e^t`, as it
           does on average, and the queue is read again from its start, for
           children between the old limit and the new one.
  no room  The N cheapest are kept and the limit falls to the dearest of them.
           Any node that is still to be found costs more than its ancestors, so
           nothing is lost.

No law is stored: an environment gives it again for the same state.
"""

import functools
import math
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from specjax import parallel
from specjax.theory import environment
from specjax.trees import grow
from specjax.trees import tree as tree_lib

# A first limit of log N - 1 finds about N / (e mu) nodes.
_FIRST_SHORTFALL = 1.0
# Nats by which a raised limit aims too high, doubled at every further raise.
_MARGIN = 0.15
# Working memory of the nodes that are read at a time.
_BLOCK_BYTES = 2**25
# Working memory of the replicas that run side by side, where they are many.
_CACHE_BYTES = 2**18


class _Queue(NamedTuple):
  """Nodes of one tree, parents first; slots past `num_nodes` are empty."""

  costs: jax.Array  # [C] -log p of the path, inf in empty slots
  parents: jax.Array  # [C]
  tokens: jax.Array  # [C]
  states: environment.State  # [C], known for nodes that were read
  num_nodes: jax.Array  # []
  num_read: jax.Array  # []
  low: jax.Array  # [] children below it were appended in an earlier reading
  high: jax.Array  # [] children at or above it are not wanted
  margin: jax.Array  # [] nats, of the next raise
  is_full: jax.Array  # [] bool: no room for the children of the next node


def best_tree(
  env: environment.Environment, root: environment.State, num_nodes: int
) -> tree_lib.Tree:
  """Returns the tree of the N most probable continuations, falling.

  Its first n nodes are the best tree of n nodes; of equal ones any is chosen.

  Args:
    env: the environment.
    root: state of the start, of no batch.
    num_nodes: size `N` of the tree.

  Raises:
    ValueError: `num_nodes` is below 1.
  """
  queue = _grow(env, root, num_nodes)
  return grow.best_tree(queue.tokens, queue.parents, queue.costs, num_nodes)


def _grow(env, root, num_nodes):
  """Returns a queue that holds the N cheapest nodes, and others."""
  if num_nodes < 1:
    raise ValueError(f'expected num_nodes >= 1, got {num_nodes}')

  def step(queue):
    # A loop, for a condition on one of many replicas would prune them all.
    queue = lax.while_loop(
      lambda queue: queue.is_full,
      functools.partial(_prune, num_nodes=num_nodes),
      queue,
    )
    return _fill(env, num_nodes, queue)

  return lax.while_loop(
    lambda queue: queue.num_read < queue.num_nodes,
    step,
    _start(env, root, num_nodes),
  )


def values(tree: tree_lib.Tree) -> jax.Array:
  """Returns `[N]`: `D` of the first 1 .. N nodes, in tokens.

  `D = sum of p(w)` over nodes, for a tree whose `log_q` is the verifier's law.
  """
  log_p = tree_lib.path_sum(tree.parents, tree.log_q)
  return jnp.cumsum(jnp.where(tree_lib.present(tree), jnp.exp(log_p), 0.0))


@functools.partial(jax.jit, static_argnums=(2, 3, 4))
def curves(
  env: environment.Environment,
  key: jax.Array,
  num_replicas: int,
  num_nodes: int,
  max_bytes: int = 2**28,
) -> jax.Array:
  """Returns `[R, N]`: `D(1 .. N)` in tokens of the best trees of many starts.

  Args:
    env: the environment.
    key: consumed.
    num_replicas: `R`, starts to draw.
    num_nodes: `N`.
    max_bytes: limit of the working memory, the result not counted.

  Raises:
    ValueError: one replica needs more than `max_bytes`.
  """
  needed = _bytes_of_replica(env, num_nodes)
  if needed > max_bytes:
    raise ValueError(f'expected max_bytes >= {needed}, got {max_bytes}')

  def curve(key):
    costs = _grow(env, env.root(key), num_nodes).costs
    best = tree_lib.select_best(costs, num_nodes)
    return jnp.cumsum(jnp.exp(-costs[best]))

  # More replicas at a time than the cache holds are slower, not faster.
  side_by_side = max(min(max_bytes, _CACHE_BYTES) // needed, 1)
  num_chunks = -(-num_replicas // side_by_side)
  batch = -(-num_replicas // num_chunks)
  # Whole chunks, for a smaller last one would be compiled a second time.
  keys = jax.random.split(key, num_replicas)
  keys = keys[jnp.arange(num_chunks * batch) % num_replicas]
  # A batch of one is no batch: that is quicker to compile and to run.
  batch_size = batch if batch > 1 else None
  return lax.map(curve, keys, batch_size=batch_size)[:num_replicas]


def curves_on_devices(
  env: environment.Environment,
  key: jax.Array,
  num_replicas: int,
  num_nodes: int,
  max_bytes: int = 2**28,
) -> jax.Array:
  """Returns `curves`, `[R, N]`, with the replicas shared out to all devices.

  Args:
    env: the environment.
    key: consumed; each device draws its starts from a part of its own.
    num_replicas: `R`, starts to draw.
    num_nodes: `N`.
    max_bytes: limit of the working memory of a device.

  Raises:
    ValueError: as `curves` does.
  """
  keys = jax.random.split(key, jax.local_device_count())
  share = -(-num_replicas // len(keys))
  found = _curves_of_device(share, num_nodes, max_bytes)(env, keys)
  return found.reshape(-1, num_nodes)[:num_replicas]


@functools.cache
def _curves_of_device(num_replicas, num_nodes, max_bytes):
  """Returns `(env, keys) -> [devices, R, N]`, compiled once for its sizes."""
  return parallel.on_devices(
    lambda env, key: curves(env, key, num_replicas, num_nodes, max_bytes)
  )


def _sizes(env, num_nodes):
  """Returns nodes read at a time, children listed at a time, and the room."""
  block = min(max(num_nodes // 8, 8), max(_BLOCK_BYTES // env.bytes_to_read, 1))
  # After pruning to N there is room for all children of one node and more.
  return block, max(block, env.vocab_size), 2 * num_nodes + env.vocab_size


def _bytes_of_replica(env, num_nodes):
  block, num_slots, room = _sizes(env, num_nodes)
  # Measured on compiled programs, with something to spare.
  return 2**12 + 100 * room + 60 * num_slots + env.bytes_to_read * block


def _start(env, root, num_nodes):
  _, num_slots, room = _sizes(env, num_nodes)
  # Blocks are read and written whole, so some slots lie past the room.
  size = room + num_slots
  dtype = jax.eval_shape(env.log_law, root).dtype
  high = jnp.asarray(math.log(num_nodes) - _FIRST_SHORTFALL, dtype)
  return _Queue(
    costs=jnp.full(size, jnp.inf, dtype).at[0].set(0.0),
    parents=jnp.full(size, tree_lib.NO_PARENT, jnp.int32),
    tokens=jnp.zeros(size, jnp.int32),
    states=jax.tree.map(
      lambda x: jnp.zeros((size, *x.shape), x.dtype).at[0].set(x), root
    ),
    num_nodes=jnp.int32(1),
    num_read=jnp.int32(0),
    low=jnp.asarray(-jnp.inf, dtype),
    high=high,
    margin=jnp.asarray(_MARGIN, dtype),
    is_full=jnp.bool_(False),
  )


def _fill(env, num_nodes, queue):
  """Reads until all N cheapest nodes are there, or the queue has no room."""

  def step(queue):
    return _raise_limit(_read(env, num_nodes, queue), num_nodes)

  return lax.while_loop(
    lambda queue: (queue.num_read < queue.num_nodes) & ~queue.is_full,
    step,
    queue,
  )


def _read(env, num_nodes, queue):
  """Reads the next nodes of the queue and appends the children they offer."""
  block, num_slots, room = _sizes(env, num_nodes)
  take = lambda x: lax.dynamic_slice_in_dim(x, queue.num_read, block)
  costs, parents, tokens = map(take, queue[:3])
  above = jax.tree.map(lambda x: x[jnp.maximum(parents, 0)], queue.states)
  states = jax.vmap(env.child)(above, tokens)
  is_root = parents == tree_lib.NO_PARENT
  states = jax.tree.map(
    lambda new, old: jnp.where(
      is_root.reshape((-1,) + (1,) * (new.ndim - 1)), take(old), new
    ),
    states,
    queue.states,
  )
  offers = env.offers(states, costs, queue.low, queue.high)
  node, rank, num_read, num_new = _list_offers(
    offers.num, num_slots, room - queue.num_nodes
  )
  token, child_costs = offers.child_fn(node, rank)
  is_new = jnp.arange(num_slots) < num_new
  put = lambda x, new, at: lax.dynamic_update_slice_in_dim(x, new, at, 0)
  num_read = jnp.minimum(num_read, queue.num_nodes - queue.num_read)
  return queue._replace(
    costs=put(
      queue.costs, jnp.where(is_new, child_costs, jnp.inf), queue.num_nodes
    ),
    parents=put(queue.parents, queue.num_read + node, queue.num_nodes),
    tokens=put(queue.tokens, token, queue.num_nodes),
    states=jax.tree.map(
      lambda x, new: put(x, new, queue.num_read), queue.states, states
    ),
    num_nodes=queue.num_nodes + num_new,
    num_read=queue.num_read + num_read,
    is_full=num_read == 0,
  )


def _list_offers(num, num_slots, room):
  """Lists the children of as many nodes as there is room for.

  Args:
    num: `[W]` int32 children of each node.
    num_slots: length `M` of the list.
    room: `[]` how many children may be listed.

  Returns:
    node: `[M]` int32 the node of each child, falling in order.
    rank: `[M]` int32 its rank among the children of the node.
    num_read: `[]` nodes whose children are all listed; those after are not.
    num_new: `[]` children listed; entries at or past it say nothing.
  """
  ends = jnp.cumsum(num)
  num_read = jnp.sum(ends <= jnp.minimum(room, num_slots), dtype=jnp.int32)
  num_new = jnp.where(num_read > 0, ends[num_read - 1], 0)
  slots = jnp.arange(num_slots, dtype=jnp.int32)
  node = jnp.searchsorted(ends, slots, side='right').astype(jnp.int32)
  node = jnp.minimum(node, num.shape[0] - 1)
  return node, slots - (ends - num)[node], num_read, num_new


def _raise_limit(queue, num_nodes):
  """Begins another reading if all nodes are read and they are too few."""
  is_short = (queue.num_read == queue.num_nodes) & (queue.num_nodes < num_nodes)
  growth = jnp.log(num_nodes / queue.num_nodes) + queue.margin
  change = lambda new, old: jnp.where(is_short, new, old)
  return queue._replace(
    num_read=change(0, queue.num_read),
    low=change(queue.high, queue.low),
    high=queue.high + change(growth, 0.0),
    margin=queue.margin * change(2.0, 1.0),
  )


def _prune(queue, num_nodes):
  """Keeps the N cheapest nodes, in their order, and lowers the limit."""
  kept = jnp.sort(tree_lib.select_best(queue.costs, num_nodes))
  put = lambda x, new: x.at[:num_nodes].set(new)
  parents = queue.parents[kept]
  is_root = parents == tree_lib.NO_PARENT
  parents = jnp.where(is_root, parents, jnp.searchsorted(kept, parents))
  costs = queue.costs[kept]
  return queue._replace(
    costs=put(jnp.full_like(queue.costs, jnp.inf), costs),
    parents=put(queue.parents, parents.astype(jnp.int32)),
    tokens=put(queue.tokens, queue.tokens[kept]),
    states=jax.tree.map(lambda x: put(x, x[kept]), queue.states),
    num_nodes=jnp.int32(num_nodes),
    num_read=jnp.sum(kept < queue.num_read, dtype=jnp.int32),
    high=jnp.max(costs),
    is_full=jnp.bool_(False),
  )
