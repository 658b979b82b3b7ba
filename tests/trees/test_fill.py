"""Filled shapes against a recursion in plain Python."""

import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference_growth as reference

from specjax.trees import fill, grow, shapes

ROOTS = np.array([0, 3, 12], np.int32)
SHAPES = {
  'root': shapes.chain(1),
  'chain': shapes.chain(6),
  'binary': shapes.k_ary(12, 2),
  'best first': shapes.best_first(13, [0.2, 0.5, 0.1, 0.1]),
}


def by_rank(log_q, places):
  return jax.lax.top_k(log_q, places.children.shape[1])[1]


def run(shape, laws, roots, draw_fn=by_rank):
  states = jnp.zeros((len(roots), len(shape.parents)), jnp.uint32)
  return fill.fill(shape, roots, reference.reader(laws), draw_fn, states)


@pytest.mark.parametrize('name', SHAPES)
def test_children_are_the_drawn_ones_by_rank(name):
  shape, laws = SHAPES[name], reference.planted_laws()
  tree, slots, states = jax.device_get(
    jax.jit(functools.partial(run, shape))(laws, ROOTS)
  )
  assert np.all(tree.num_nodes == len(shape.parents))
  for row, root in enumerate(ROOTS):
    paths = [(root,)]
    for parent, rank in zip(shape.parents[1:], shape.ranks[1:], strict=True):
      law = reference.law_after(laws, paths[parent])
      token = np.argsort(-law, kind='stable')[rank]
      assert tree.log_q[row, len(paths)] == law[token]
      paths.append((*paths[parent], token))
    np.testing.assert_array_equal(tree.parents[row], shape.parents)
    assert reference.paths_of(tree, row) == paths
    for node, path in enumerate(paths):
      is_inner = node in shape.parents or node == 0
      assert slots[row, node] == (node if is_inner else grow.NO_SLOT)
      if is_inner:
        assert states[row, node] == reference.state_after(path)


def test_one_trace_for_all_laws_and_roots():
  fill_binary = lambda laws, roots: run(SHAPES['binary'], laws, roots)
  traced = jax.jit(chex.assert_max_traces(fill_binary, n=1))
  for seed in range(3):
    traced(reference.planted_laws(seed), ROOTS + seed)
