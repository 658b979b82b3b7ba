"""What drafters could win by what they know of their own nodes.

At temperature 0 the verifier's law is degenerate, its entropy 0, and bounds
from it are vacuous: a tree that knew the text would win every node.  What a
drafter can win then rests on what it knows.  Replace `p(w)` by the *chance*
that w is accepted given the drafter's own score of w, learnt from other texts.
Chances are calibrated: of the nodes with chance c a share c is accepted.  So a
rule `a` that judges each node by its chance alone wins

  E[D] = E sum_w a(p(w)) 1{w is accepted} = E sum_w a(p(w)) p(w)
      <= N theta + E sum_w (p(w) - theta)_+

for any theta >= 0, if it has at most `N` nodes in the mean: a limit (`dual`).
It holds for starts like those that the fit has seen, and for choices among the
nodes that were proposed: propose large trees.

It is none for a rule that looks at a start's chances together.  Which nodes are
the best `N` of a start depends on all of them, and where the shape of a tree
tells how good it is, those nodes may win more than the sum of their chances.
That sum is a promise (`best_trees`), true if shapes tell nothing.

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
      the log-probability that the drafter gives a node's path.
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
  """A rising step function.

  Attributes:
    starts: `[J]` rising; the least argument of each step.
    chances: `[J]` rising; the share of nodes that are accepted.
  """

  starts: np.ndarray
  chances: np.ndarray


class Calibration(NamedTuple):
  """How scores become chances that fall along paths.

  Attributes:
    by_score: for each group, from the score to a share.
    by_best: from the largest of these shares at or below a node to its chance.
  """

  by_score: dict[int, Steps]
  by_best: Steps


def fit(proposals: Proposals, is_used: np.ndarray) -> Calibration:
  """Returns how the chance of acceptance rises with what is known of a node.

  In each group the rising function of the score that is nearest in least
  squares to what was accepted (isotonic regression).  It keeps the mean of
  every step, so its values are calibrated on the trees they were fitted to; but
  a child in another group than its parent may have the larger one.  Forcing
  children down would count too little at good parents, for a node is accepted
  no less often than any below it.  So a node takes the largest value at or
  below it, which falls along paths, and what was accepted is fitted once more
  as a rising function of that: calibrated again, and falling along paths still.

  Args:
    proposals: verified trees.
    is_used: `[M]` bool, the trees to fit to.

  Raises:
    ValueError: a used tree's score is not a number.
  """
  is_present = _is_present(proposals) & np.asarray(is_used)[:, None]
  is_drafted = is_present.copy()
  is_drafted[:, tree_lib.ROOT] = False
  scores, groups, is_accepted = (
    np.asarray(values)[is_drafted]
    for values in (proposals.scores, proposals.groups, proposals.is_accepted)
  )
  if np.any(np.isnan(scores)):
    raise ValueError(
      f'expected scores, got NaN for {np.sum(np.isnan(scores))} nodes'
    )
  by_score = {
    int(group): _fit_steps(
      scores[groups == group], is_accepted[groups == group]
    )
    for group in np.unique(groups)
  }
  by_best = _fit_steps(
    _best_below(by_score, proposals)[is_present],
    np.asarray(proposals.is_accepted)[is_present],
  )
  return Calibration(by_score, by_best)


def chances(calibration: Calibration, proposals: Proposals) -> np.ndarray:
  """Returns the chance `[M, N]` that each node is accepted.

  1 at the root and 0 for absent nodes; it never rises along a path.  Of a group
  that the fit has not seen nothing is known: its nodes, and those above them,
  count the worst case, which is 1.  A limit stays one, and may be far too high.

  Args:
    calibration: of `fit`.
    proposals: trees; whether they were accepted is not looked at.
  """
  best = _best_below(calibration.by_score, proposals)
  values = _step_values(calibration.by_best, best)
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

  A tree takes the nodes of largest chance; since chances fall along paths,
  parents are among them.  With the chances as worths this is what they promise
  for those trees, and no limit; with `is_accepted` it is what the trees really
  won.  The two agree in the mean if a node's chance is all there is to know.

  Args:
    values: `[M, N]` chances.
    worths: `[M, N]`, summed over the chosen nodes.
  """
  select = lambda costs: tree_lib.select_best(costs, costs.shape[0])
  chosen = jax.vmap(select)(-jnp.asarray(values, float))
  worths = jnp.asarray(worths, float)
  return jnp.cumsum(jnp.take_along_axis(worths, chosen, axis=1), axis=1)


def dual(
  values: np.ndarray,
  worths: np.ndarray,
  rows: np.ndarray,
  capacity: int,
  seed: int = 0,
) -> np.ndarray:
  """Returns samples `[M]` of `N theta + sum_{p(w) > theta} (worth(w) - theta)`.

  In tokens.  With the chances as worths their mean is a limit: no rule that
  judges each node by its chance alone, and has at most `N` nodes in the mean,
  wins more.  With `is_accepted` it is what one such rule really won, the trees
  of all nodes above theta, with every node that they have beyond `N` in the
  mean, or short of it, counted at theta.  The two agree in the mean if the
  chances are calibrated.

  theta is the chance at which the trees of one half of the prompts fill that
  budget, and is used on the other half.

  Args:
    values: `[M, N]` chances.
    worths: `[M, N]`, summed over the nodes above theta.
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
  )[:, None]
  excess = np.where(values > theta, worths - theta, 0.0)
  return capacity * theta[:, 0] + np.sum(excess, axis=1)


def _fit_steps(scores, is_accepted):
  """Returns the rising steps that fit one group's nodes best."""
  values, place = np.unique(scores, return_inverse=True)
  counts = np.bincount(place)
  shares = np.bincount(place, weights=is_accepted) / counts
  fitted = optimize.isotonic_regression(shares, weights=counts)
  first = fitted.blocks[:-1]
  return Steps(starts=values[first], chances=fitted.x[first])


def _step_values(steps, at):
  """Returns the step function at these arguments, the first step below all."""
  step = np.searchsorted(steps.starts, at, side='right') - 1
  return steps.chances[np.maximum(step, 0)]


def _best_below(by_score, proposals):
  """Returns `[M, N]`: the largest share of a node and those below it.

  `inf`, beyond all shares, at the root, which is always accepted, and where a
  group has none.
  """
  scores, groups = np.asarray(proposals.scores), np.asarray(proposals.groups)
  parents = np.asarray(proposals.parents)
  best = np.full(scores.shape, np.inf)
  for group, steps in by_score.items():
    is_here = groups == group
    best[is_here] = _step_values(steps, scores[is_here])
  best[~_is_present(proposals)] = 0.0
  trees = np.arange(len(best))
  for node in range(best.shape[1] - 1, tree_lib.ROOT, -1):
    above = trees, parents[:, node]  # children before parents
    best[above] = np.maximum(best[above], best[:, node])
  best[:, tree_lib.ROOT] = np.inf
  return best


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
