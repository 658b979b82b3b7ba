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

import pathlib

from absl import flags

from experiments import common, records
from experiments.planning import cases as cases_lib
from experiments.planning import (
  drafting,
  options,
  plan_report,
  sources,
  tables,
)
from specjax.theory import hardware

FLAGS = flags.FLAGS

_LATENCY = flags.DEFINE_string(
  'latency', None, 'record.json of latency; --hardware if none.'
)
_HARDWARE = flags.DEFINE_list(
  'hardware',
  ['v5e', 'v5p', 'h100', 'h200'],
  f'Chips, of {", ".join(hardware.PRESETS)}.',
)
_CHIPS = flags.DEFINE_integer(
  'num_chips', None, 'That share a model; as few as hold it if none.', 1
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


def main():
  """Plans, writes, and says what came out."""
  drafts = drafting.of_flags()
  cases = all_cases()
  folder = common.open_run(NAME)
  record = records.new_record(NAME, common.flag_values())
  table, surface, left_out = [], [], []
  for case in cases:
    for batch in sorted({*FLAGS.batches, *_SURFACE_BATCHES}):
      times = case.times_fn(batch)
      if times is None:
        left_out.append(tables.key_of(case, batch))
        continue
      found = drafts.plan(times)
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
    basis=drafts.basis,
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
    return [cases_lib.of_record(record, FLAGS.context, _PRICE.value)]
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
    FLAGS.model_presets,
    {k: hardware.PRESETS[k]._replace(**own) for k in _HARDWARE.value},
    FLAGS.capacities,
    context=FLAGS.context,
    weight_bytes=FLAGS.weight_bytes,
    num_chips=_CHIPS.value,
    overhead=1e-3 * FLAGS.overhead_ms,
  )


if __name__ == '__main__':
  options.define_batches([1, 32])
  options.define_forecast()
  drafting.define()
  common.run(main, shared=['temperature', 'capacities', 'seed'])
