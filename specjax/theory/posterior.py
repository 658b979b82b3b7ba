"""Limits at temperature 0: what the drafter does not know of a sure verifier.

At temperature 0 the verifier's law is degenerate, its entropy 0, and bounds
from it are vacuous: a tree that knew the text would win every node.  What a
drafter can win then rests on what it knows.  Replace `p(w)` by the chance that
w is accepted *given the drafter's own score of w*, learnt from other texts, and
the algebra stays:

  E[D | scores] = sum_{w in T} p(w),

so the best tree of `N` nodes takes the largest chances, and for any theta `D <=
N theta + sum (p(w) - theta)_+` (see `start_bounds`).  Chances that are
calibrated only on average give limits for the policies that choose among the
nodes that were proposed and judge each by its own score: propose large trees.
They hold for starts like those that the fit has seen.

The same holds at other temperatures for a drafter's own limit.  Host code in
NumPy: a fit is a table of steps.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import optimize

from specjax.theory import resample
from specjax.trees import tree as tree_lib


class Proposals(NamedTuple):
  """Verified draft trees of `N` node slots, with what their drafter knew.

  Attributes:
    parents: `[M, N]` int, as in `trees.tree.Tree`.
    num_nodes: `[M]` int, nodes of each tree; the rest is absent.
    scores: `[M, N]` float, the higher the likelier within its group, such as
      the log-probability that the drafter gives a node's path.  Scores that
      fall along paths give chances that do.
    groups: `[M, N]` int, nodes whose scores may be compared, such as those of
      one match length of a lookup.
    is_accepted: `[M, N]` bool, the node lies on the accepted path; False for
      one that ends in EOS, which is worth no token.
    rows: `[M]` int, the prompt of each tree.
  """

  parents: np.ndarray
  num_nodes: np.ndarray
  scores: np.ndarray
  groups: np.ndarray
  is_accepted: np.ndarray
  rows: np.ndarray


class Steps(NamedTuple):
  """A rising step function of the score.

  Attributes:
    starts: `[J]` rising; the least score of each step.
    chances: `[J]` rising; the share of nodes that are accepted.
  """

  starts: np.ndarray
  chances: np.ndarray


# The step function of each group.
Calibration = dict[int, Steps]


def fit(proposals: Proposals, is_used: np.ndarray) -> Calibration:
  """Returns the chance of acceptance as a rising function of the score.

  In each group the rising function that is nearest in least squares to what was
  accepted (isotonic regression).  It keeps the mean of every step: chances are
  calibrated on the trees they were fitted to.

  Args:
    proposals: verified trees.
    is_used: `[M]` bool, the trees to fit to.

  Raises:
    ValueError: a used tree's score is not a number.
  """
  is_drafted = _is_present(proposals) & np.asarray(is_used)[:, None]
  is_drafted[:, tree_lib.ROOT] = False
  scores, groups, is_accepted = (
    np.asarray(values)[is_drafted]
    for values in (proposals.scores, proposals.groups, proposals.is_accepted)
  )
  if np.any(np.isnan(scores)):
    raise ValueError(
      f'expected scores, got NaN for {np.sum(np.isnan(scores))} nodes'
    )
  return {
    int(group): _fit_steps(
      scores[groups == group], is_accepted[groups == group]
    )
    for group in np.unique(groups)
  }


def chances(calibration: Calibration, proposals: Proposals) -> np.ndarray:
  """Returns the chance `[M, N]` that each node is accepted.

  1 at the root and 0 for absent nodes.  A node is accepted only if its parent
  is, so none is given a larger chance than a node above it.  A group that the
  fit has not seen says nothing: its nodes have their parent's chance.

  Args:
    calibration: of `fit`.
    proposals: trees; whether they were accepted is not looked at.
  """
  scores, groups = np.asarray(proposals.scores), np.asarray(proposals.groups)
  values = np.ones(scores.shape)
  for group, steps in calibration.items():
    is_here = groups == group
    step = np.searchsorted(steps.starts, scores[is_here], side='right') - 1
    values[is_here] = steps.chances[np.maximum(step, 0)]
  values[:, tree_lib.ROOT] = 1.0
  trees = np.arange(len(values))
  for node in range(1, values.shape[1]):  # parents before children
    above = values[trees, np.asarray(proposals.parents)[:, node]]
    values[:, node] = np.minimum(values[:, node], above)
  return np.where(_is_present(proposals), values, 0.0)


def cross_fitted(
  proposals: Proposals, is_used: np.ndarray, seed: int = 0
) -> np.ndarray:
  """Returns chances `[M, N]`, each fitted on the other half of the prompts.

  Args:
    proposals: verified trees.
    is_used: `[M]` bool, the trees to fit to; where iterations start, trees are
      refused more often than elsewhere.
    seed: draws the halves.

  Raises:
    ValueError: as `fit` and, for the prompts of used trees, `resample.halves`
      do.
  """
  rows, is_used = np.asarray(proposals.rows), np.asarray(is_used)
  used_rows = rows[is_used]
  is_first = np.isin(rows, used_rows[resample.halves(used_rows, seed)])
  of_halves = [
    chances(fit(proposals, is_used & half), proposals)
    for half in (~is_first, is_first)
  ]
  return np.where(is_first[:, None], *of_halves)


def best_trees(values: np.ndarray, worths: np.ndarray) -> jax.Array:
  """Returns tokens `[M, N]`: what the best trees of 1 .. N nodes are worth.

  A tree takes the nodes of largest chance.  With the chances as worths this is
  the limit at a hard budget of nodes; with `is_accepted` it is what those trees
  really won, and the two agree in the mean if the chances are calibrated.

  Args:
    values: `[M, N]` chances.
    worths: `[M, N]`, summed over the chosen nodes.
  """
  select = lambda costs: tree_lib.select_best(costs, costs.shape[0])
  chosen = jax.vmap(select)(-jnp.asarray(values, float))
  worths = jnp.asarray(worths, float)
  return jnp.cumsum(jnp.take_along_axis(worths, chosen, axis=1), axis=1)


def dual(
  values: np.ndarray, rows: np.ndarray, capacity: int, seed: int = 0
) -> np.ndarray:
  """Returns samples `[M]` of `N theta + sum_w (p(w) - theta)_+`, in tokens.

  Their mean bounds every policy of *mean* size at most `N`.  theta is the
  chance at which the trees of one half of the prompts fill that budget, and is
  used on the other half.

  Args:
    values: `[M, N]` chances.
    rows: `[M]` int, the prompt of each tree.
    capacity: mean number of nodes, roots included.
    seed: draws the halves.

  Raises:
    ValueError: the capacity is below 1, or there are fewer than two prompts.
  """
  if capacity < 1:
    raise ValueError(f'expected capacity >= 1, got {capacity}')
  is_first = np.asarray(resample.halves(rows, seed))
  theta = np.where(
    is_first,
    _filling_threshold(values[~is_first], capacity),
    _filling_threshold(values[is_first], capacity),
  )
  excess = np.maximum(values - theta[:, None], 0.0)
  return capacity * theta + np.sum(excess, axis=1)


def _fit_steps(scores, is_accepted):
  """Returns the rising steps that fit one group's nodes best."""
  values, place = np.unique(scores, return_inverse=True)
  counts = np.bincount(place)
  shares = np.bincount(place, weights=is_accepted) / counts
  fitted = optimize.isotonic_regression(shares, weights=counts)
  first = fitted.blocks[:-1]
  return Steps(starts=values[first], chances=fitted.x[first])


def _filling_threshold(values, capacity):
  """Returns the chance of the last node within the budget, 0 if none is."""
  budget = capacity * len(values)
  if budget >= values.size:
    return 0.0
  return np.partition(values, values.size - budget, axis=None)[
    values.size - budget
  ]


def _is_present(proposals):
  """Returns `[M, N]` bool: the nodes that take part."""
  size = np.shape(proposals.parents)[1]
  return np.arange(size) < np.asarray(proposals.num_nodes)[:, None]
