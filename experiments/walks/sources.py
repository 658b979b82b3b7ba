"""The sources whose best trees `brw_vs_bounds` simulates."""

from typing import NamedTuple

import numpy as np

from specjax.theory import dirichlet, environment, laws


class Source(NamedTuple):
  """A source of texts and how its best trees are found.

  Attributes:
    title: what it is.
    env: the environment of its texts.
    parts: environments of equal shares of its starts.
    is_fixed: one tree says all about a part.
    is_iid: all positions are alike.
  """

  title: str
  env: environment.Environment
  parts: tuple[environment.Environment, ...]
  is_fixed: bool
  is_iid: bool


# A peaked law and a flat one, on 31 tokens.
_UNLIKE = np.array(
  [
    np.append(0.97, np.full(30, 0.001)),
    np.append(laws.uniform(20), np.zeros(11)),
  ]
)
# Chance that the law of a switching source changes after a token.
_SWITCH = 0.02


def make() -> dict[str, Source]:
  """Returns the sources by name."""
  drawn = dirichlet.make(np.full(50, 0.3))
  return {
    'zipf': _one_law('one law: Zipf 1.5 on 50 tokens', laws.zipf(1.5, 50)),
    'peaked': _one_law(
      'one law: 0.85, then 30 tokens of 0.005',
      np.append(0.85, np.full(30, 0.005)),
    ),
    'dirichlet': Source(
      'a new Dirichlet law at every node',
      drawn,
      (drawn,),
      is_fixed=False,
      is_iid=True,
    ),
    'mixture': Source(
      'prompts of two laws: 0.97 peaked, or 20 tokens flat',
      laws.mixture(_UNLIKE),
      tuple(map(laws.fixed, _UNLIKE)),
      is_fixed=True,
      is_iid=False,
    ),
    'switching': Source(
      f'the same two laws, switching in the text with chance {_SWITCH}',
      _switching(np.full(2, 0.5)),
      tuple(map(_switching, np.eye(2))),
      is_fixed=False,
      is_iid=False,
    ),
  }


def _one_law(title, law):
  env = laws.fixed(law)
  return Source(title, env, (env,), is_fixed=True, is_iid=True)


def _switching(initial):
  stay = 1.0 - _SWITCH
  return laws.switching(_UNLIKE, [[stay, _SWITCH], [_SWITCH, stay]], initial)
