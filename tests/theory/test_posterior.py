import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specjax.theory import iid_bounds, posterior, resample

# A root, two children, and two children of each.
PARENTS = np.array([-1, 0, 0, 1, 1, 2, 2])
DEPTHS = np.array([0, 1, 1, 2, 2, 2, 2])
IS_FIRST_CHILD = np.array([0, 1, 0, 1, 0, 1, 0], bool)


def synthetic(first, rng):
  """Returns proposals of trees whose nodes' chances are known, and those.

  Args:
    first: `[M]`, the chance of a first child once its parent is accepted; a
      second child has a fifth of the rest.
    rng: draws the accepted paths.
  """
  first = np.asarray(first)[:, None]
  edges = np.where(IS_FIRST_CHILD, first, (1.0 - first) / 5.0)
  values, is_accepted = np.ones(edges.shape), np.ones(edges.shape, bool)
  u = rng.random(edges.shape)
  for parent in (0, 1, 2):
    left, right = np.flatnonzero(parent == PARENTS)
    values[:, left] = values[:, parent] * edges[:, left]
    values[:, right] = values[:, parent] * edges[:, right]
    is_left = u[:, parent] < edges[:, left]
    is_right = ~is_left & (u[:, parent] < edges[:, left] + edges[:, right])
    is_accepted[:, left] = is_accepted[:, parent] & is_left
    is_accepted[:, right] = is_accepted[:, parent] & is_right
  proposals = posterior.Proposals(
    parents=np.tile(PARENTS, (len(edges), 1)),
    num_nodes=np.full(len(edges), 7),
    scores=values**3 - 5.0,  # any rising function of the chance will do
    groups=np.tile(DEPTHS, (len(edges), 1)),
    is_accepted=is_accepted,
    rows=np.arange(len(edges)) // 4,
  )
  return proposals, values


def cross_fitted(proposals, seed=0):
  """Chances fitted to all trees of the other half."""
  everywhere = np.full(len(proposals.rows), True)
  return posterior.cross_fitted(proposals, everywhere, seed)


def random_proposals(seed):
  """Trees of random shape and size, scores that say nothing, few prompts."""
  rng = np.random.default_rng(seed)
  shape = num_trees, size = 6, 8
  parents = np.array(
    [[-1] + [rng.integers(i) for i in range(1, size)] for _ in range(num_trees)]
  )
  num_nodes = rng.integers(1, size + 1, size=num_trees)
  is_accepted = np.zeros(shape, bool)
  is_accepted[:, 0] = True
  for tree, node in itertools.product(range(num_trees), range(1, size)):
    is_accepted[tree, node] = (
      node < num_nodes[tree]
      and is_accepted[tree, parents[tree, node]]
      and rng.random() < 0.5
    )
  return posterior.Proposals(
    parents=parents,
    num_nodes=num_nodes,
    scores=rng.integers(3, size=shape),
    groups=rng.integers(4, size=shape),
    is_accepted=is_accepted,
    rows=np.arange(num_trees) % 2,
  )


def repeated(starts, num_prompts=4):
  """Proposals of prompts with the same starts: every half is like the other.

  Args:
    starts: `(parents, is_accepted)` of each; nodes of one depth are one group,
      and scores say nothing.
    num_prompts: how often these starts are.
  """
  size = max(len(parents) for parents, _ in starts)
  padded = lambda values: np.pad(values, (0, size - len(values)))
  depths = [[0, *(1 + (p > 0) for p in parents[1:])] for parents, _ in starts]
  tiled = lambda values: np.tile(np.stack(values), (num_prompts, 1))
  parents = tiled([padded(parents) for parents, _ in starts])
  return posterior.Proposals(
    parents=parents,
    num_nodes=np.tile([len(parents) for parents, _ in starts], num_prompts),
    scores=np.zeros(parents.shape),
    groups=tiled(list(map(padded, depths))),
    is_accepted=tiled([padded(taken) for _, taken in starts]).astype(bool),
    rows=np.repeat(np.arange(num_prompts), len(starts)),
  )


def crossing():
  """A child more often accepted than parents of all trees, but not its own.

  Half of the starts have a parent of chance .1; the others one of chance .7,
  and a child of chance .6.
  """
  poor = [([-1, 0], [1, i < 1]) for i in range(10)]
  good = [([-1, 0, 1], [1, i < 7, i < 6]) for i in range(10)]
  return repeated(poor + good)


def telling_shapes():
  """Half of the starts have one child, of chance 1/2, half three of 7/30."""
  lone = [([-1, 0], [1, i < 15]) for i in range(30)]
  three = [
    ([-1, 0, 0, 0], [1, i < 7, 7 <= i < 14, 14 <= i < 21]) for i in range(30)
  ]
  return repeated(lone + three)


def test_known_chances_are_recovered():
  rng = np.random.default_rng(0)
  few = rng.choice([0.1, 0.3, 0.5, 0.9], size=20000)
  many = rng.uniform(0.05, 0.95, size=20000)  # no two scores are the same
  for first, atol in ((few, 0.02), (many, 0.15)):
    proposals, exact = synthetic(first, rng)
    values = cross_fitted(proposals, seed=1)
    np.testing.assert_allclose(values, exact, atol=atol)
    assert np.mean(np.abs(values - exact)) < 0.01


def test_fit_is_the_least_squares_rising_one():
  # Shares 1/2, 1/4 (pooled to 1/3 by weight 1 : 2), 1.
  scores = np.array([[0, 1, 1, 2, 2, 2, 2, 3]], float)
  is_accepted = np.array([[1, 1, 0, 1, 0, 0, 0, 1]], bool)
  proposals = posterior.Proposals(
    parents=np.array([[-1] + 7 * [0]]),
    num_nodes=np.array([8]),
    scores=scores,
    groups=np.array([[9] + 7 * [5]]),
    is_accepted=is_accepted,
    rows=np.zeros(1, int),
  )
  calibration = posterior.fit(proposals, np.array([True]))
  assert list(calibration.by_score) == [5]  # roots are not drafted
  (steps,) = calibration.by_score.values()
  np.testing.assert_array_equal(steps.starts, [1, 3])
  np.testing.assert_allclose(steps.chances, [1 / 3, 1])
  # Scores between and beyond the steps.
  others = proposals._replace(scores=scores + np.array([0, -9, 0, 0.5] * 2))
  np.testing.assert_allclose(
    posterior.chances(calibration, others)[0],
    [1, 1 / 3, 1 / 3, 1 / 3, 1 / 3, 1 / 3, 1 / 3, 1],
  )


def test_chances_are_those_of_trees_like_the_used_ones():
  rng = np.random.default_rng(8)
  # Every other tree is easier than its scores say.
  is_easy = np.arange(8000) % 2 == 0
  proposals, exact = synthetic(np.where(is_easy, 0.8, 0.3), rng)
  proposals = proposals._replace(scores=np.zeros((8000, 7)))
  for is_used in (is_easy, ~is_easy):
    values = posterior.cross_fitted(proposals, is_used)
    of_kind = [np.mean(exact[is_used][:, d == DEPTHS]) for d in range(3)]
    np.testing.assert_allclose(
      values, np.tile(np.array(of_kind)[DEPTHS], (8000, 1)), atol=0.03
    )


def test_no_tree_is_fitted_to_its_own_half():
  proposals, _ = synthetic(np.full(400, 0.5), np.random.default_rng(9))
  # Of the used trees all are of four prompts; the chances of two of them come
  # of the other two, and those of unused prompts of one or the other.
  is_used = proposals.rows < 4
  values = posterior.cross_fitted(proposals, is_used, seed=2)
  fits = {
    rows: posterior.chances(
      posterior.fit(proposals, np.isin(proposals.rows, rows)), proposals
    )
    for rows in itertools.combinations(range(4), 2)
  }
  sources = [
    {
      rows
      for rows, fit in fits.items()
      if np.all(fit[proposals.rows == row] == values[proposals.rows == row])
    }
    for row in range(100)
  ]
  assert all(sources)
  for row in range(4):
    assert not any(row in rows for rows in sources[row])


def test_chances_are_calibrated_on_held_out_trees():
  rng = np.random.default_rng(2)
  proposals, _ = synthetic(rng.uniform(0.1, 0.9, size=8000), rng)
  values = cross_fitted(proposals)
  for depth in (1, 2):
    chance = values[:, depth == DEPTHS].ravel()
    hit = proposals.is_accepted[:, depth == DEPTHS].ravel()
    for part in np.array_split(np.argsort(chance), 5):
      error = np.sqrt(np.mean(chance[part] * (1 - chance[part])) / len(part))
      # Fit and test are each half the trees.
      assert abs(np.mean(chance[part]) - np.mean(hit[part])) < 5 * error + 0.01
  # The trees chosen by chance win what their chances say.
  told = posterior.best_trees(values, values)
  won = posterior.best_trees(values, proposals.is_accepted)
  spread = resample.mean((told - won).T, proposals.rows, seed=0)
  assert np.all((spread.low < 0.02) & (spread.high > -0.02))
  np.testing.assert_array_equal(won[:, -1], proposals.is_accepted.sum(axis=1))
  # So do those that are above the dual's threshold.
  for capacity in (2, 4, 6):
    limit, taken = (
      posterior.dual(values, worths, proposals.rows, capacity).mean()
      for worths in (values, proposals.is_accepted)
    )
    assert abs(limit - taken) < 0.03  # four standard errors


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_chances_never_rise_along_a_path(seed):
  proposals = random_proposals(seed)
  values = cross_fitted(proposals)
  size = values.shape[1]
  is_present = np.arange(size) < proposals.num_nodes[:, None]
  assert np.all(values[:, 0] == 1.0)
  assert np.all(values[~is_present] == 0.0)
  assert np.all((values >= 0.0) & (values <= 1.0))
  for node in range(1, size):
    above = values[np.arange(len(values)), proposals.parents[:, node]]
    assert np.all((values[:, node] <= above) | ~is_present[:, node])


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_best_trees_are_best_and_the_dual_bounds_them(seed):
  proposals = random_proposals(seed)
  values = cross_fitted(proposals)
  best = np.asarray(posterior.best_trees(values, values))
  size = values.shape[1]
  for tree, capacity in ((0, 1), (0, 3), (1, 2), (1, size)):
    others = range(1, proposals.num_nodes[tree])
    exact = 0.0
    for k in range(min(capacity, proposals.num_nodes[tree])):
      for chosen in itertools.combinations(others, k):
        kept = {0, *chosen}
        if all(proposals.parents[tree, node] in kept for node in chosen):
          exact = max(exact, values[tree, list(kept)].sum())
    place = min(capacity, size) - 1
    np.testing.assert_allclose(best[tree, place], exact, atol=1e-5)
  for capacity in range(1, size + 1):
    samples = posterior.dual(values, values, proposals.rows, capacity)
    assert np.all(samples >= best[:, capacity - 1] - 1e-5)


def test_dual_is_the_optimum_under_a_mean_budget():
  rng = np.random.default_rng(4)
  proposals, values = synthetic(np.tile([0.2, 0.8], 400), rng)
  for capacity in (1, 2, 3, 5, 7):
    dual = posterior.dual(values, values, proposals.rows, capacity)
    pooled = np.sort(values, axis=None)[::-1][: capacity * len(values)]
    np.testing.assert_allclose(dual.mean(), pooled.sum() / 800, rtol=1e-6)
  hard = posterior.best_trees(values, values).mean(axis=0)
  np.testing.assert_allclose(hard[1], 1.5, rtol=1e-5)
  assert posterior.dual(values, values, proposals.rows, 2).mean() > 1.7


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_on_fitted_trees_chances_are_the_shares_accepted(seed):
  proposals = random_proposals(seed)
  everywhere = np.full(len(proposals.rows), True)
  values = posterior.chances(posterior.fit(proposals, everywhere), proposals)
  is_present = np.arange(values.shape[1]) < proposals.num_nodes[:, None]
  for chance in np.unique(values[is_present]):
    share = np.mean(proposals.is_accepted[is_present & (values == chance)])
    np.testing.assert_allclose(share, chance, atol=1e-9)


@pytest.mark.parametrize('proposals', [crossing(), telling_shapes()])
def test_no_rule_of_chances_alone_wins_more_than_the_dual(proposals):
  values = cross_fitted(proposals)
  is_present = np.arange(values.shape[1]) < proposals.num_nodes[:, None]
  levels = set(values[is_present]) - {1.0}
  best = dict.fromkeys(range(1, 5), 0.0)
  for count in range(len(levels) + 1):
    for kept in itertools.combinations(levels, count):
      is_in = is_present & np.isin(values, [1.0, *kept])
      won = np.sum(proposals.is_accepted & is_in, axis=1).mean()
      for capacity in best:
        if is_in.sum(axis=1).mean() <= capacity:
          best[capacity] = max(best[capacity], won)
  for capacity, won in best.items():
    dual = posterior.dual(values, values, proposals.rows, capacity).mean()
    assert dual >= won - 1e-9
  assert best[4] == pytest.approx(proposals.is_accepted.sum(axis=1).mean())


def test_a_child_that_outdoes_its_parents_group_lifts_its_parent():
  proposals = crossing()
  values = cross_fitted(proposals)
  # Of the parents a share .4 is accepted, of the children .6.
  np.testing.assert_allclose(values[0], [1, 0.1, 0])
  np.testing.assert_allclose(values[10], [1, 0.65, 0.65])
  for capacity, expected in [(1, 1.0), (2, 1.65), (3, 1.7)]:
    for worths in (values, proposals.is_accepted):
      dual = posterior.dual(values, worths, proposals.rows, capacity)
      np.testing.assert_allclose(dual.mean(), expected)
  promise, won = (
    np.asarray(posterior.best_trees(values, worths)).mean(axis=0)
    for worths in (values, proposals.is_accepted)
  )
  np.testing.assert_allclose(promise, [1, 1.375, 1.7], rtol=1e-6)
  np.testing.assert_allclose(won, [1, 1.4, 1.7], rtol=1e-6)


def test_where_shapes_tell_the_best_trees_win_more_than_is_promised():
  proposals = telling_shapes()
  values = cross_fitted(proposals)
  np.testing.assert_allclose(values[30], [1, 0.3, 0.3, 0.3])
  promise, won = (
    np.asarray(posterior.best_trees(values, worths))[:, 1].mean()
    for worths in (values, proposals.is_accepted)
  )
  np.testing.assert_allclose(promise, 1.3, rtol=1e-6)
  np.testing.assert_allclose(won, 1 + (1 / 2 + 7 / 30) / 2, rtol=1e-6)
  dual = posterior.dual(values, values, proposals.rows, 2).mean()
  np.testing.assert_allclose(dual, 1.3)


def test_bounds_from_a_sure_verifier_are_vacuous_and_the_posterior_is_not():
  rng = np.random.default_rng(5)
  assert iid_bounds.lorden_dual(mu=0.0, mu2=0.0, capacity=7) == 7.0
  proposals, _ = synthetic(np.full(400, 0.5), rng)
  values = cross_fitted(proposals)
  limit = posterior.best_trees(values, values).mean(axis=0)
  np.testing.assert_allclose(limit[-1], 1 + 0.6 + 0.36, atol=0.1)


def test_unseen_groups_and_sure_scores():
  proposals, _ = synthetic(np.full(40, 1.0), np.random.default_rng(6))
  values = cross_fitted(proposals)
  assert np.all(values == proposals.is_accepted)
  # Of a group that no fit has seen nothing is known, nor of what is above it.
  proposals, _ = synthetic(np.full(400, 0.5), np.random.default_rng(6))
  calibration = posterior.fit(proposals, np.full(400, True))
  values = posterior.chances(calibration, proposals)
  groups = proposals.groups.copy()
  groups[:, 4] = 77
  unseen = posterior.chances(calibration, proposals._replace(groups=groups))
  assert np.all(unseen[:, [0, 1, 4]] == 1.0)
  np.testing.assert_array_equal(unseen[:, [2, 3, 5]], values[:, [2, 3, 5]])
  assert np.all(values[:, 1:] < 1.0)


def test_bad_arguments_are_named():
  proposals, values = synthetic(np.full(8, 0.5), np.random.default_rng(7))
  with pytest.raises(ValueError, match='expected capacity >= 1, got 0'):
    posterior.dual(values, values, proposals.rows, 0)
  with pytest.raises(ValueError, match='at least 2 prompts'):
    cross_fitted(proposals._replace(rows=np.zeros(8, int)))
  with pytest.raises(ValueError, match='expected scores, got NaN for 48 nodes'):
    posterior.fit(
      proposals._replace(scores=proposals.scores * np.nan), np.full(8, True)
    )
