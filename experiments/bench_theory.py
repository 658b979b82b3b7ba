"""Is the simulator of best trees exact, and faster than a heap?

Claim: trees grown by thresholds, many replicas at a time, have the very values
of those that a lazy heap grows node by node, and come faster: at 1024 nodes on
2 cores some 3 times for fixed and for independent laws, 6 times for Dirichlet.

  launch/run.sh bench_theory              under a minute on 2 cores
  launch/run.sh bench_theory --quick      half of that

Both are timed in turn, in one run, after the compilation; their ratio is the
median over rounds with its range.  The heap is plain Python and NumPy, in
float64, and need not find a node's law again, so it draws it from NumPy's own
generator.  XLA runs such small steps on one core, so threads share the
replicas.

Writes results/bench_theory/<run>/record.json.
"""

import functools
import heapq
import itertools
import statistics
import time
from collections.abc import Callable, Mapping
from concurrent import futures

import jax
import numpy as np
from absl import flags

from experiments import common, records
from specjax.theory import brw, dirichlet, environment, laws

FLAGS = flags.FLAGS

_NODES = flags.DEFINE_integer(
  'nodes', 1024, 'Size of the timed trees.', lower_bound=1
)
_REPLICAS = flags.DEFINE_integer(
  'replicas', 256, 'Trees of one timed call.', lower_bound=1
)
_ROUNDS = flags.DEFINE_integer('rounds', 5, 'Timed pairs.', lower_bound=1)
_HEAP_REPLICAS = flags.DEFINE_integer(
  'heap_replicas', 32, 'Trees that the heap grows in a round.', lower_bound=1
)
_WORKERS = flags.DEFINE_integer(
  'workers', 2, 'Threads that share the replicas.', lower_bound=1
)
_MAX_MB = flags.DEFINE_integer(
  'max_mb', 512, 'Limit of working memory, in MiB.', lower_bound=1
)
_LARGEST = flags.DEFINE_list(
  'largest',
  ['fixed:1048576', 'independent:16384', 'dirichlet:16384'],
  'Environments and sizes of which one tree is grown within --max_mb.',
)

NAME = 'bench_theory'
VOCAB = 50
NUM_LAWS = 256

# Gives the rising surprisals of a child's law from those of its parent.
DrawFn = Callable[[list[float] | None], list[float]]


def main():
  """Times, checks, writes, and says what came out."""
  folder = records.open_run(FLAGS.results_dir, NAME, FLAGS.run_name)
  record = records.new_record(NAME, common.flag_values())
  rng = np.random.default_rng(FLAGS.seed)
  rows = rng.dirichlet(np.full(VOCAB, 0.3), NUM_LAWS)
  environments = {
    'fixed': laws.mixture(rows),
    'independent': laws.independent(rows),
    'dirichlet': dirichlet.make(np.full(VOCAB, 0.3)),
  }
  draws = heap_draws(rows, rng)
  table = []
  for name, env in environments.items():
    table.append(compare(name, env, draws[name]))
    print(say_speed(**table[-1]), flush=True)
  largest = []
  for entry in _LARGEST.value:
    name, size = entry.split(':')
    if name not in environments:
      raise ValueError(
        f'expected --largest of {", ".join(environments)}, got {name!r}'
      )
    largest.append(grow_largest(name, environments[name], int(size)))
    print(say_size(**largest[-1]), flush=True)
  records.finish_record(folder, record, table, largest=largest)


def say_speed(
  environment, nodes, ratio, ratio_range, trees_per_second, value, heap_value
) -> str:
  """Returns a line on a row of the table."""
  low, high = ratio_range
  return (
    f'{environment:12}{nodes:8} nodes: {trees_per_second:7.1f} trees/s,'
    f' {ratio:.1f} times the heap ({low:.1f} to {high:.1f});'
    f' D {value[0]:.3f} +- {value[1]:.3f},'
    f' heap {heap_value[0]:.3f} +- {heap_value[1]:.3f}'
  )


def say_size(environment, nodes, seconds, mebibytes, value) -> str:
  """Returns a line on one of the largest trees."""
  return (
    f'{environment:12}{nodes:8} nodes: {seconds:.2f} s, {mebibytes:.0f} MiB of'
    f' working memory; D {value:.3f}'
  )


def heap_draws(rows: np.ndarray, rng: np.random.Generator) -> dict:
  """Returns, by environment, how the heap draws laws: name -> `DrawFn`.

  Args:
    rows: `[G, V]` laws of the fixed and independent environments.
    rng: draws.
  """
  surprisals = [np.sort(-np.log(row)).tolist() for row in rows]

  def fixed(parent):
    return surprisals[rng.integers(NUM_LAWS)] if parent is None else parent

  def independent(parent):
    del parent
    return surprisals[rng.integers(NUM_LAWS)]

  def dirichlet(parent):
    del parent
    law = rng.dirichlet(np.full(VOCAB, 0.3))
    return np.sort(-np.log(np.maximum(law, 1e-300))).tolist()

  return {'fixed': fixed, 'independent': independent, 'dirichlet': dirichlet}


def heap_value(draw_fn: DrawFn, num_nodes: int) -> float:
  """Returns `D`, in tokens, of a best tree that a lazy heap grows.

  Popping the r-th best child of a node offers the next one, and its own best.

  Args:
    draw_fn: draws a node's law.
    num_nodes: `N`.
  """
  law = draw_fn(None)
  costs, count = [0.0], itertools.count()
  heap = [(law[0], next(count), 0.0, 0, law)]
  while len(costs) < num_nodes:
    cost, _, above, rank, siblings = heap[0]
    costs.append(cost)
    following = rank + 1
    if following < len(siblings):
      entry = (above + siblings[following], next(count), above, following)
      heapq.heapreplace(heap, (*entry, siblings))
    else:
      heapq.heappop(heap)
    law = draw_fn(siblings)
    heapq.heappush(heap, (cost + law[0], next(count), cost, 0, law))
  return float(np.sum(np.exp(-np.array(costs))))


def compare(
  name: str, env: environment.Environment, draw_fn: DrawFn
) -> Mapping:
  """Times simulator and heap in turn; returns a row of the table.

  Args:
    name: of the environment.
    env: the environment.
    draw_fn: the same for the heap.
  """
  num_workers = _WORKERS.value
  grow = functools.partial(
    brw.curves,
    env,
    num_replicas=-(-_REPLICAS.value // num_workers),
    num_nodes=_NODES.value,
  )
  keys = jax.random.split(
    jax.random.key(FLAGS.seed), (_ROUNDS.value + 1, num_workers)
  )
  jax.block_until_ready(grow(keys[-1, 0]))
  ours, heaps, ratios, rates = [], [], [], []
  with futures.ThreadPoolExecutor(num_workers) as pool:
    for round_keys in keys[:-1]:
      begin = time.perf_counter()
      parts = pool.map(lambda key: np.asarray(grow(key))[:, -1], round_keys)
      found = np.concatenate(list(parts))
      middle = time.perf_counter()
      heaps += [
        heap_value(draw_fn, _NODES.value) for _ in range(_HEAP_REPLICAS.value)
      ]
      end = time.perf_counter()
      ours += found.tolist()
      rates.append(len(found) / (middle - begin))
      ratios.append(rates[-1] * (end - middle) / _HEAP_REPLICAS.value)
  error = lambda x: statistics.pstdev(x) / len(x) ** 0.5
  return {
    'environment': name,
    'nodes': _NODES.value,
    'ratio': statistics.median(ratios),
    'ratio_range': (min(ratios), max(ratios)),
    'trees_per_second': statistics.median(rates),
    'value': (statistics.mean(ours), error(ours)),
    'heap_value': (statistics.mean(heaps), error(heaps)),
  }


def grow_largest(
  name: str, env: environment.Environment, num_nodes: int
) -> Mapping:
  """Grows one tree within the limit of memory; returns time and memory.

  Args:
    name: of the environment.
    env: the environment.
    num_nodes: `N`.

  Raises:
    ValueError: `--max_mb` is too small for it.
  """
  key, max_bytes = jax.random.key(FLAGS.seed), _MAX_MB.value * 2**20
  compiled = brw.curves.lower(env, key, 1, num_nodes, max_bytes).compile()
  begin = time.perf_counter()
  value = compiled(env, key)[0, -1].item()
  return {
    'environment': name,
    'nodes': num_nodes,
    'seconds': time.perf_counter() - begin,
    'mebibytes': compiled.memory_analysis().temp_size_in_bytes / 2**20,
    'value': value,
  }


if __name__ == '__main__':
  common.run(
    main,
    quick={
      'rounds': 2,
      'heap_replicas': 8,
      'largest': ['fixed:65536', 'dirichlet:2048'],
    },
  )
