import itertools

import jax.numpy as jnp
import numpy as np
import pytest
import reference_runs
import reference_theory as reference
from scipy import optimize

from specjax.theory import prices as prices_lib
from specjax.theory import resample, run_bounds


def notes_after(source):
  """The notes after each token, `[V, J]`, by a search for the caps."""
  notes = []
  for law in source.laws:
    s = -np.log(law[law > 0])
    notes.append([1.0])
    for surplus in prices_lib.SURPLUSES:
      sum_at = lambda cap, s=s: np.sum(np.minimum(1.0, np.exp(cap - s)))
      excess = lambda cap, b=surplus, f=sum_at: f(cap) - 1.0 - b
      # Beyond the last surprisal nothing is capped.
      end = np.max(s)
      cap = optimize.brentq(excess, 0.0, end) if excess(end) > 0 else end
      notes[-1].append(np.sum(np.exp(-s) * np.minimum(s, cap)))
  return np.array(notes)


def probability(source, root, path):
  """Of a path after a root."""
  steps = itertools.pairwise((root, *path))
  return float(np.prod([source.laws[step] for step in steps]))


def trees_at(source, roots, rows, num_nodes):
  """`Trees` after each root, grown by a heap."""
  notes = notes_after(source)
  p = np.zeros((len(roots), num_nodes))
  noted = np.zeros((*p.shape, notes.shape[1]))
  for place, root in enumerate(roots):
    paths = source.best_tree(root, num_nodes)
    paths = sorted(paths, key=lambda w: (-probability(source, root, w), len(w)))
    for node, path in enumerate(paths):
      p[place, node] = probability(source, root, path)
      noted[place, node] = notes[path[-1] if path else root]
  return prices_lib.Trees(np.asarray(rows), p, noted, p > 0)


def test_notes_are_the_progress_of_saturating_caps():
  laws = np.random.default_rng(1).dirichlet(np.full(200, 0.1), size=200)
  laws[0] = np.eye(200)[3]
  laws[1] = np.where(np.arange(200) < 4, [0.25], 0.0)
  source = reference.MarkovSource(np.maximum(laws, 1e-9) * (laws > 0))
  with np.errstate(divide='ignore'):
    found = prices_lib.notes(jnp.log(source.laws))
  np.testing.assert_allclose(found, notes_after(source), rtol=1e-4)


@pytest.mark.parametrize(('vocab', 'has_eos'), [(2, False), (3, True)])
def test_values_bound_every_tree(vocab, has_eos):
  rng = np.random.default_rng(vocab)
  laws = rng.dirichlet(np.full(vocab, 0.7), size=vocab)
  source = reference.MarkovSource(laws, vocab - 1 if has_eos else None)
  notes = notes_after(source)
  roots = np.arange(vocab - has_eos)
  for capacity in (1, 2, 3, 4):
    prices = rng.exponential(0.3, notes.shape[1])
    price = notes @ prices
    best = np.array(
      [
        max(
          sum(
            probability(source, root, w) * price[w[-1] if w else root]
            for w in tree
          )
          for tree in source.trees(capacity)
        )
        for root in roots
      ]
    )
    # However many nodes are listed, and also where some were not read.
    for num_nodes in (2, 5, 40):
      trees = trees_at(source, roots, roots, num_nodes)
      unread = trees._replace(
        is_read=trees.is_read & (np.arange(num_nodes) < num_nodes - 1),
        notes=np.where(
          np.arange(num_nodes)[:, None] < num_nodes - 1, trees.notes, np.nan
        ),
      )
      for known in (trees, unread):
        shown = prices_lib.progress(prices, known, capacity)
        true = price[roots] - np.maximum(best - 1.0, 0.0)
        assert np.all(shown <= true + 1e-5)
    # All worths are listed then, and of one node there is one tree.
    if capacity == 1:
      np.testing.assert_allclose(shown, true, rtol=1e-4)


@pytest.mark.parametrize('arity', [2, 4])
def test_uniform_laws_on_complete_trees_attain_the_limit(arity):
  source = reference.MarkovSource(np.full((arity, arity), 1.0 / arity))
  roots = np.zeros(6, int)
  for depth in (1, 2, 3):
    capacity = (arity**depth - 1) // (arity - 1)
    trees = trees_at(source, roots, np.arange(6), capacity * arity + 1)
    calls = prices_lib.run_priced(trees, 6, [capacity])
    np.testing.assert_allclose(6.0 / calls.sum(), depth, rtol=2e-3)


def test_no_policy_exceeds_the_limit_and_it_is_sharper_than_run_context():
  rng = np.random.default_rng(0)
  source = reference_runs.regime_source()
  runs, texts = reference_runs.sampled_runs(source, 60, 40, rng)
  num_tokens = np.asarray(texts.num_tokens)
  roots = np.concatenate([[2, *run[:-1]] for run in runs])
  rows = np.repeat(np.arange(60), num_tokens)
  capacities = [1, 2, 4, 16]
  trees = trees_at(source, np.arange(8), np.arange(8), 48)
  trees = prices_lib.Trees(rows, *(x[roots] for x in trees[1:]))
  calls = prices_lib.run_priced(trees, 60, capacities)
  limit = run_bounds.rate(calls, num_tokens, capacities, seed=0)
  context = run_bounds.rate(
    run_bounds.run_context(texts.laws, num_tokens, capacities),
    num_tokens,
    capacities,
    seed=0,
  )
  for c, capacity in enumerate(capacities):
    achieved = {}
    for name, policy in reference_runs.policies(source, capacity, rng).items():
      used = np.array([reference.num_calls(run, 2, policy) for run in runs])
      achieved[name] = num_tokens.sum() / used.sum()
      ahead = resample.ratio_difference(
        (num_tokens[None], num_tokens[None]), (calls[c][None], used[None]), 0
      )
      assert np.all(ahead.low > -1e-3), (name, capacity)
    assert max(achieved.values()) <= limit.value[c] + 1e-3
    assert limit.value[c] <= context.value[c] + 1e-3
  # `achieved` is that of the largest trees.
  assert limit.value[-1] < 1.2 * achieved['oracle'] < 0.9 * context.value[-1]


@pytest.mark.parametrize('has_eos', [False, True])
def test_any_prices_hold_against_the_best_policy_by_dynamic_programming(
  has_eos,
):
  rng = np.random.default_rng(5)
  vocab, length = 3, 6
  for concentration in (0.2, 2.0):
    laws = rng.dirichlet(np.full(vocab, concentration), size=vocab)
    source = reference.MarkovSource(
      np.maximum(laws, 1e-4), vocab - 1 if has_eos else None
    )
    tokens = np.arange(vocab)
    trees = trees_at(source, tokens, tokens, 30)
    for capacity in (1, 2, 3, 4):
      calls = reference_runs.least_calls(source, 0, length, capacity)
      for scale in (0.1, 0.3, 1.0):
        prices = rng.exponential(scale, trees.notes.shape[-1])
        shown = prices_lib.progress(prices, trees, capacity)
        total = reference_runs.expected_totals(
          source, 0, length, np.asarray(shown)
        )
        assert total <= calls + 1e-5


def test_prices_are_fitted_on_the_other_half():
  rng = np.random.default_rng(3)
  source = reference.MarkovSource(rng.dirichlet(np.full(6, 0.4), size=6))
  roots, rows = rng.integers(6, size=40), np.repeat(np.arange(10), 4)
  trees = trees_at(source, roots, rows, 20)
  calls = prices_lib.run_priced(trees, 10, [5], seed=3)[0]
  is_first = np.asarray(resample.halves(rows, 3))
  for half in (is_first, ~is_first):
    other = prices_lib.Trees(*(x[~half] for x in trees))
    prices = prices_lib.fit(other, 5)
    shares = prices_lib.progress(prices, trees, 5)
    expected = [shares[rows == row].sum() for row in np.unique(rows[half])]
    np.testing.assert_allclose(calls[np.unique(rows[half])], expected)


def test_small_trees_leave_what_single_notes_show():
  rng = np.random.default_rng(4)
  source = reference.MarkovSource(rng.dirichlet(np.full(6, 0.9), size=6))
  tokens = np.arange(6)
  trees = trees_at(source, tokens, tokens, 1)
  known = trees.notes[:, 0]
  for capacity in (2, 16):
    ceilings = np.log1p(capacity * np.array(prices_lib.SURPLUSES))
    best = max(6 / capacity, (known.sum(axis=0)[1:] / ceilings).max())
    prices = prices_lib.fit(trees, capacity)
    shown = prices_lib.progress(prices, trees, capacity).sum()
    np.testing.assert_allclose(shown, best, rtol=1e-6)


def test_sure_laws_are_limited_by_the_capacity():
  source = reference.MarkovSource(np.eye(2))
  trees = trees_at(source, np.zeros(8, int), np.arange(8), 12)
  calls = prices_lib.run_priced(trees, 8, [1, 3, 12])
  np.testing.assert_allclose(8.0 / calls.sum(axis=1), [1, 3, 12], rtol=2e-3)


def test_bad_arguments_are_named():
  source = reference.MarkovSource(np.eye(2))
  trees = trees_at(source, [0, 1], [0, 1], 4)
  with pytest.raises(ValueError, match='capacities >= 1, got'):
    prices_lib.run_priced(trees, 2, [0])
  with pytest.raises(ValueError, match='at least 2 prompts'):
    prices_lib.run_priced(trees._replace(rows=np.zeros(2, int)), 1, [1])
