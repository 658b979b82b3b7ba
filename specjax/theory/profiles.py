"""What ways to draft win, by the nodes of a tree: what plans are made of.

Measured curves are put into a `Profile` as they are; here are those that follow
from acceptance rates, or from two moments of the verifier's laws.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from specjax.theory import iid_bounds, resample
from specjax.trees import sequoia, shapes


class Profile(NamedTuple):
  """What ways to draft win, a candidate a row; or what no way can exceed.

  Attributes:
    names: `[M]` of drafter and tree.
    num_nodes: `[M]`, `N`.
    tokens: `[M]` each, `D` with an interval.
    draft_seconds: `[M]`, to draft the trees of all rows of a batch.
  """

  names: tuple[str, ...]
  num_nodes: np.ndarray
  tokens: resample.Interval
  draft_seconds: np.ndarray


def join(profiles: Sequence[Profile]) -> Profile:
  """Puts candidates together.

  Args:
    profiles: one or more.
  """
  put = lambda columns: np.concatenate([np.asarray(x) for x in columns])
  return Profile(
    names=sum((profile.names for profile in profiles), ()),
    num_nodes=put(profile.num_nodes for profile in profiles),
    tokens=resample.Interval(
      *map(put, zip(*(profile.tokens for profile in profiles), strict=True))
    ),
    draft_seconds=put(profile.draft_seconds for profile in profiles),
  )


def of_rates(
  rates: Sequence[float],
  num_nodes: Sequence[int],
  level_seconds: float,
  drafter: str = 'drafter',
) -> Profile:
  """Returns what static trees win where every rank has one acceptance rate.

  For every size the chain, and for every depth the tree of most expected
  tokens, of `sequoia`: no static tree of that size and depth wins more.

  Args:
    rates: acceptance probability of each rank, in [0, 1], of sum at most 1.
    num_nodes: `[C]` sizes, each at least 1.
    level_seconds: what a level of a tree costs the drafter.
    drafter: its name.

  Returns:
    The candidates; their `D` is exact for these rates.

  Raises:
    ValueError: a size or rates that `sequoia.solve` refuses.
  """
  programme = sequoia.solve(max(num_nodes), rates)
  names, sizes, tokens, levels = [], [], [], []

  def offer(tree, size, won, depth):
    names.append(f'{drafter}, {tree}')
    sizes.append(size)
    tokens.append(won)
    levels.append(depth)

  for size in num_nodes:
    chain = shapes.expected_tokens(shapes.chain(size), _falling(rates))
    offer('chain', size, chain, size - 1)
    most = -np.inf
    for depth, value in enumerate(programme.values[:, size]):
      if value > most:  # Otherwise the tree is no deeper than the one before.
        offer(f'tree of depth {depth}', size, value, depth)
      most = value
  won = np.array(tokens)
  return Profile(
    tuple(names),
    np.array(sizes),
    resample.Interval(won, won, won),
    level_seconds * np.array(levels, float),
  )


def of_moments(mu: float, mu2: float, num_nodes: Sequence[int]) -> Profile:
  """Returns what the best trees win in the i.i.d. model, from two moments.

  `sharp`, which is an asymptote, within the bounds from below and from above:
  `achievable` and `lorden_dual` are its interval.  As if the verifier drafted
  for itself, and for nothing.

  Args:
    mu: mean entropy of the next-token laws, nats.
    mu2: mean squared surprisal, nats squared.
    num_nodes: `[C]` sizes.

  Raises:
    ValueError: moments that no law has: `mu` below 0 or `mu2` below `mu^2`.
  """
  _check_moments(mu, mu2)
  sizes = np.asarray(num_nodes)
  of = lambda bound: np.asarray(bound(mu, mu2, sizes.astype(float)), float)
  high = of(iid_bounds.lorden_dual)
  low = np.minimum(of(iid_bounds.achievable), high)
  value = np.clip(of(iid_bounds.sharp), low, high)
  return _free('best trees', sizes, resample.Interval(value, low, high))


def limit_of_moments(
  mu: float, mu2: float, num_nodes: Sequence[int]
) -> Profile:
  """Returns what no tree exceeds in the i.i.d. model: `lorden_dual`.

  Args:
    mu: mean entropy of the next-token laws, nats.
    mu2: mean squared surprisal, nats squared.
    num_nodes: `[C]` sizes.

  Raises:
    ValueError: moments that no law has: `mu` below 0 or `mu2` below `mu^2`.
  """
  high = of_moments(mu, mu2, num_nodes).tokens.high
  bound = resample.Interval(high, high, high)
  return _free('i.i.d. limit', np.asarray(num_nodes), bound)


def _falling(rates):
  return np.sort(np.asarray(rates, float))[::-1]


def _free(name, num_nodes, tokens):
  """A profile of one name that costs no drafting."""
  return Profile(
    (name,) * len(num_nodes), num_nodes, tokens, np.zeros(len(num_nodes))
  )


def _check_moments(mu, mu2):
  if not (mu >= 0 and mu2 >= mu**2 * (1 - 1e-6)):
    raise ValueError(
      f'expected mu >= 0 and mu2 >= mu^2, got mu = {mu} and mu2 = {mu2}'
    )
