"""What drafting wins, as flags say it: curves, moments or acceptance rates.

Flags are defined by the main that reads them, before `common.run`, so that a
test may import all experiments.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

from absl import flags

from experiments import common
from experiments.planning import sources
from specjax.theory import pass_times, planner, profiles

FLAGS = flags.FLAGS

# The chance that the child of each rank is the accepted one: the published
# vector of Sequoia (Chen et al. 2024, arXiv 2402.12374), for a drafter of 68M
# and a verifier of 13B parameters at temperature 0.6.
PUBLISHED_RATES = (
  '0.6342,0.1079,0.0570,0.0225,0.0195,0.0150,0.0045,0.0030,0.0120,0.0045,'
  '0.0075,0.0045,0.0060,0.0030,0.0015,0.0030,0.0015,0.0030,0,0.0030,0.0030,'
  '0.0030,0,0.0015,0,0.0015,0,0,0,0.0015,0.0015,0.0015'
)
# That of `of_rates`.
_DRAFTER = 'drafter'


# From pass times to the candidates.
ProfileFn = Callable[[pass_times.PassTimes], profiles.Profile]


class Drafting(NamedTuple):
  """What there is to choose from.

  Attributes:
    profile_fn: from pass times to the candidates.
    limit: what none of them exceeds, None where nothing is known.
    basis: words for both.
  """

  profile_fn: ProfileFn
  limit: profiles.Profile | None
  basis: str

  def plan(self, times: pass_times.PassTimes) -> planner.Plan:
    """Returns the best candidate.

    Args:
      times: of passes of one batch.
    """
    return planner.plan(
      times,
      sources.within(self.profile_fn(times), times),
      self.limit and sources.within(self.limit, times),
    )


def define() -> None:
  """Defines the flags, as flags of the main that runs."""
  with common.flags_of_main():
    flags.DEFINE_string(
      'curves', None, 'record.json of speed_of_light or acceptance.'
    )
    flags.DEFINE_float('mu', None, 'Mean entropy of the laws, nats.')
    flags.DEFINE_float('mu2', None, 'Mean squared surprisal, nats squared.')
    flags.DEFINE_list(
      'rates',
      PUBLISHED_RATES,
      'Chance that a child is accepted, by its rank.',
    )
    flags.DEFINE_list(
      'draft_costs',
      [f'{_DRAFTER}:0.03'],
      'NAME:SHARE of a plain pass that a level of the trees of a drafter '
      f'takes; {_DRAFTER} is that of --rates.',
    )


def of_flags() -> Drafting:
  """Returns what trees win, what none exceeds, and the words for both.

  Raises:
    ValueError: more than one source, half of one, or a bad one.
  """
  costs = sources.parse_costs(FLAGS.draft_costs)
  moments = (FLAGS.mu, FLAGS.mu2)
  if (None in moments) != (moments == (None, None)):
    raise ValueError('expected --mu and --mu2 together, got one of them')
  given = [
    flag
    for flag, is_given in {
      '--curves': FLAGS.curves is not None,
      '--mu': FLAGS.mu is not None,
      '--rates': FLAGS['rates'].present,
    }.items()
    if is_given
  ]
  if len(given) > 1:
    raise ValueError(f'expected one of {" and ".join(given)}, got both')
  if FLAGS.curves:
    return _of_curves(costs)
  if FLAGS.mu is not None:
    return _of_moments(*moments)
  return _of_rates(costs.get(_DRAFTER, 0.0))


def plain_seconds(times: pass_times.PassTimes) -> float:
  """Returns the seconds of a pass of plain decoding."""
  return float(times.seconds.value[0])


def _of_curves(costs):
  record = sources.load_curves(FLAGS.curves, FLAGS.temperature)
  return Drafting(
    lambda times: sources.profile_of(record, plain_seconds(times), costs),
    sources.limit_of(record),
    f'D as {record["experiment"]} measured it on {record["flags"]["model"]} '
    f'at temperature {FLAGS.temperature:g}'
    + ('' if sources.has_chains(record) else ', no chains among them'),
  )


def _of_moments(mu, mu2):
  of = lambda make: make(mu, mu2, FLAGS.capacities)
  return Drafting(
    lambda times: of(profiles.of_moments),
    of(profiles.limit_of_moments),
    f'D of the best trees in the i.i.d. model, mu = {mu:g} and mu2 = '
    f'{mu2:g} nats, drafted for nothing',
  )


def _of_rates(cost):
  try:
    rates = tuple(float(rate) for rate in FLAGS.rates)
  except ValueError as error:
    raise ValueError(f'expected numbers in --rates, {error}') from error
  source = 'given' if FLAGS['rates'].present else 'published (Sequoia)'

  def profile_fn(times):
    unit = _unit_rates(rates, tuple(FLAGS.capacities))
    seconds = cost * plain_seconds(times)
    return unit._replace(draft_seconds=seconds * unit.draft_seconds)

  return Drafting(
    profile_fn,
    None,
    f'D of static trees by {source} acceptance rates, a level of drafting for '
    f'{cost:g} of a plain pass',
  )


@functools.cache
def _unit_rates(rates, capacities):
  """The candidates of rates, a level of drafting for a second."""
  return profiles.of_rates(rates, capacities, 1.0, _DRAFTER)
