"""Flags that say which devices and hosts share the work of an experiment.

They say how results come about, not what they are: a run may be taken up with
others.
"""

from collections.abc import Callable

from absl import flags

from experiments import common
from specjax import hosts, parallel

FLAGS = flags.FLAGS


def define() -> None:
  """Defines them, as flags of the main that runs."""
  with common.flags_of_main():
    flags.DEFINE_enum(
      'parallel',
      'none',
      ['none', *parallel.MODES],
      'How the devices of a host share out the rows of a batch; one device if '
      'none.',
    )
    flags.DEFINE_integer(
      'model_devices',
      1,
      'Devices that share out one copy of the model, with '
      '--parallel=shard_map.',
      lower_bound=1,
    )
    flags.DEFINE_string(
      'coordinator',
      None,
      'HOST:PORT of the first of several hosts that share out the batches, or '
      'auto where the environment tells; one host if none.',
    )
    flags.DEFINE_integer('num_hosts', None, 'How many hosts.', lower_bound=1)
    flags.DEFINE_integer('host', None, 'Which of them, from 0.', lower_bound=0)


def with_layout(
  main: Callable[[parallel.Layout | None], None],
) -> Callable[[], None]:
  """Returns a main that is given the devices, and joins other hosts before.

  Args:
    main: told the devices of this host that share out rows; None for one
      device.
  """

  def joined_main():
    if FLAGS.coordinator is None:
      main(_layout())
      return
    if FLAGS.run_name is None:
      raise ValueError('expected a --run_name for several hosts, got none')
    is_told = FLAGS.coordinator != 'auto'
    hosts.join(
      FLAGS.coordinator if is_told else None, FLAGS.num_hosts, FLAGS.host
    )
    try:
      main(_layout())
      hosts.wait_for_all()
    except (ValueError, OSError):
      hosts.leave_at_once(2)  # the code of a mistake, see `common.run`
      raise

  return joined_main


def _layout():
  if FLAGS.parallel == 'none':
    if FLAGS.model_devices > 1:
      raise ValueError(
        'expected --parallel=shard_map with --model_devices='
        f'{FLAGS.model_devices}, got none'
      )
    return None
  return parallel.make_layout(FLAGS.parallel, FLAGS.model_devices)
