"""The children between two limits, against a look at every child."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specjax.theory import laws, offers

NUM_NODES = 6


def by_rows(env, rows, costs, low, high):
  return offers.of_rows(env.log_p[rows], costs, low, high)


def by_table(env, rows, costs, low, high):
  return offers.of_sorted(env.edges, env.tokens, rows, costs, low, high)


@pytest.fixture(scope='module', params=[by_rows, by_table])
def list_fn(request):
  """Lists `(token, cost) [W, V]` of the children, and how many there are."""

  @jax.jit
  def list_all(env, rows, costs, low, high):
    found = request.param(env, rows, costs, low, high)
    vocab_size = env.log_p.shape[1]
    node, rank = jnp.indices((NUM_NODES, vocab_size)).reshape(2, -1)
    child = found.child_fn(node, jnp.minimum(rank, found.num[node] - 1))
    return found.num, *(x.reshape(NUM_NODES, vocab_size) for x in child)

  return list_all


@settings(max_examples=40, deadline=None)
@given(
  seed=st.integers(0, 10**6),
  limits=st.lists(st.floats(0.0, 6.0), min_size=3, max_size=3),
)
def test_children_are_those_between_the_limits(list_fn, seed, limits):
  rng = np.random.default_rng(seed)
  # Ties, impossible tokens and a sure one.
  p = np.concatenate(
    [rng.integers(0, 4, (2, 5)) + np.eye(5)[:2], np.eye(5)[:1]]
  )
  env = laws.independent(p / p.sum(axis=1, keepdims=True))
  rows = rng.integers(0, 3, NUM_NODES)
  costs = jnp.asarray(rng.uniform(0.0, 3.0, NUM_NODES), float)
  exact = np.asarray(costs[:, None] - env.log_p[rows])
  low, middle, high = np.sort(limits).astype(exact.dtype)
  for least, most in ((-np.inf, low), (low, middle), (low, high)):
    num, token, cost = list_fn(env, rows, costs, least, most)
    for node in range(NUM_NODES):
      expected = np.flatnonzero((exact[node] >= least) & (exact[node] < most))
      assert num[node] == len(expected)
      found = np.asarray(token[node])[: len(expected)]
      assert sorted(found) == expected.tolist()
      np.testing.assert_array_equal(
        cost[node][: len(expected)], exact[node, found]
      )
