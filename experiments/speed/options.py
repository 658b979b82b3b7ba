"""Flags of `speedup`, which other experiments have of the same names."""

import pathlib

from absl import flags

from experiments import common, model_flags, records
from experiments.planning import sources
from experiments.speed import beside, forecast

FLAGS = flags.FLAGS


def define() -> None:
  """Defines the flags, before `common.run`."""
  with common.flags_of_main():
    flags.DEFINE_integer(
      'rounds', 15, 'Each runs every way once.', lower_bound=2
    )
    flags.DEFINE_boolean(
      'adaptive', True, 'Whether sizes are also chosen in each iteration.'
    )
    flags.DEFINE_string(
      'latency', None, 'record.json of latency, to predict speed-ups from.'
    )
    flags.DEFINE_list(
      'draft_costs',
      [],
      'NAME:SHARE of a plain pass that a level of the trees of NAME takes.',
    )
    flags.DEFINE_list(
      'beside', [], f'Libraries that take part, of {", ".join(beside.NAMES)}.'
    )
    flags.register_validator(
      'beside',
      lambda names: set(names) <= set(beside.NAMES),
      f'expected some of {", ".join(beside.NAMES)}',
    )


def check() -> None:
  """Refuses flags that do not go together.

  Raises:
    ValueError: plain decoding alone, pass times for several temperatures, or
      another library where it cannot take part.
  """
  if FLAGS.capacities == [1]:
    raise ValueError('expected --capacities above 1, got plain decoding alone')
  if FLAGS.latency and len(FLAGS.temperatures) > 1:
    raise ValueError(
      f'expected one of --temperatures with --latency, got {FLAGS.temperatures}'
    )
  if FLAGS.beside and (FLAGS.batch_size, FLAGS.temperatures) != (1, [0]):
    raise ValueError(
      'expected --batch_size=1 and --temperatures=0 with --beside, got '
      f'{FLAGS.batch_size} and {FLAGS.temperatures}'
    )


def machine() -> forecast.Machine | None:
  """Returns the machine that plans are made for, None without its pass times.

  Raises:
    ValueError: times of another model or temperature, or a bad record.
  """
  if not FLAGS.latency:
    return None
  [temperature] = FLAGS.temperatures
  of_model = {name: FLAGS[name].value for name in model_flags.SHARED_FLAGS}
  return forecast.of_record(
    records.load_record(pathlib.Path(FLAGS.latency), sources.LATENCY_COLUMNS),
    of_model | {'temperature': temperature},
    sources.parse_costs(FLAGS.draft_costs),
  )
