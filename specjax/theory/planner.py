"""What to run: the tree and the drafter of most tokens a second.

A batch of `b` rows shares a pass.  An iteration emits `D` tokens in each row
and takes the pass over `N` nodes of a row, `tau(N)`, the drafting of the trees,
`delta`, and the choice of the tokens behind the first, `v(N)` each:

  tokens a second = b D / (tau(N) + delta + v(N) (D - 1)).

Plain decoding, `b / tau(1)`, is always a candidate, so that no plan is slower.
Acceptance decides nothing: a tree that wins many tokens may take longer than
they are worth.

Where `D` is concave in `N`, which it is for the `N` best nodes of any fixed
ranking, and `tau + delta` convex, tokens a second rise up to the best `N` and
fall from there on: `{N : D(N) >= x (tau(N) + delta(N))}` is an interval for
every x.  Measured times are often staircases, which are not convex, so that all
candidates are looked at.
"""

from typing import NamedTuple

import numpy as np

from specjax.theory import pass_times, resample
from specjax.theory import profiles as profiles_lib

PLAIN = 'plain'


class Choice(NamedTuple):
  """One candidate and what is predicted of it.

  Attributes:
    name: of drafter and tree, or `PLAIN`.
    num_nodes: `N`.
    tokens: `D`.
    seconds: of an iteration.
    rate: tokens a second of the whole batch, with an interval.
    speedup: of the rate over that of plain decoding, with an interval.
  """

  name: str
  num_nodes: int
  tokens: float
  seconds: float
  rate: resample.Interval
  speedup: resample.Interval


class Plan(NamedTuple):
  """What to run, and what it was compared with.

  Attributes:
    best: the candidate of most tokens a second; plain decoding on a tie.
    plain: plain decoding.
    choices: all candidates, plain decoding included, the fastest first.
    ceiling: where the limit allows most tokens a second, of all sizes that it
      is given for; None without a limit.
  """

  best: Choice
  plain: Choice
  choices: tuple[Choice, ...]
  ceiling: Choice | None


def plan(
  times: pass_times.PassTimes,
  profile: profiles_lib.Profile,
  limit: profiles_lib.Profile | None = None,
) -> Plan:
  """Finds the candidate of most tokens a second; see the head of this file.

  Errors of `D` and of times are independent, so that their intervals add in
  squares on the logarithmic scale.

  Args:
    times: of passes of one batch.
    profile: the candidates, their sizes among those of the times.
    limit: what no deterministic tree exceeds, by size.

  Returns:
    The plan.

  Raises:
    ValueError: sizes outside of the times, `D` outside of [1, N], or columns of
      a profile that differ in length.
  """
  one = resample.Interval(*3 * (np.ones(1),))
  alone = profiles_lib.Profile((PLAIN,), np.ones(1, int), one, np.zeros(1))
  [plain] = _judge(times, alone)
  plain = plain._replace(speedup=resample.Interval(1.0, 1.0, 1.0))
  # Sorting is stable: plain decoding comes first on a tie.
  choices = sorted([plain, *_judge(times, profile)], key=_slowness)
  limits = [] if limit is None else _judge(times, limit)
  return Plan(
    best=choices[0],
    plain=plain,
    choices=tuple(choices),
    ceiling=min(limits, key=_slowness, default=None),
  )


def price_per_million(rate: float, price_per_hour: float) -> float:
  """Returns what a million tokens cost, in the currency of the price.

  Args:
    rate: tokens a second.
    price_per_hour: of the whole machine.
  """
  return 1e6 * price_per_hour / (3600 * rate)


def _judge(times, profile):
  """Returns the choices of a profile, in its order."""
  _check(profile)
  won = profile.tokens
  passes, visits = pass_times.at(times, profile.num_nodes)
  [plain] = np.stack(pass_times.at(times, np.ones(1))[0], axis=1)

  def seconds(tokens, of_pass):
    return of_pass + profile.draft_seconds + visits * (tokens - 1)

  rate = lambda tokens, of_pass: times.batch * tokens / seconds(tokens, of_pass)
  rates = rate(won.value, passes.value)
  errors = [
    (rate(won.low, passes.value) / rates, rate(won.high, passes.value) / rates),
    (rate(won.value, passes.high) / rates, rate(won.value, passes.low) / rates),
  ]
  of_plain = (plain[1] / plain[0], plain[2] / plain[0])
  columns = (
    profile.names,
    profile.num_nodes.tolist(),
    won.value.tolist(),
    seconds(won.value, passes.value).tolist(),
    _rows(rates, errors),
    _rows(rates * plain[0] / times.batch, [*errors, of_plain]),
  )
  return [Choice(*row) for row in zip(*columns, strict=True)]


def _rows(values, errors):
  """Returns intervals, row by row, from factors `(low, high)` on the values."""
  spread = lambda end: np.sqrt(sum(np.log(e[end]) ** 2 for e in errors))
  ends = (values, values * np.exp(-spread(0)), values * np.exp(spread(1)))
  return [resample.Interval(*row) for row in np.stack(ends, axis=1).tolist()]


def _slowness(choice):
  return -choice.rate.value


def _check(profile):
  sizes = {
    len(profile.names),
    *map(len, (profile.num_nodes, *profile.tokens, profile.draft_seconds)),
  }
  if len(sizes) > 1:
    raise ValueError(f'expected columns of one length, got {sorted(sizes)}')
  value = profile.tokens.value
  # Rounding of sums of probabilities.
  wrong = (value < 1 - 1e-6) | (value > profile.num_nodes * (1 + 1e-6))
  if np.any(wrong):
    at = int(np.argmax(wrong))
    raise ValueError(
      'expected from 1 to N tokens an iteration, got '
      f'{value[at]} at N = {profile.num_nodes[at]}'
    )
