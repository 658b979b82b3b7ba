"""Tree operations against slow twins that walk from node to node."""

import jax
import jax.numpy as jnp
import numpy as np

from specjax.trees import shapes
from specjax.trees import tree as tree_lib

path_sum = jax.jit(tree_lib.path_sum)
depth = jax.jit(tree_lib.depth)
ancestors = jax.jit(tree_lib.ancestors)


def random_parents(rng, size):
  return np.array([-1] + [rng.integers(0, i) for i in range(1, size)])


def slow_path(parents, node):
  path = []
  while node >= 0:
    path.append(node)
    node = parents[node]
  return path[::-1]


def test_path_sum_depth_and_ancestors_equal_slow_twins():
  rng = np.random.default_rng(0)
  for size in [1, 2, 3, 4, 5, 8, 9, 17, 33, 100]:
    for parents in [random_parents(rng, size), shapes.chain(size).parents]:
      parents = np.asarray(parents, np.int32)
      values = rng.normal(size=size).astype(np.float32)
      paths = [slow_path(parents, i) for i in range(size)]
      np.testing.assert_allclose(
        path_sum(jnp.asarray(parents), jnp.asarray(values)),
        [values[path].sum() for path in paths],
        rtol=1e-4,
        atol=1e-5,
      )
      np.testing.assert_array_equal(
        depth(jnp.asarray(parents)), [len(p) - 1 for p in paths]
      )
      expected = np.zeros((size, size), bool)
      for i, path in enumerate(paths):
        expected[i, path] = True
      np.testing.assert_array_equal(ancestors(jnp.asarray(parents)), expected)


def test_ancestors_of_the_docstring():
  got = ancestors(jnp.array([-1, 0, 0]))
  np.testing.assert_array_equal(got, [[1, 0, 0], [1, 1, 0], [1, 0, 1]])


def test_select_best_keeps_parents_of_what_it_keeps():
  rng = np.random.default_rng(1)
  for _ in range(20):
    parents = random_parents(rng, 60)
    # Many edges of cost 0, so that ties have to go to the parent.
    edges = rng.integers(0, 3, size=60).astype(np.float32)
    costs = path_sum(jnp.asarray(parents), jnp.asarray(edges))
    best = np.asarray(tree_lib.select_best(costs, 20))
    expected = np.argsort(np.asarray(costs), kind='stable')[:20]
    np.testing.assert_array_equal(best, expected)
    place = {node: i for i, node in enumerate(best)}
    for node in best:
      assert parents[node] < 0 or place[parents[node]] < place[node]


def test_child_sees_present_nodes_alone():
  tree = tree_lib.Tree(
    tokens=jnp.array([7, 3, 4, 3]),
    parents=jnp.array([-1, 0, 0, 1]),
    log_q=jnp.zeros(4),
    num_nodes=jnp.int32(3),
  )
  assert tree_lib.child(tree, 0, 3) == 1
  assert tree_lib.child(tree, 0, 4) == 2
  assert tree_lib.child(tree, 0, 7) == tree_lib.NO_CHILD
  assert tree_lib.child(tree, 1, 3) == tree_lib.NO_CHILD  # absent
  whole = tree.replace(num_nodes=jnp.int32(4))
  assert tree_lib.child(whole, 1, 3) == 3


def slow_walk(tree, targets, row):
  """Follows `targets[node]` from the root; nodes and tokens as lists."""
  nodes, tokens, node = [], [], 0
  while node is not None:
    nodes.append(node)
    tokens.append(int(targets[row, node]))
    node = next(
      (
        i
        for i in range(1, int(tree.num_nodes[row]))
        if tree.parents[row, i] == node and tree.tokens[row, i] == tokens[-1]
      ),
      None,
    )
  return nodes, tokens


def test_walk_equals_slow_twin_in_rows_of_unequal_length():
  rng = np.random.default_rng(2)
  batch, size = 16, 12
  trees = tree_lib.Tree(
    tokens=jnp.asarray(rng.integers(0, 3, (batch, size))),
    parents=jnp.asarray([random_parents(rng, size) for _ in range(batch)]),
    log_q=jnp.zeros((batch, size)),
    num_nodes=jnp.asarray(rng.integers(1, size + 1, batch)),
  )
  targets = jnp.asarray(rng.integers(0, 3, (batch, size)))
  active = jnp.asarray(rng.random(batch) < 0.8)
  asked = []

  def sample_fn(nodes, depth):
    token = jnp.take_along_axis(targets, nodes[:, None], 1)[:, 0]
    jax.debug.callback(lambda d: asked.append(int(d)), depth)
    return token, (nodes * 10).astype(jnp.float32)

  path = jax.jit(lambda t: tree_lib.walk(t, sample_fn, active))(trees)
  jax.effects_barrier()
  lengths = []
  for row in range(batch):
    nodes, tokens = slow_walk(trees, targets, row)
    if not active[row]:
      nodes, tokens = [], []
    lengths.append(len(nodes))
    assert path.length[row] == len(nodes)
    np.testing.assert_array_equal(path.nodes[row, : len(nodes)], nodes)
    np.testing.assert_array_equal(path.tokens[row, : len(nodes)], tokens)
    np.testing.assert_array_equal(
      path.extra[row, : len(nodes)], 10.0 * np.array(nodes)
    )
  # Full, partial and no acceptance all happened, and no level past the longest
  # path was asked for.
  assert min(lengths) == 0 and 1 in lengths and max(lengths) >= 3
  assert len(asked) == max(lengths)
