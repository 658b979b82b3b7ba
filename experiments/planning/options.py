"""The flag that both mains have; defined by the one that runs."""

import sys
from collections.abc import Sequence

from absl import flags

from experiments import number_flags

FLAGS = flags.FLAGS


def define_batches(default: Sequence[int]) -> None:
  """Defines `--batches`, before `common.run`.

  Args:
    default: rows that share a pass.
  """
  number_flags.define_integers('batches', default, 'Rows that share a pass.')
  FLAGS.register_key_flag_for_module(sys.argv[0], FLAGS['batches'])
