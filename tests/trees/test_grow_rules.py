"""Growing rules against heaps and lists in plain Python."""

import functools
import heapq

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference_growth as reference

from specjax.trees import grow, rules

ROOTS = np.array([0, 1, 2, 3, 4, 5, 6, 10, 11, 12], np.int32)


def children_of(laws, cost, path):
  """Costs and paths of a node's children, in float32 as they are summed."""
  law = reference.law_after(laws, path)
  return [
    (np.float32(cost) - law[token], (*path, token))
    for token in range(reference.VOCAB)
    if np.isfinite(law[token])
  ]


def slow_best_first(laws, root, num_nodes):
  queue, found = [(np.float32(0), (root,))], []
  while queue and len(found) < num_nodes:
    cost, path = heapq.heappop(queue)
    found.append((cost, path))
    for child in children_of(laws, cost, path):
      heapq.heappush(queue, child)
  return found


def slow_beam(laws, root, num_nodes, width, depth):
  level = [(np.float32(0), (root,))]
  met = list(level)
  for _ in range(depth):
    children = []
    for cost, path in sorted(level)[:width]:
      children += sorted(children_of(laws, cost, path))[:width]
    met += children
    level = children
  return sorted(met)[:num_nodes]


def slow_opt_tree(laws, root, num_nodes, width, depth, threshold):
  best = [(np.float32(0), (root,))]
  value = lambda nodes: sum(float(np.exp(-cost)) for cost, _ in nodes)
  for level in range(1, depth + 1):
    front = sorted(node for node in best if len(node[1]) == level)[:width]
    children = [child for node in front for child in children_of(laws, *node)]
    before, best = best, sorted(best + children)[:num_nodes]
    if value(best) - value(before) < threshold:
      break
  return best


def trees(rule_fn, num_nodes, laws, roots):
  rule = rule_fn(num_nodes)
  states = jnp.zeros((len(roots), rule.num_slots), jnp.uint32)
  return grow.grow(rule, roots, reference.reader(laws), states)


run = jax.jit(trees, static_argnums=(0, 1))


RULES = {
  'one by one': (
    lambda n: rules.best_first(n, 1),
    slow_best_first,
  ),
  'in threes': (
    lambda n: rules.best_first(n, 3),
    slow_best_first,
  ),
  'beam': (
    lambda n: rules.beam(n, 4, 4),
    functools.partial(slow_beam, width=4, depth=4),
  ),
  'chains of a beam': (
    lambda n: rules.beam(n, 1, 20),
    functools.partial(slow_beam, width=1, depth=20),
  ),
  'levels': (
    lambda n: rules.opt_tree(n, 3, 5, 0.0),
    functools.partial(slow_opt_tree, width=3, depth=5, threshold=0.0),
  ),
  'levels that pay': (
    lambda n: rules.opt_tree(n, 8, 20, 0.3),
    functools.partial(slow_opt_tree, width=8, depth=20, threshold=0.3),
  ),
}


@pytest.mark.parametrize(
  'name, num_nodes',
  [*((name, 20) for name in RULES), ('in threes', 1), ('beam', 1), ('beam', 2)],
)
def test_rules_equal_their_slow_twins(name, num_nodes):
  rule_fn, slow = RULES[name]
  laws = reference.planted_laws()
  tree, slots, states = jax.device_get(run(rule_fn, num_nodes, laws, ROOTS))
  for row, root in enumerate(ROOTS):
    expected = slow(laws, root, num_nodes)
    paths = reference.paths_of(tree, row)
    assert paths == [path for _, path in expected]
    costs = [cost for cost, _ in expected]
    for node, parent in enumerate(tree.parents[row, : len(paths)]):
      edge = costs[node] - costs[parent] if node else 0
      assert tree.log_q[row, node] == -edge
      if slots[row, node] != grow.NO_SLOT:
        kept = states[row, slots[row, node]]
        assert kept == reference.state_after(paths[node])
      if node:
        assert slots[row, parent] != grow.NO_SLOT


@pytest.mark.parametrize(
  'name, num_present', [('in threes', 20), ('beam', 5), ('levels', 6)]
)
def test_a_sure_law_gives_the_chain_that_the_depth_allows(name, num_present):
  sure = np.full_like(reference.planted_laws(), -np.inf)
  sure[:, 3] = 0
  tree = run(RULES[name][0], 20, sure, ROOTS)[0]
  assert np.all(tree.num_nodes == num_present)
  chain = np.arange(num_present) - 1
  np.testing.assert_array_equal(tree.parents[0, :num_present], chain)
  assert np.all(tree.tokens[:, 1:num_present] == 3)


def test_levels_without_end_find_the_best_tree():
  laws = reference.planted_laws(1)
  without_end = lambda n: rules.opt_tree(n, n, 99, 0.0)
  levels = run(without_end, 20, laws, ROOTS)[0]
  best = run(RULES['in threes'][0], 20, laws, ROOTS)[0]
  chex.assert_trees_all_equal(levels, best)


@pytest.mark.parametrize('name', ['in threes', 'levels'])
def test_one_trace_a_number_of_nodes(name):
  chex.clear_trace_counter()
  of_five = functools.partial(trees, RULES[name][0], 5)
  traced = jax.jit(chex.assert_max_traces(lambda *args: of_five(*args), n=1))
  for seed in range(3):
    traced(reference.planted_laws(seed), ROOTS + seed)


@pytest.mark.parametrize(
  'make, message',
  [
    (lambda: rules.best_first(0), 'num_nodes of at least 1, got 0'),
    (lambda: rules.best_first(4, 0), 'width of at least 1, got 0'),
    (lambda: rules.beam(4, 2, 0), 'depth of at least 1, got 0'),
    (lambda: rules.beam(8, 2, 2), 'at most 7 nodes, .* got 8'),
    (lambda: rules.opt_tree(4, 2, 3, -0.1), 'threshold >= 0, got -0.1'),
  ],
)
def test_what_cannot_grow_is_refused(make, message):
  with pytest.raises(ValueError, match=message):
    make()
