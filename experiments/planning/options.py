"""The flag that both mains have; defined by the one that runs."""

from collections.abc import Sequence

from experiments import common, number_flags


def define_batches(default: Sequence[int]) -> None:
  """Defines `--batches`, before `common.run`.

  Args:
    default: rows that share a pass.
  """
  with common.flags_of_main():
    number_flags.define_integers('batches', default, 'Rows that share a pass.')
