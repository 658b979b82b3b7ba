"""Flags that several of these mains have; defined by the one that runs."""

from collections.abc import Sequence

from absl import flags

from experiments import common, number_flags


def define_batches(
  default: Sequence[int], text: str = 'Rows that share a pass.'
) -> None:
  """Defines `--batches`, before `common.run`.

  Args:
    default: numbers of rows.
    text: what they are.
  """
  with common.flags_of_main():
    number_flags.define_integers('batches', default, text)


def define_forecast() -> None:
  """Defines the flags of forecasts by data sheets, before `common.run`."""
  with common.flags_of_main():
    flags.DEFINE_list(
      'model_presets',
      ['llama-3.1-8b', 'llama-3.3-70b'],
      'Models on these chips.',
    )
    flags.DEFINE_integer('context', 1024, 'Tokens of each row.', lower_bound=1)
    flags.DEFINE_float('weight_bytes', 2.0, 'Of one weight.', lower_bound=0.1)
  define_overhead()


def define_overhead() -> None:
  """Defines `--overhead_ms`, before `common.run`."""
  with common.flags_of_main():
    flags.DEFINE_float(
      'overhead_ms',
      0.0,
      'Of a pass, beside what data sheets say.',
      lower_bound=0,
    )
