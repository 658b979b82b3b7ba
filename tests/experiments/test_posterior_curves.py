"""Curves of hand-made proposals against sums written out."""

import json

import numpy as np
import pytest

from experiments import curves, posterior_curves
from specjax.theory import posterior

NUM_ROWS, LIMIT, NUM_NODES = 8, 6, 12
CAPACITIES = [1, 3, 4]
SEED = 2
# Some texts end before the limit.
RUN_LENGTHS = np.array([6, 6, 2, 6, 5, 6, 6, 3])


def make_proposals(seed=SEED):
  """Random trees, whose nodes are accepted the more often the higher scored."""
  rng = np.random.default_rng(seed)
  shape = (NUM_ROWS, LIMIT, NUM_NODES)
  parents = np.full(shape, -1)
  scores = np.zeros(shape)
  is_accepted = np.ones(shape, bool)
  at = np.ix_(*map(np.arange, shape[:2]))
  for node in range(1, NUM_NODES):
    parents[..., node] = above = rng.integers(0, node, shape[:2])
    log_q = np.log(rng.choice([0.15, 0.5, 0.9], shape[:2]))
    scores[..., node] = scores[*at, above] + log_q
    # One child of a node is accepted at most.
    is_taken = np.any(
      (parents[..., 1:node] == above[..., None]) & is_accepted[..., 1:node],
      axis=-1,
    )
    drawn = rng.random(shape[:2]) < np.exp(log_q)
    is_accepted[..., node] = is_accepted[*at, above] & drawn & ~is_taken
  num_nodes = rng.integers(1, NUM_NODES + 1, shape[:2])
  is_accepted &= np.arange(NUM_NODES) < num_nodes[..., None]
  return {
    'parents': parents,
    'num_nodes': num_nodes,
    'scores': np.round(scores, 6),
    'groups': rng.integers(0, 2, shape) * (parents >= 0),
    'is_accepted': is_accepted,
  }


def make_starts():
  """Places by chance, of which the capacities visited some."""
  rng = np.random.default_rng(SEED)
  rows, places = np.nonzero(np.arange(LIMIT) < RUN_LENGTHS[:, None])
  won = rng.integers(0, 3, (len(CAPACITIES), len(rows)))
  drawn = won.any(axis=0)
  return {'rows': rows[drawn], 'places': places[drawn], 'won': won[:, drawn]}


@pytest.fixture(scope='module')
def made():
  return posterior_curves.tabulate(
    {'lookup': make_proposals(), 'bigram': make_proposals(7)},
    RUN_LENGTHS,
    make_starts(),
    CAPACITIES,
    SEED,
  )


def test_every_drafter_has_every_curve(made):
  table, checks = made
  json.dumps(made, allow_nan=False)
  names = [
    f'{name}({drafter})'
    for drafter in ('lookup', 'bigram')
    for name in posterior_curves.NAMES
  ]
  expected = [(name, n) for name in names for n in CAPACITIES]
  assert [(row['curve'], row['capacity']) for row in table] == expected
  for row in table:
    assert row['low'] <= row['D'] + 1e-6 <= row['high'] + 2e-6
    of_root = 0 if 'excess' in row['curve'] else 1
    assert row['capacity'] > 1 or abs(row['D'] - of_root) < 1e-6
  pairs = {row['curve'] for row in checks}
  assert pairs == {
    f'posterior_dual({drafter}) - posterior_taken({drafter})'
    for drafter in ('lookup', 'bigram')
  }


def chances_at(arrays, visited):
  """Chances of every place, learnt at the visited starts."""
  rows, places = np.nonzero(np.arange(LIMIT) < RUN_LENGTHS[:, None])
  trees = posterior.Proposals(
    **{k: v[rows, places] for k, v in arrays.items()}, rows=rows
  )
  is_used = np.array([at in visited for at in zip(rows, places, strict=True)])
  found = posterior.cross_fitted(trees, is_used, SEED)
  return dict(zip(zip(rows, places, strict=True), found, strict=True))


def test_curves_are_sums_over_the_best_nodes_at_visited_starts(made):
  table, checks = made
  arrays, starts = make_proposals(), make_starts()
  for capacity, won in zip(CAPACITIES, starts['won'], strict=True):
    ats = list(zip(starts['rows'], starts['places'], strict=True))
    visited = [at for at, count in zip(ats, won, strict=True) if count]
    chances = chances_at(arrays, set(visited))
    best = {
      at: np.argsort(-values, kind='stable')[:capacity]
      for at, values in chances.items()
    }
    told = [chances[at][best[at]].sum() for at in visited]
    took = {at: arrays['is_accepted'][at][best[at]].sum() for at in best}
    dual, taken = (
      posterior.dual(
        np.stack([chances[at] for at in visited]),
        np.stack([worths[at] for at in visited]),
        np.array([row for row, _ in visited]),
        capacity,
        SEED,
      ).mean()
      for worths in (chances, arrays['is_accepted'])
    )
    num_calls = 0
    for row, length in enumerate(RUN_LENGTHS):
      place = 0
      while place < length:
        place += took[row, place]
        num_calls += 1
    won = np.mean([took[at] for at in visited])
    expected = {
      'posterior_dual': dual,
      'posterior_best': np.mean(told),
      'posterior_won': won,
      'posterior_excess': np.mean(told) - won,
      'posterior_run': RUN_LENGTHS.sum() / num_calls,
    }
    at = lambda rows, curve, n=capacity: curves.find(rows, curve, n)['D']
    for name, value in expected.items():
      np.testing.assert_allclose(at(table, f'{name}(lookup)'), value, atol=1e-5)
    np.testing.assert_allclose(
      at(checks, 'posterior_dual(lookup) - posterior_taken(lookup)'),
      dual - taken,
      atol=1e-5,
    )


def test_more_nodes_and_mean_budgets_win_more(made):
  at = lambda curve, n: curves.find(made[0], f'{curve}(lookup)', n)['D']
  assert 1.3 < at('posterior_best', 3) < at('posterior_best', 4)
  for capacity in CAPACITIES[1:]:
    assert at('posterior_best', capacity) < at('posterior_dual', capacity)


def test_what_was_not_visited_is_not_learnt_from():
  arrays, starts = make_proposals(), make_starts()
  starts['won'][:] = starts['won'][:1]
  tabulate = lambda: posterior_curves.tabulate(
    {'lookup': arrays}, RUN_LENGTHS, starts, CAPACITIES, SEED
  )
  limits = lambda rows: [r for r in rows if 'posterior_run' not in r['curve']]
  before = limits(tabulate()[0])
  visited = np.zeros((NUM_ROWS, LIMIT), bool)
  visited[starts['rows'], starts['places']] = starts['won'][0] > 0
  arrays['is_accepted'][~visited, 1:] = False
  arrays['scores'][~visited] = 0.0
  assert limits(tabulate()[0]) == before
