"""The flag that both mains have; defined by the one that runs."""

import sys
from collections.abc import Sequence

from absl import flags

from experiments import draft_flags

FLAGS = flags.FLAGS


def define_batches(default: Sequence[int]) -> None:
  """Defines `--batches`, before `common.run`.

  Args:
    default: rows that share a pass.
  """
  flags.DEFINE(
    draft_flags.ListParser(flags.IntegerParser(lower_bound=1)),
    'batches',
    list(default),
    'Rows that share a pass.',
    serializer=flags.ListSerializer(','),
  )
  FLAGS.register_key_flag_for_module(sys.argv[0], FLAGS['batches'])
