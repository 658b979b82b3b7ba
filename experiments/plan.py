"""What to run: which drafter and tree, of how many nodes, and what it costs.

Claim: what is worth drafting follows from what a pass costs and what trees win,
and it changes with the machine and with the batch.

  launch/run.sh plan                      Llama-3.1-8B and 3.3-70B on v5e, v5p,
                                          H100 and H200, a published drafter
  launch/run.sh plan --curves=results/speed_of_light/RUN/record.json
  launch/run.sh plan --mu=2.1 --mu2=10.8  the best trees, in the i.i.d. model
  launch/run.sh plan --latency=results/latency/RUN/record.json \\
    --curves=results/acceptance/RUN/record.json --temperature=0 --context=256

Pass times come from a record of `latency`, or from data sheets: then they are
a forecast, which no program reaches.  What trees win comes from a record of
`speed_of_light` or `acceptance`, from acceptance rates by rank, or from two
moments of the verifier's laws.

Writes results/plan/<run>/: figure.png and figure.pdf, and record.json with the
table.
"""

import functools
import pathlib
from collections.abc import Callable

from absl import flags

from experiments import common, records
from experiments.planning import cases as cases_lib
from experiments.planning import options, plan_report, sources, tables
from specjax.theory import hardware, pass_times, planner, profiles

FLAGS = flags.FLAGS

# The chance that the child of each rank is the accepted one: the published
# vector of Sequoia (Chen et al. 2024, arXiv 2402.12374), for a drafter of 68M
# and a verifier of 13B parameters at temperature 0.6.
_PUBLISHED_RATES = (
  '0.6342,0.1079,0.0570,0.0225,0.0195,0.0150,0.0045,0.0030,0.0120,0.0045,'
  '0.0075,0.0045,0.0060,0.0030,0.0015,0.0030,0.0015,0.0030,0,0.0030,0.0030,'
  '0.0030,0,0.0015,0,0.0015,0,0,0,0.0015,0.0015,0.0015'
)
# That of `of_rates`.
_DRAFTER = 'drafter'

_LATENCY = flags.DEFINE_string(
  'latency', None, 'record.json of latency; --hardware if none.'
)
_HARDWARE = flags.DEFINE_list(
  'hardware',
  ['v5e', 'v5p', 'h100', 'h200'],
  f'Chips, of {", ".join(hardware.PRESETS)}.',
)
_MODELS = flags.DEFINE_list(
  'model_presets', ['llama-3.1-8b', 'llama-3.3-70b'], 'Models on these chips.'
)
_CURVES = flags.DEFINE_string(
  'curves', None, 'record.json of speed_of_light or acceptance.'
)
_MU = flags.DEFINE_float('mu', None, 'Mean entropy of the laws, nats.')
_MU2 = flags.DEFINE_float('mu2', None, 'Mean squared surprisal, nats squared.')
_RATES = flags.DEFINE_list(
  'rates', _PUBLISHED_RATES, 'Chance that a child is accepted, by its rank.'
)
_DRAFT_COSTS = flags.DEFINE_list(
  'draft_costs',
  [f'{_DRAFTER}:0.03'],
  'NAME:SHARE of a plain pass that a level of the trees of a drafter takes; '
  f'{_DRAFTER} is that of --rates.',
)
_CONTEXT = flags.DEFINE_integer(
  'context', 1024, 'Tokens of each row.', lower_bound=1
)
_WEIGHT_BYTES = flags.DEFINE_float(
  'weight_bytes', 2.0, 'Of one weight.', lower_bound=0.1
)
_CHIPS = flags.DEFINE_integer(
  'num_chips', None, 'That share a model; as few as hold it if none.', 1
)
_OVERHEAD = flags.DEFINE_float(
  'overhead_ms', 0.0, 'Of a pass, beside what data sheets say.', lower_bound=0
)
_BANDWIDTH = flags.DEFINE_float(
  'bandwidth_gbs',
  None,
  'Of the memory of a chip, GB/s; its data sheet if none.',
)
_PEAK = flags.DEFINE_float(
  'peak_tflops', None, 'Of a chip, TFLOP/s; its data sheet if none.'
)
_PRICE = flags.DEFINE_float(
  'chip_price', None, 'US dollars a chip and hour; see theory.hardware if none.'
)

NAME = 'plan'

# Rows that the figure looks at, beside those of --batches.
_SURFACE_BATCHES = tuple(2**i for i in range(9))

# From pass times to the candidates.
ProfileFn = Callable[[pass_times.PassTimes], profiles.Profile]


def main():
  """Plans, writes, and says what came out."""
  profile_fn, limit, basis = drafting()
  cases = all_cases()
  folder = records.open_run(FLAGS.results_dir, NAME, FLAGS.run_name)
  record = records.new_record(NAME, common.flag_values())
  table, surface, left_out = [], [], []
  for case in cases:
    for batch in sorted({*FLAGS.batches, *_SURFACE_BATCHES}):
      times = case.times_fn(batch)
      if times is None:
        left_out.append(tables.key_of(case, batch))
        continue
      found = planner.plan(
        times,
        sources.within(profile_fn(times), times),
        limit and sources.within(limit, times),
      )
      surface += tables.surface_of(case, batch, found)
      if batch in FLAGS.batches:
        table.append(tables.row_of(case, batch, found))
  if not table:
    raise ValueError(
      'expected --batches for which there is room or which were measured, got '
      f'{FLAGS.batches}'
    )
  records.finish_record(
    folder,
    record,
    table,
    surface=surface,
    left_out=[row for row in left_out if row['batch'] in FLAGS.batches],
    basis=basis,
  )
  plan_report.show(records.load_record(folder / 'record.json'), folder)


def all_cases() -> list[cases_lib.Case]:
  """Returns what is planned for, by the flags.

  Raises:
    ValueError: an unknown chip or model, one chip's numbers for several, or
      times of another temperature.
  """
  if _LATENCY.value:
    record = records.load_record(
      pathlib.Path(_LATENCY.value), sources.LATENCY_COLUMNS
    )
    measured_at = record['flags']['temperature']
    if measured_at != FLAGS.temperature:
      # Every node that is visited costs noise there, and none at 0.
      raise ValueError(
        f'expected pass times at --temperature={FLAGS.temperature:g}, got '
        f'{_LATENCY.value}, measured at {measured_at:g}'
      )
    return [cases_lib.of_record(record, _CONTEXT.value, _PRICE.value)]
  for name in _HARDWARE.value:
    if name not in hardware.PRESETS:
      raise ValueError(
        f'expected --hardware of {", ".join(hardware.PRESETS)}, got {name!r}'
      )
  own = {
    'bandwidth': _BANDWIDTH.value and 1e9 * _BANDWIDTH.value,
    'peak': _PEAK.value and 1e12 * _PEAK.value,
    'price': _PRICE.value,
  }
  own = {name: value for name, value in own.items() if value is not None}
  if own and len(_HARDWARE.value) > 1:
    raise ValueError(
      f'expected one chip for your own {", ".join(own)}, got '
      f'{",".join(_HARDWARE.value)}'
    )
  return cases_lib.of_presets(
    _MODELS.value,
    {k: hardware.PRESETS[k]._replace(**own) for k in _HARDWARE.value},
    FLAGS.capacities,
    context=_CONTEXT.value,
    weight_bytes=_WEIGHT_BYTES.value,
    num_chips=_CHIPS.value,
    overhead=1e-3 * _OVERHEAD.value,
  )


def drafting() -> tuple[ProfileFn, profiles.Profile | None, str]:
  """Returns what trees win, what none exceeds, and the words for both.

  Raises:
    ValueError: more than one source, half of one, or a bad one.
  """
  costs = sources.parse_costs(_DRAFT_COSTS.value)
  moments = (_MU.value, _MU2.value)
  if (None in moments) != (moments == (None, None)):
    raise ValueError('expected --mu and --mu2 together, got one of them')
  given = [
    flag
    for flag, is_given in {
      '--curves': _CURVES.value is not None,
      '--mu': _MU.value is not None,
      '--rates': FLAGS['rates'].present,
    }.items()
    if is_given
  ]
  if len(given) > 1:
    raise ValueError(f'expected one of {" and ".join(given)}, got both')
  if _CURVES.value:
    record = sources.load_curves(_CURVES.value, FLAGS.temperature)
    return (
      lambda times: sources.profile_of(record, plain_seconds(times), costs),
      sources.limit_of(record),
      f'D as {record["experiment"]} measured it on {record["flags"]["model"]} '
      f'at temperature {FLAGS.temperature:g}'
      + ('' if sources.has_chains(record) else ', no chains among them'),
    )
  if _MU.value is not None:
    of = lambda make: make(*moments, FLAGS.capacities)
    return (
      lambda times: of(profiles.of_moments),
      of(profiles.limit_of_moments),
      f'D of the best trees in the i.i.d. model, mu = {moments[0]:g} and mu2 = '
      f'{moments[1]:g} nats, drafted for nothing',
    )
  try:
    rates = [float(rate) for rate in _RATES.value]
  except ValueError as error:
    raise ValueError(f'expected numbers in --rates, {error}') from error
  cost = costs.get(_DRAFTER, 0.0)
  source = 'given' if FLAGS['rates'].present else 'published (Sequoia)'
  return (
    lambda times: _of_rates(tuple(rates), cost * plain_seconds(times)),
    None,
    f'D of static trees by {source} acceptance rates, a level of drafting for '
    f'{cost:g} of a plain pass',
  )


def plain_seconds(times: pass_times.PassTimes) -> float:
  """Returns the seconds of a pass of plain decoding."""
  return float(times.seconds.value[0])


@functools.cache
def _unit_rates(rates, capacities):
  """The candidates of rates, a level of drafting for a second."""
  return profiles.of_rates(rates, capacities, 1.0, _DRAFTER)


def _of_rates(rates, level_seconds):
  unit = _unit_rates(rates, tuple(FLAGS.capacities))
  return unit._replace(draft_seconds=level_seconds * unit.draft_seconds)


if __name__ == '__main__':
  options.define_batches([1, 32])
  common.run(main, shared=['temperature', 'capacities', 'seed'])
