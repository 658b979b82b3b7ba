"""Tokens a second against chips: what slices of TPUs reach, on paper.

Claim: how a slice is best split, into copies of a model and groups of chips
that share one copy out, changes with the chips, the model and the rows in
flight; the links between chips limit what a wider group wins.

  launch/run.sh scaling                   Llama-3.1-8B and 3.3-70B on v5e of up
                                          to 16 chips and v5p of up to 32, with
                                          a published drafter
  launch/run.sh scaling --curves=results/speed_of_light/RUN/record.json
  launch/run.sh scaling --slices=v6e:64 --batches=8,512 --context=4096

All of it is a FORECAST: pass times are those of data sheets, the bytes that
chips send one another included, which no program reaches.  What trees win comes
from the same sources as in `plan`.

Chips are counted, as JAX counts devices, and not TensorCores, as Google's name
of a slice does for v5p: a v5p-32 has 32 TensorCores in 16 chips.  So v5p goes
up to 32 chips here, which is a v5p-64, and a v5p-32 is the row of 16.

`--batches` are rows in flight on all chips together, so that ways to split the
same chips serve the same traffic.

Writes results/scaling/<run>/: figure.png and figure.pdf, and record.json with
every way that fits, and those that do not.
"""

from collections.abc import Sequence

from absl import flags

from experiments import common, records
from experiments.planning import (
  drafting,
  groups,
  options,
  scaling_report,
  scaling_rows,
)
from specjax.theory import hardware

FLAGS = flags.FLAGS

_SLICES = flags.DEFINE_list(
  'slices',
  ['v5e:16', 'v5p:32'],
  f'CHIP:NUMBER of chips at most, of {", ".join(hardware.PRESETS)}; every '
  'power of 2 up to it is looked at.',
)
_HOP = flags.DEFINE_float(
  'hop_us',
  None,
  'Microseconds from a chip to the next, however little is sent; see '
  'theory.hardware if none.',
  lower_bound=0,
)

NAME = 'scaling'


def main():
  """Works out every way, writes, and says what came out."""
  drafts = drafting.of_flags()
  ways = all_ways(parse_slices(_SLICES.value))
  record = records.new_record(NAME, common.flag_values())
  table, left_out = [], []
  for way in ways:
    for batch in FLAGS.batches:
      row = scaling_rows.row_of(way, batch, FLAGS.capacities, drafts.plan)
      if row is None:
        left_out.append(scaling_rows.key_of(way, batch))
      else:
        table.append(row)
  if not table:
    raise ValueError(
      'expected --slices with room for some of --batches='
      f'{",".join(map(str, FLAGS.batches))}, got {",".join(_SLICES.value)}'
    )
  folder = common.open_run(NAME)
  records.finish_record(
    folder,
    record,
    scaling_rows.mark_best(table),
    left_out=left_out,
    basis=drafts.basis,
  )
  scaling_report.show(records.load_record(folder / 'record.json'), folder)


def all_ways(slices: dict[str, int]) -> list[scaling_rows.Way]:
  """Returns all ways to split all slices, by the flags.

  Args:
    slices: most chips by the name of one.

  Raises:
    ValueError: an unknown model.
  """
  ways = []
  for model in FLAGS.model_presets:
    for name, most in slices.items():
      chip = hardware.PRESETS[name]
      if _HOP.value is not None:
        chip = chip._replace(hop=1e-6 * _HOP.value)
      for num_chips in scaling_rows.powers(most):
        for size in scaling_rows.powers(num_chips):
          group = groups.make(
            model,
            chip,
            size,
            context=FLAGS.context,
            weight_bytes=FLAGS.weight_bytes,
            overhead=1e-3 * FLAGS.overhead_ms,
          )
          ways.append(scaling_rows.Way(model, name, num_chips, group))
  return ways


def parse_slices(entries: Sequence[str]) -> dict[str, int]:
  """Returns the entries of `--slices`: most chips by the name of one.

  Args:
    entries: such as `v5e:16`.

  Raises:
    ValueError: an unknown chip, or no number of at least 1.
  """
  slices = {}
  for entry in entries:
    name, _, count = entry.partition(':')
    if name not in hardware.PRESETS or not (count.isdecimal() and int(count)):
      raise ValueError(
        'expected --slices such as v5e:16, of chips of '
        f'{", ".join(hardware.PRESETS)}, got {entry!r}'
      )
    slices[name] = int(count)
  return slices


if __name__ == '__main__':
  options.define_batches([1, 64], 'Rows in flight on all chips together.')
  options.define_forecast()
  drafting.define()
  common.run(main, shared=['temperature', 'capacities', 'seed'])
