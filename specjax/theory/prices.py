"""The limit of runs from best trees everywhere: a price on every token.

Give each token a price `r(c) >= 0`, any function of the context c before it.
A call that drafts the tree T at c earns the prices of the tokens it emits, one
for each visited node, hence in expectation at most

  V(c) = max over trees of N nodes of sum_v p(v) r(v),

over nodes that do not end the text, for no token follows one that does.  What a
text earns in all is the same for every policy.  So for any policy that does not
see the tokens it drafts for, over the n places of a text,

  E[sum_i r(c_i)] <= E[sum over calls of V(c)]
                  <= E[calls] + E[sum_i (V(c_i) - 1)_+],

for a call starts at a place at most once; what the last call would earn past
the end of a cut text is left on the right.  Hence

  E[calls] >= E[sum_i r(c_i) - (V(c_i) - 1)_+].

Maximised over all prices this is the linear programme dual to that of the best
run.  It is tight for long texts: with the best run's rate D and its relative
values h, if they are bounded and fall by at most 1 a token in the mean, the
prices `(1 + E[h(next)] - h(c)) / D` have `V <= 1` everywhere and the mean
`1 / D`.  Here the prices are a positive combination of `notes` on the law at c,
fitted on one half of the texts and used on the other; any choice is valid.

V is bounded from above in two ways.  With the best-first tree of M nodes:
beside the root the N - 1 largest of the worths `p(v) r(v)` are taken, be they a
tree or not, and no node that is not listed has more than the last listed
probability and the highest price.  That is loose for N near M and costs little
from M = 3 N on.  And without a tree: a call earns at most `log(1 + N B)` of the
note of B (see `run_bounds`), so that a single note as price shows the calls
that `run_bounds.run_context` shows.

The fit is a linear programme in the prices, with the excesses `(V - 1)_+` as
further variables: V is the largest of linear functions, one for each choice of
nodes, and choices are added where the last solution is exceeded.  Host code in
NumPy, but for the notes.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from scipy import optimize, sparse

from specjax.theory import heads as heads_lib
from specjax.theory import resample

# The values of B for which a law's progress, as in `run_bounds.run_context`, is
# noted.
SURPLUSES = (0.3, 1.0, 3.0, 10.0, 30.0)
# No note is above these: by Jensen's inequality `E[log min(1 / p, e^lam)]` is
# at most `log sum_y min(1, p_y e^lam) = log(1 + B)`.
_HIGHEST = np.array([1.0, *np.log1p(SURPLUSES)])

# Most probable tokens from which notes are made; more than 1 + B.
_NUM_TOP = 64

# Rounds of choices of nodes; the excess that a choice may leave, in calls.
_MAX_ROUNDS = 40
_TOLERANCE = 1e-4


class Trees(NamedTuple):
  """The best-first tree at each of P places of texts, M nodes by falling p.

  Attributes:
    rows: `[P]` int, the text of each place.
    p: `[P, M]` probability of each node's path, 1 at the root; 0 for nodes that
      a law with little support leaves absent.
    notes: `[P, M, J]` of the law after each node.
    is_read: `[P, M]` bool; the notes of other nodes are not known.
  """

  rows: np.ndarray
  p: np.ndarray
  notes: np.ndarray
  is_read: np.ndarray


def notes(log_p: jax.Array) -> jax.Array:
  """Returns what prices are made of: 1 and `sum_y p_y min(-log p_y, lam(B))`.

  lam(B) solves `sum_y min(1, p_y e^lam) = 1 + B`.

  Args:
    log_p: `[..., V]` log-probabilities of laws; -inf counts nothing.

  Returns:
    `[..., J]`, nats but for the first, one for each of `SURPLUSES`.
  """
  num_top = min(_NUM_TOP, log_p.shape[-1])
  head = heads_lib.of_top(jax.lax.top_k(log_p, num_top)[0])

  def progress_at(surplus):
    cap = heads_lib.saturating_cap(head, surplus)
    return heads_lib.capped_surprisal(head, cap)

  ones = jnp.ones(log_p.shape[:-1])
  return jnp.stack([ones, *map(progress_at, SURPLUSES)], axis=-1)


def run_priced(
  trees: Trees, num_rows: int, capacities: Sequence[int], seed: int = 0
) -> np.ndarray:
  """Returns the least calls of each text, `[C, R]`, a bound in expectation.

  `sum over places of r - (V - 1)_+`; see the module.  A text's share may be
  negative, only totals mean something.

  Args:
    trees: of every place of the texts.
    num_rows: `R`.
    capacities: `[C]`, N.
    seed: draws the halves.

  Raises:
    ValueError: a capacity is below 1, or there are fewer than two texts.
  """
  if min(capacities) < 1:
    raise ValueError(f'expected capacities >= 1, got {list(capacities)}')
  is_first = np.asarray(resample.halves(trees.rows, seed))
  worths = _weigh(trees)
  calls = np.zeros((len(capacities), num_rows))
  for c, capacity in enumerate(capacities):
    for half in (is_first, ~is_first):
      prices = _fit(_select(worths, ~half), capacity)
      shares = _progress(prices, _select(worths, half), capacity)
      rows = np.asarray(trees.rows)[half]
      calls[c] += np.bincount(rows, weights=shares, minlength=num_rows)
  return calls


def progress(prices: np.ndarray, trees: Trees, capacity: int) -> np.ndarray:
  """Returns `r - (V - 1)_+` at each place, `[P]` calls.

  Args:
    prices: `[J]` weights of the notes, not negative.
    trees: of the places.
    capacity: `N`.
  """
  return _progress(prices, _weigh(trees), capacity)


def fit(trees: Trees, capacity: int) -> np.ndarray:
  """Returns prices `[J]` that show many calls in all at the places.

  The best that trees allow or, if it shows more, the best single note.

  Args:
    trees: of the places.
    capacity: `N`.

  Raises:
    RuntimeError: the solver of linear programmes gave up.
  """
  return _fit(_weigh(trees), capacity)


class _Worths(NamedTuple):
  """Notes of nodes weighted with their p: what prices are applied to.

  Attributes:
    root: `[P, J]`.
    others: `[P, M - 1, J]`; the most there can be of a node not read.
    elsewhere: `[P, J]`, the most there can be of a node that is not listed.
  """

  root: np.ndarray
  others: np.ndarray
  elsewhere: np.ndarray


def _weigh(trees):
  """Returns the `_Worths` of trees."""
  p, is_read = (np.asarray(x)[..., None] for x in (trees.p, trees.is_read))
  worths = p * np.where(is_read, trees.notes, _HIGHEST)
  return _Worths(worths[:, 0], worths[:, 1:], p[:, -1] * _HIGHEST)


def _select(worths, is_used):
  """Returns those of some places."""
  return _Worths(*(values[is_used] for values in worths))


def _progress(prices, worths, capacity):
  """Returns `r - (V - 1)_+` at each place."""
  value = np.minimum(
    _dearest(prices, worths, capacity) @ prices, _ceilings(capacity) @ prices
  )
  return worths.root @ prices - np.maximum(value - 1.0, 0.0)


def _fit(worths, capacity):
  """Returns the better of the best prices by trees and of one note alone."""
  single = np.diag(1.0 / _ceilings(capacity))
  shown = lambda prices: np.sum(_progress(prices, worths, capacity))
  return max([_fit_to_trees(worths, capacity), *single], key=shown)


def _fit_to_trees(worths, capacity):
  """Returns the best prices `[J]` where trees bound what a call earns."""
  num_places, num_notes = worths.root.shape
  # Variables: the prices, then the excess at each place.
  gain = np.sum(worths.root, axis=0, dtype=float)
  costs = np.concatenate([-gain, np.ones(num_places)])
  excess = -sparse.eye_array(num_places, format='csr')
  # Worth of a choice of nodes, less the excess: at most 1.
  choices, of_places = [], []
  prices, places = 1.0 / capacity / _HIGHEST, np.arange(num_places)
  for _ in range(_MAX_ROUNDS):
    choices.append(_dearest(prices, worths, capacity)[places])
    of_places.append(excess[places])
    solution = optimize.linprog(
      costs,
      A_ub=sparse.hstack([np.concatenate(choices), sparse.vstack(of_places)]),
      b_ub=np.ones(sum(map(len, choices))),
    )
    if solution.x is None:
      raise RuntimeError(f'expected prices, got: {solution.message}')
    prices, excesses = np.split(solution.x, [num_notes])
    values = _dearest(prices, worths, capacity) @ prices
    places = np.flatnonzero(values - 1.0 > excesses + _TOLERANCE)
    if not len(places):
      break
  return prices


def _ceilings(capacity):
  """Returns `[J]`, what a call earns at most of each note."""
  return np.array([capacity, *np.log1p(capacity * np.array(SURPLUSES))])


def _dearest(prices, worths, capacity):
  """Returns `[P, J]`, the sum over the N dearest nodes, the root among them.

  Nodes that are not listed stand in where they might be dearer.
  """
  known = worths.others @ prices
  order = np.argsort(-known, axis=1)[:, : capacity - 1]
  least = (worths.elsewhere @ prices)[:, None]
  is_taken = np.take_along_axis(known, order, axis=1) > least
  taken = np.take_along_axis(worths.others, order[..., None], axis=1)
  num_left = capacity - 1 - np.sum(is_taken, axis=1)
  return (
    worths.root
    + np.sum(taken * is_taken[..., None], axis=1)
    + num_left[:, None] * worths.elsewhere
  )
