"""What does a pass cost, against its nodes, its rows and its context?

Claim: a pass over a few tokens costs little more than one over a single token,
up to where computing takes as long as reading the weights.

  launch/run.sh latency                   under 3 min on 2 quiet cores
  launch/run.sh latency --quick           under 1 min
  launch/run.sh plan --latency=results/latency/RUN/record.json

Times iterations of the decoding loop that accept no draft, every combination of
`--capacities`, `--batches` and `--contexts` in turns, each round in another
order; N = 1 is plain decoding.  Among them, what a further token of an
iteration takes, and what the machine can read and compute: the roofline.  Then
fits the model of `theory.roofline`.  Other programs on the machine spoil it:
look at the quartiles.

Writes results/latency/<run>/: figure.png and figure.pdf, and record.json with
the table.
"""

import functools
import itertools
from collections.abc import Mapping, Sequence

import jax.numpy as jnp
import numpy as np
import tqdm
from absl import flags

from experiments import common, model_flags, number_flags, records
from experiments.planning import latency_report, limits, options, sources
from specjax.decode import latency, verify
from specjax.llama import linear, storage
from specjax.llama import model as llama_model
from specjax.theory import roofline, roofline_fit

FLAGS = flags.FLAGS

_CONTEXTS = number_flags.define_integers(
  'contexts', [128, 512], 'Tokens of each row before the pass.'
)
_REPEATS = flags.DEFINE_integer(
  'repeats', 7, 'Rounds of timing; 6 bound a median.', lower_bound=6
)
_STEPS = flags.DEFINE_integer(
  'steps', 1, 'Iterations of a timed call.', lower_bound=1
)

NAME = 'latency'


def main():
  """Measures, fits, writes, and says what came out."""
  if FLAGS.capacities[0] != 1:
    raise ValueError('expected 1, plain decoding, among --capacities')
  params = model_flags.load(NAME).params
  folder = common.open_run(NAME)
  record = records.new_record(NAME, common.flag_values())
  stages = records.Stages(folder, common.flag_values())
  points = [
    latency.Point(*point)
    for point in itertools.product(
      FLAGS.capacities, sorted(FLAGS.batches), sorted(_CONTEXTS.value)
    )
  ]
  samples = stages.arrays('samples', functools.partial(measure, params, points))
  table, facts = sum_up(samples, points, sizes_of(params))
  records.finish_record(folder, record, table, **facts)
  latency_report.show(records.load_record(folder / 'record.json'), folder)


def measure(
  params: llama_model.Params, points: Sequence[latency.Point]
) -> dict[str, np.ndarray]:
  """Times all points, visits in their trees and the machine, in turns.

  Args:
    params: the model.
    points: what passes are run with, `P` of them.

  Returns:
    Seconds: `passes [rounds, P]` and `visits [rounds, V]`, of `trees_of`; and
    of the `machine [rounds, 2]` those of a byte that is read and of an
    operation.
  """
  of = {'num_steps': _STEPS.value, 'temperature': FLAGS.temperature}
  timers = [latency.pass_timer(params, point, **of) for point in points]
  timers += [
    latency.visit_timer(params, batch, num_nodes, **of)
    for num_nodes, batch in trees_of(points)
  ]
  timers += [
    limits.reading_timer(),
    limits.computing_timer(jnp.dtype(FLAGS.dtype)),
  ]
  total = (_REPEATS.value + 1) * len(timers)
  with tqdm.tqdm(total=total, unit='call') as bar:
    samples = latency.interleave(timers, _REPEATS.value, FLAGS.seed, bar.update)
  return {
    'passes': samples[:, : len(points)],
    'visits': samples[:, len(points) : -2],
    'machine': samples[:, -2:],
  }


def trees_of(points: Sequence[latency.Point]) -> list[tuple[int, int]]:
  """Returns nodes and rows of passes, each pair once: context does not matter.

  Args:
    points: what passes are run with.
  """
  return sorted({(point.num_nodes, point.batch) for point in points})


def sum_up(
  samples: Mapping[str, np.ndarray],
  points: Sequence[latency.Point],
  sizes: roofline.Sizes,
) -> tuple[list[dict], dict]:
  """Makes the table of what `measure` found, and the facts beside it.

  Args:
    samples: seconds.
    points: what passes were run with.
    sizes: of the model.

  Returns:
    The table; and `visits`, the `machine`, the `fit` and `sizes`.
  """
  timings = {k: latency.summarise(v) for k, v in samples.items()}
  done = work(sizes, points)
  machine = roofline.Machine(*(1 / timings['machine'].median))
  fit = roofline_fit.fit(done, timings['passes'].median)
  table = tabulate(
    points,
    timings['passes'],
    model=roofline.seconds(fit.machine, done),
    roofline=roofline.seconds(machine, done),
  )
  return table, {
    'visits': tabulate_visits(trees_of(points), timings['visits']),
    'machine': {'bandwidth': machine.bandwidth, 'peak': machine.peak},
    'fit': facts_of(fit),
    'sizes': sizes._asdict(),
  }


def sizes_of(params: llama_model.Params) -> roofline.Sizes:
  """Returns a model's sizes, with the bytes that its weights really take.

  Args:
    params: the model.
  """
  sizes = sources.sizes_of(params.config)
  stacks = params.weights['layers'].values()
  read = (*stacks, llama_model.head_matrix(params))
  num_bytes = sum(storage.num_bytes(stored) for stored in read)
  dtype = linear.compute_dtype(params.weights['embed'].dtype)
  return sizes._replace(
    weight_bytes=num_bytes / roofline.num_weights(sizes),
    value_bytes=float(jnp.dtype(dtype).itemsize),
  )


def work(
  sizes: roofline.Sizes, points: Sequence[latency.Point]
) -> roofline.Work:
  """Returns the work of passes that emit one token of each row.

  Args:
    sizes: of the model.
    points: what passes are run with.
  """
  columns = (np.array(column) for column in zip(*points, strict=True))
  num_logits = [
    point.num_nodes if verify.is_at_once(point.batch, point.num_nodes) else 1
    for point in points
  ]
  return roofline.work(sizes, *columns, num_logits=num_logits)


def tabulate(
  points: Sequence[latency.Point],
  timing: latency.Timing,
  **columns: np.ndarray,
) -> list[dict]:
  """Makes the rows of the table, all times in seconds.

  Args:
    points: `P` of them.
    timing: of each.
    **columns: `[P]` more of each.
  """
  return [
    {
      'capacity': point.num_nodes,
      'batch': point.batch,
      'context': point.context,
      **_times_of(timing, i),
      **{name: float(values[i]) for name, values in columns.items()},
    }
    for i, point in enumerate(points)
  ]


def tabulate_visits(
  trees: Sequence[tuple[int, int]], timing: latency.Timing
) -> list[dict]:
  """Makes the rows of visits, all times in seconds.

  Args:
    trees: `V` of them, of `trees_of`.
    timing: of each.
  """
  return [
    {'capacity': num_nodes, 'batch': batch, **_times_of(timing, i)}
    for i, (num_nodes, batch) in enumerate(trees)
  ]


def facts_of(fit: roofline_fit.Fit) -> Mapping[str, object]:
  """Returns a fit as records hold it: None for what is infinite.

  Args:
    fit: of the model.
  """
  finite = lambda x: x if np.isfinite(x) else None
  machine = fit.machine
  return {
    'overhead': machine.overhead,
    'bandwidth': finite(machine.bandwidth),
    'peak': finite(machine.peak),
    'blend': machine.blend,
    'errors': fit.errors,
  }


def _times_of(timing, i):
  names = {'median': 'seconds'}
  return {
    names.get(name, name): float(values[i])
    for name, values in timing._asdict().items()
  }


if __name__ == '__main__':
  options.define_batches([1, 4])
  common.run(
    main,
    defaults={'capacities': [1, 2, 4, 8, 16, 32]},
    quick={'capacities': [1, 4, 16], 'batches': [1], 'repeats': 6},
    shared=[
      *model_flags.SHARED_FLAGS,
      *('temperature', 'capacities', 'seed', 'quick'),
    ],
  )
