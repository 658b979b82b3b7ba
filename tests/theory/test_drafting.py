import heapq
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference_theory as reference
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize

from specjax.theory import drafting, iid_bounds


def drafted_nodes(p, q, num_nodes):
  """Returns `p(w)` and depth of the best-first tree's nodes under q."""
  order = np.argsort(-q)
  order = order[q[order] > 0]
  nodes, heap = [(1.0, 0)], [(-q[order[0]], 1.0, 1.0, 1, 0)]
  while len(nodes) < num_nodes and heap:
    value, parent_q, parent_p, depth, rank = heapq.heappop(heap)
    here_p = parent_p * p[order[rank]]
    nodes.append((here_p, depth))
    child = (value * q[order[0]], -value, here_p, depth + 1, 0)
    heapq.heappush(heap, child)
    if rank + 1 < len(order):
      sibling = -parent_q * q[order[rank + 1]]
      heapq.heappush(heap, (sibling, parent_q, parent_p, depth, rank + 1))
  return np.array(nodes).T


def log(law):
  with np.errstate(divide='ignore'):
    return jnp.log(jnp.asarray(law))


def random_laws(seed, vocab):
  """A verifier and a drafter, some of whose probabilities may be 0."""
  rng = np.random.default_rng(seed)
  laws = rng.dirichlet(np.full(vocab, rng.uniform(0.2, 2.0)), size=2)
  laws = np.where(rng.random(laws.shape) < 0.15, 0.0, laws) + 1e-9 * (laws > 1)
  laws[laws.sum(axis=1) == 0] = np.eye(vocab)[0]
  return laws / laws.sum(axis=1, keepdims=True)


P = np.array([0.55, 0.2, 0.12, 0.07, 0.04, 0.02])
# Ranks some tokens wrongly and doubts the first.
Q = np.array([0.38, 0.3, 0.09, 0.13, 0.03, 0.07])


def test_cross_entropy_is_entropy_and_divergence():
  p, q = P, Q
  moments = drafting.cross_moments(log(p), log(q))
  divergence = np.sum(p * np.log(p / q))
  np.testing.assert_allclose(
    moments.mean, reference.moments(p)[0] + divergence, rtol=1e-5
  )
  np.testing.assert_allclose(moments.second, p @ np.log(q) ** 2, rtol=1e-5)
  np.testing.assert_allclose(
    moments.drafter_entropy, reference.moments(q)[0], rtol=1e-5
  )
  assert moments.missed == 0.0


def test_a_perfect_drafter_has_the_sharp_asymptote():
  moments = drafting.cross_moments(*2 * [log(reference.ZIPF)])
  capacity = np.array([1, 2, 17, 1025, 10**6])
  np.testing.assert_allclose(
    drafting.drafter_asymptote(moments, capacity),
    iid_bounds.sharp(moments.mean, moments.second, capacity),
    rtol=1e-5,
  )


def test_asymptote_is_what_drafted_trees_win():
  nodes, _ = drafted_nodes(P, Q, 2**15)
  exact = np.cumsum(nodes)
  moments = drafting.cross_moments(log(P), log(Q))
  sizes = 2 ** np.arange(9, 16)
  np.testing.assert_allclose(
    drafting.drafter_asymptote(moments, sizes), exact[sizes - 1], atol=0.05
  )
  # A doubling buys log 2 / CE, and that is less than log 2 / H.
  slope = (exact[2**15 - 1] - exact[2**11 - 1]) / np.log(2.0**4)
  np.testing.assert_allclose(slope, 1.0 / moments.mean, rtol=0.03)
  assert slope < 0.95 / reference.moments(P)[0]


def test_missed_tokens_end_the_growth():
  p, q = P, np.where(np.arange(6) < 4, Q, 0.0)
  q = q / q.sum()
  exact = np.cumsum(drafted_nodes(p, q, 2**14)[0])
  moments = drafting.cross_moments(log(p), log(q))
  np.testing.assert_allclose(moments.missed, p[4:].sum(), rtol=1e-5)
  sizes = 2 ** np.arange(8, 15)
  np.testing.assert_allclose(
    drafting.drafter_asymptote(moments, sizes), exact[sizes - 1], rtol=0.03
  )
  assert drafting.drafter_asymptote(moments, 1e30) < 1.0 / moments.missed


def test_a_sure_drafter_is_a_chain():
  p, q = np.array([0.7, 0.3]), np.array([1.0, 0.0])
  moments = drafting.cross_moments(log(p), log(q))
  np.testing.assert_allclose(
    drafting.drafter_asymptote(moments, np.array([1, 3, 10**6])),
    [1.0, 1.0 + 0.7 + 0.49, 1.0 / 0.3],
    rtol=1e-5,
  )
  for p, d in (([1.0, 0.0], 9.0), ([0.0, 1.0], 1.0)):
    moments = drafting.cross_moments(log(p), log(q))
    np.testing.assert_allclose(drafting.drafter_asymptote(moments, 9), d)


@pytest.mark.parametrize('q', [P, Q])
def test_variance_grows_as_its_leading_term(q):
  nodes, depths = drafted_nodes(P, q, 2**16)
  # D counts nodes of a path: E[D^2] = sum (2 depth + 1) p(w).
  squares = np.cumsum((2 * depths + 1) * nodes)
  exact = squares - np.cumsum(nodes) ** 2
  moments = drafting.cross_moments(log(P), log(q))
  sizes = np.unique(np.geomspace(2**9, 2**16, 100).astype(int))
  grown = np.polyfit(np.log(sizes), exact[sizes - 1], 1)[0]
  predicted = drafting.variance(moments.mean, moments.second, np.e)
  np.testing.assert_allclose(grown, predicted, rtol=0.04)
  assert drafting.variance(moments.mean, moments.second, 1) == 0.0


def test_uniform_and_sure_laws_have_no_growing_variance():
  for law in (np.full(8, 1 / 8), [1.0]):
    np.testing.assert_allclose(
      drafting.variance(*reference.moments(law), 10**6), 0.0, atol=1e-4
    )


def test_chain_is_the_geometric_sum():
  for a in (0.0, 0.3, 0.9, 0.999999, 1.0):
    for capacity in (1, 2, 5, 40):
      np.testing.assert_allclose(
        drafting.chain(a, capacity),
        np.sum(float(a) ** np.arange(capacity)),
        rtol=1e-5,
      )


def test_random_trees_cannot_beat_their_overlap():
  """Enumerates chains of 3 drafts on 3 tokens: one identity, two routes."""
  p, q = np.array([0.6, 0.3, 0.1]), np.array([0.2, 0.5, 0.3])
  chains = np.array(list(itertools.product(range(3), repeat=3)))
  weights = np.prod(q[chains], axis=1)
  overlaps = drafting.chain_overlaps(log(p)[chains], log(q)[chains])
  means = weights @ np.asarray(overlaps)
  paths, exact = [()], []
  for length in (1, 2, 3):
    level = list(itertools.product(range(3), repeat=length))
    paths += level
    total = sum(min(np.prod(p[[*w]]), np.prod(q[[*w]])) for w in level)
    exact.append(total)
  np.testing.assert_allclose(means, exact, rtol=1e-5)
  total = lambda law: jnp.stack(
    [jnp.sum(log(law)[jnp.array(w, int)]) for w in paths]
  )
  bound = drafting.random_tree_bound(total(p), total(q))
  np.testing.assert_allclose(bound, 1.0 + np.sum(exact), rtol=1e-5)
  # Verifying token by token is lossless, hence below.
  a = drafting.draft_acceptance(log(p), log(q), 1)
  assert drafting.chain(a, 4) < bound
  np.testing.assert_allclose(drafting.random_tree_bound(total(p), total(p)), 4)


def test_overlaps_of_chains_that_end():
  log_p = jnp.array([[-1.0, -jnp.inf, -jnp.inf], [-0.5, -0.5, -0.5]])
  log_q = jnp.array([[-1.0, -1.0, -1.0], [-1.0, -0.2, -0.1]])
  np.testing.assert_allclose(
    drafting.chain_overlaps(log_p, log_q),
    [[1.0, 0.0, 0.0], [1.0, 1.0, np.exp(-0.2)]],
    rtol=1e-6,
  )


def best_transport(p, q, num_drafts):
  """Returns the best acceptance over all couplings, by linear programming.

  Only the accepted part of a coupling counts: what is left of both laws can
  always be matched somehow.
  """
  vocab = len(p)
  drafts = list(itertools.product(range(vocab), repeat=num_drafts))
  pairs = [(i, y) for i, draft in enumerate(drafts) for y in set(draft)]
  used = np.zeros((len(drafts) + vocab, len(pairs)))
  for column, (i, y) in enumerate(pairs):
    used[[i, len(drafts) + y], column] = 1.0
  supply = [np.prod(q[list(draft)]) for draft in drafts]
  found = optimize.linprog(-np.ones(len(pairs)), used, [*supply, *p])
  assert found.success
  return -found.fun


@settings(max_examples=25, deadline=None)
@given(
  seed=st.integers(0, 10**6),
  vocab=st.integers(1, 3),
  num_drafts=st.integers(1, 3),
)
def test_draft_acceptance_is_the_best_transport(seed, vocab, num_drafts):
  p, q = random_laws(seed, vocab)
  value = drafting.draft_acceptance(log(p), log(q), num_drafts)
  np.testing.assert_allclose(value, best_transport(p, q, num_drafts), atol=1e-5)
  if num_drafts == 1:
    np.testing.assert_allclose(value, np.minimum(p, q).sum(), atol=1e-5)


def test_the_prefix_search_finds_the_best_of_all_sets():
  p, q = random_laws(11, 7)
  for num_drafts in (1, 2, 5):
    sets = itertools.product([False, True], repeat=7)
    exact = min(
      1.0 + p[list(h)].sum() - q[list(h)].sum() ** num_drafts for h in sets
    )
    np.testing.assert_allclose(
      drafting.draft_acceptance(log(p), log(q), num_drafts), exact, atol=1e-5
    )


def test_acceptance_batches_and_jits():
  p, q = np.random.default_rng(3).dirichlet(np.ones(6), size=(2, 4))
  batched = jax.jit(drafting.draft_acceptance, static_argnums=2)
  np.testing.assert_allclose(
    batched(log(p), log(q), 3),
    [
      drafting.draft_acceptance(log(a), log(b), 3)
      for a, b in zip(p, q, strict=True)
    ],
    rtol=1e-5,
  )
  with pytest.raises(ValueError, match='expected num_drafts >= 1, got 0'):
    drafting.draft_acceptance(log(p), log(q), 0)
