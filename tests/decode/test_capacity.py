"""Choice of a capacity, against loops over nodes in Python."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.decode import capacity
from specjax.draft import base
from specjax.trees import tree as tree_lib

SIZES = (1, 2, 5, 8)
NUM_NODES = SIZES[-1]
VOCAB = 6


def random_trees(rng, batch):
  """Trees with distinct siblings, as drafters make them; log_q of any sum."""
  tokens = np.zeros((batch, NUM_NODES), np.int32)
  parents = np.full((batch, NUM_NODES), -1, np.int32)
  for row in range(batch):
    for node in range(1, NUM_NODES):
      parent = rng.integers(node)
      taken = tokens[row, 1:node][parents[row, 1:node] == parent]
      parents[row, node] = parent
      tokens[row, node] = rng.choice(np.setdiff1d(range(9), taken))
  log_q = np.log(rng.uniform(0.05, 0.9, (batch, NUM_NODES)))
  log_q[:, 0] = 0
  num_nodes = rng.integers(1, NUM_NODES + 1, batch)
  return tree_lib.Tree(*map(jnp.asarray, (tokens, parents, log_q, num_nodes)))


def stated(trees, row):
  """The chance of each node after its parent; siblings sum to at most 1."""
  parents = np.asarray(trees.parents)[row]
  present = range(1, int(trees.num_nodes[row]))
  q = {i: float(np.exp(trees.log_q[row, i])) for i in present}
  total = {
    p: sum(q[i] for i in present if parents[i] == p) for p in range(NUM_NODES)
  }
  return {i: q[i] / max(total[parents[i]], 1.0) for i in present}


def slow_won(trees, row, trust, size):
  """`D` that is promised of the first nodes."""
  parents, chances = np.asarray(trees.parents)[row], stated(trees, row)
  won = 1.0
  for node in chances:
    if node < size:
      chance, at = 1.0, node
      while at:
        chance *= chances[at] * trust
        at = parents[at]
      won += min(chance, 1.0)
  return won


def with_sums(batch, **sums):
  made = {k: jnp.asarray(v, jnp.float32) for k, v in sums.items()}
  return capacity.start(batch).replace(**made)


@pytest.mark.parametrize('seed', range(4))
def test_chooses_most_tokens_a_second(seed):
  rng = np.random.default_rng(seed)
  trees = random_trees(rng, 3)
  seconds = np.sort(rng.uniform(1, 3, len(SIZES)))
  menu = capacity.make_menu(SIZES, seconds)
  is_active = np.array([True, False, True])
  estimates = with_sums(
    3, came=[1, 2, 0], stated=[1, 1, 1], surprise=[2, 1, 1], tokens=[3, 2, 2]
  )
  trust = (3 + 2) / (3 + 4)
  entropy = 4 / 7
  promised = []
  for size, cost in zip(SIZES, seconds, strict=True):
    won = np.mean([slow_won(trees, row, trust, size) for row in (0, 2)])
    promised.append(min(won, 1 + np.log(size) / entropy) / cost)
  for last in range(len(SIZES)):
    choices = jnp.full(3, last, jnp.int32)
    chosen = jax.jit(capacity.choose)(
      menu, estimates.replace(choice=choices), trees, is_active
    )
    best = int(np.argmax(promised))
    is_better = promised[best] > 1.02 * promised[last]
    assert chosen == (best if is_better else last)


def test_learns_from_every_node_that_was_passed():
  """Also where the node that came next was proposed and not read."""
  rng = np.random.default_rng(0)
  trees = random_trees(rng, 4)
  trees = trees.replace(num_nodes=jnp.array([8, 8, 8, 1]))
  menu = capacity.make_menu(SIZES, [1.0, 1.5, 2.0, 4.0])
  path, tokens = np.zeros((2, 4, NUM_NODES), np.int32)
  length = np.array([2, 1, 0, 1])
  log_p = -rng.uniform(size=(4, NUM_NODES)).astype(np.float32)
  child = int(np.flatnonzero(trees.parents[0] == 0)[0])
  grandchildren = np.flatnonzero(trees.parents[0] == child)
  path[0, 1] = child
  tokens[0, 0] = trees.tokens[0, child]
  tokens[0, 1] = trees.tokens[0, grandchildren[0]] if len(grandchildren) else 77
  tokens[1, 0] = 77  # What no tree has.
  verdict = base.Verdict(*map(jnp.asarray, (path, tokens, log_p, length)))
  before = with_sums(
    4,
    **{
      name: np.full(4, i + 2.0)
      for i, name in enumerate(
        ('came', 'stated', 'won', 'spent', 'surprise', 'tokens')
      )
    },
  )
  after = jax.jit(capacity.learn)(
    menu, before, trees, verdict, jnp.int32(2), jnp.array([1, 1, 0, 1], bool)
  )
  for row in range(4):
    chances, parents = stated(trees, row), np.asarray(trees.parents)[row]
    passed = path[row, : length[row]]
    states = sum(chances[i] for i in chances if parents[i] in passed)
    came = sum(
      any(parents[i] == node and trees.tokens[row, i] == token for i in chances)
      for node, token in zip(passed, tokens[row], strict=False)
    )
    keep = 0.95 if states else 1.0
    np.testing.assert_allclose(after.came[row], keep * 2 + came, rtol=1e-5)
    np.testing.assert_allclose(after.stated[row], keep * 3 + states, rtol=1e-5)
    np.testing.assert_allclose(after.won[row], 0.97 * 4 + length[row])
    spent = 2.0 if row != 2 else 0.0
    np.testing.assert_allclose(after.spent[row], 0.97 * 5 + spent)
    surprise = -log_p[row, : length[row]].sum()
    np.testing.assert_allclose(
      after.surprise[row], 0.95 * 6 + surprise, rtol=1e-5
    )
    np.testing.assert_allclose(after.tokens[row], 0.95 * 7 + length[row])
    assert after.choice[row] == 2


def test_a_drafter_that_lost_is_asked_again_after_a_while():
  estimates = with_sums(1, won=[8.0], spent=[12.0])
  one = jnp.ones((1, 1), jnp.int32)
  verdict = base.Verdict(0 * one, one, 0.0 * one, one[0])
  waits = 0
  while not capacity.has_paid(estimates):
    estimates = capacity.forget(estimates, verdict)
    waits += 1
  # 8 k + 1.1 >= 12 k + 1 for k <= 1 / 40.
  assert waits == np.ceil(np.log(1 / 40) / np.log(0.97))
  assert capacity.has_paid(capacity.start(1))


@pytest.mark.parametrize(
  ('sizes', 'seconds'),
  [((2, 4), (1, 2)), ((1, 4, 4), (1, 2, 3)), ((1,), (1,)), ((1, 4), (1, 2, 3))],
)
def test_bad_menus_are_refused(sizes, seconds):
  with pytest.raises(ValueError, match='expected'):
    capacity.make_menu(sizes, seconds)
