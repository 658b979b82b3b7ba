"""What a run costs beside its arithmetic: waiting, and memory.

Claim: the first tokens come within 15 s, a run of decoding takes little memory
beside weights and cache, and a cache costs what its bucket does, not more.

  launch/run.sh bench                     under 8 min on 2 quiet cores
  launch/run.sh bench --quick             under 3 min

Start-up: `speed_of_light --quick` is started with an empty folder of compiled
programs, cold, and again with what was left there, warm; and ended when its
first tokens have come, eight of each row.  Memory: each way to keep the weights
decodes in a process of its own, which compiles its programs.  Step time: the
same `--context` tokens in caches of each size of `--slots`, in turns.  Other
programs on the machine spoil it: look at the spread.

Writes results/bench/<run>/: figure.png and figure.pdf, and record.json with the
table of start-ups and the rows of memory and of steps.
"""

import functools
import itertools
import tempfile
from collections.abc import Mapping

import jax.numpy as jnp
import numpy as np
import tqdm
from absl import flags

from experiments import common, number_flags, records
from experiments.footprint import memory, report, startup, tables
from specjax.checkpoint import resolve
from specjax.decode import latency, prefill
from specjax.llama import storage

FLAGS = flags.FLAGS

NAME = 'bench'

# Iterations of a timed call.
_STEPS = 4


def main():
  """Measures, writes, and says what came out."""
  _check()
  folder = common.open_run(NAME)
  record = records.new_record(NAME, common.flag_values())
  stages = records.Stages(folder, common.flag_values())
  if standing := records.standing(folder):
    print(standing, flush=True)
  stored = list(itertools.product(FLAGS.formats, FLAGS.orders))
  points = list(itertools.product(FLAGS.capacities, sorted(FLAGS.slots)))
  total = FLAGS.starts + len(stored) + len(FLAGS.formats)
  with tqdm.tqdm(total=total, unit='part') as bar:

    def stage(name, compute, *arguments):
      found = stages.arrays(name, functools.partial(compute, *arguments))
      bar.update()
      return found

    starts = [stage(f'start-{n}', start_up) for n in range(FLAGS.starts)]
    taken = [
      tables.memory_row(*how, stage('-'.join(['memory', *how]), take, *how))
      for how in stored
    ]
    steps = []
    for weights in FLAGS.formats:
      found = stage(f'steps-{weights}', time_steps, weights, points)
      order = str(found['order'])
      steps += tables.step_rows(weights, order, points, found['seconds'])
  records.finish_record(
    folder,
    record,
    tables.start_rows(starts),
    memory=taken,
    steps=steps,
    num_slots=bucket(FLAGS.context, FLAGS.max_new_tokens, FLAGS.max_length),
  )
  report.show(records.load_record(folder / 'record.json'), folder)


def start_up() -> dict[str, np.ndarray]:
  """Starts the main job cold and warm.

  Returns:
    Start of `tables.STARTS` -> seconds up to each mark of `startup.MARKS`.
  """
  given = {name: FLAGS[name].value for name in ('model', 'prompts')}
  arguments = [f'--{k}={v}' for k, v in given.items() if v is not None]
  found = {}
  with tempfile.TemporaryDirectory() as programs:
    for start in tables.STARTS:
      with tempfile.TemporaryDirectory() as results:
        marks = startup.seconds(
          'speed_of_light',
          [*arguments, '--quick', f'--results_dir={results}'],
          {'JAX_COMPILATION_CACHE_DIR': programs},
        )
      found[start] = np.array([marks[name] for name in startup.MARKS])
  return found


def take(weights: str, order: str) -> Mapping[str, int]:
  """Measures the memory of a run; see `memory.measure`.

  Args:
    weights: how matrices are kept, `values` or `blocks`.
    order: of `storage.ORDERS`.
  """
  return memory.measure(
    {
      'model': FLAGS.model,
      'blocks': weights == 'blocks',
      'order': order,
      'prompts': FLAGS.prompts,
      'prompts_per_kind': FLAGS.prompts_per_kind,
      'max_new_tokens': FLAGS.max_new_tokens,
      'max_length': FLAGS.max_length,
      'batch_size': FLAGS.batch_size,
    }
  )


def time_steps(
  weights: str, points: list[tuple[int, int]]
) -> dict[str, np.ndarray]:
  """Times iterations with the same tokens in caches of any size, in turns.

  Args:
    weights: how matrices are kept, `values` or `blocks`.
    points: `P` capacities with numbers of slots.

  Returns:
    `seconds [rounds, P]`, and the `order` of the matrices, which is tried out.
  """
  model = resolve.load(
    FLAGS.model, jnp.float32, blocks=weights == 'blocks', order='auto'
  )
  timers = [
    latency.pass_timer(
      model.params,
      latency.Point(capacity, 1, FLAGS.context),
      _STEPS,
      num_slots=num_slots,
    )
    for capacity, num_slots in points
  ]
  seconds = latency.interleave(timers, FLAGS.repeats, FLAGS.seed)
  return {'seconds': seconds, 'order': np.array(model.order)}


def bucket(context: int, max_new_tokens: int, max_length: int) -> int:
  """Returns the slots that decoding gives a prompt.

  Args:
    context: tokens of the prompt.
    max_new_tokens: most tokens of the answer.
    max_length: most tokens of both.
  """
  tokens, _, _ = prefill.lay_out([[0] * context], max_new_tokens, max_length)
  return tokens.shape[1]


def _check():
  least = FLAGS.context + 1 + _STEPS
  if min(FLAGS.slots) < least:
    raise ValueError(
      f'expected --slots of at least {least}, for --context={FLAGS.context} '
      f'and {_STEPS} iterations, got {FLAGS.slots}'
    )


def _define_flags():
  """Defines flags, some of which other experiments have of the same names."""
  with common.flags_of_main():
    flags.DEFINE_multi_enum(
      'formats',
      ['values', 'blocks'],
      ['values', 'blocks'],
      'How matrices are kept, as --weights of other experiments says; may be '
      'given again.',
    )
    flags.DEFINE_multi_enum(
      'orders',
      storage.ORDERS,
      storage.ORDERS,
      'How matrices are stored while memory is measured; may be given again.',
    )
    flags.DEFINE_integer('starts', 3, 'Start-ups of each kind.', lower_bound=1)
    flags.DEFINE_integer(
      'context', 200, 'Tokens before the timed iterations.', lower_bound=1
    )
    number_flags.define_integers(
      'slots', [256, 512, 1024], 'Slots of the caches that are compared.'
    )
    flags.DEFINE_integer(
      'repeats', 15, 'Rounds of timing; 6 bound a median.', lower_bound=6
    )


if __name__ == '__main__':
  _define_flags()
  common.run(
    main,
    defaults={'capacities': [1, 8], 'batch_size': 1},
    quick={
      'starts': 1,
      'capacities': [1],
      'formats': ['values'],
      'orders': ['both'],
    },
    shared=[
      *('model', 'prompts', 'prompts_per_kind', 'capacities'),
      *('max_new_tokens', 'max_length', 'batch_size', 'seed', 'quick'),
    ],
  )
