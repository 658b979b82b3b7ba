"""Is the simulator of best trees exact, and faster than a heap?

Claim: trees grown by thresholds, many replicas at a time, have the very values
of those that a lazy heap grows node by node, and come faster: at 1024 nodes on
2 cores some 3 times for fixed laws, 7 times for independent ones and 5 times
for Dirichlet ones, where most of the time goes into drawing the laws.  The
largest trees keep to the limit of memory.

  launch/run.sh bench_theory              under a minute on 2 cores
  launch/run.sh bench_theory --quick      half of that

Both are timed in turn, in one run, after the compilation; their ratio is the
median over rounds with its range.  XLA runs such small steps on one core, so
threads share the replicas.

Writes results/bench_theory/<run>/record.json.
"""

import functools
import statistics
import time
from collections.abc import Mapping
from concurrent import futures

import jax
import numpy as np
from absl import flags

from experiments import (
  common,
  records,
)
from experiments.walks import heap_trees
from specjax.theory import brw, dirichlet, environment, laws

FLAGS = flags.FLAGS

_NODES = flags.DEFINE_integer(
  'nodes', 1024, 'Size of the timed trees.', lower_bound=1
)
_REPLICAS = flags.DEFINE_integer(
  'timed_trees', 256, 'Trees of one timed call.', lower_bound=1
)
_ROUNDS = flags.DEFINE_integer('pairs', 5, 'Timed pairs.', lower_bound=1)
_HEAP_REPLICAS = flags.DEFINE_integer(
  'heap_replicas', 32, 'Trees that the heap grows in a round.', lower_bound=1
)
_WORKERS = flags.DEFINE_integer(
  'workers', 2, 'Threads that share the replicas.', lower_bound=1
)
_MAX_MB = flags.DEFINE_integer(
  'max_mb', 256, 'Limit of working memory, in MiB.', lower_bound=1
)
_LARGEST = flags.DEFINE_list(
  'largest',
  ['fixed:1048576', 'independent:16384', 'dirichlet:16384'],
  'Environments and sizes of which one tree is grown within --max_mb.',
)

NAME = 'bench_theory'
NUM_LAWS = 256
CONCENTRATION = np.full(50, 0.3)


def main():
  """Times, checks, writes, and says what came out."""
  folder = common.open_run(NAME)
  record = records.new_record(NAME, common.flag_values())
  rng = np.random.default_rng(FLAGS.seed)
  rows = rng.dirichlet(CONCENTRATION, NUM_LAWS)
  environments = {
    'fixed': laws.mixture(rows),
    'independent': laws.independent(rows),
    'dirichlet': dirichlet.make(CONCENTRATION),
  }
  sizes = [parse_size(entry, environments) for entry in _LARGEST.value]
  draws = heap_trees.draws(rows, CONCENTRATION, rng)
  table = []
  for name, env in environments.items():
    found = compare(
      env,
      draws[name],
      num_nodes=_NODES.value,
      num_replicas=_REPLICAS.value,
      num_heap_replicas=_HEAP_REPLICAS.value,
      num_rounds=_ROUNDS.value,
      num_workers=_WORKERS.value,
      seed=FLAGS.seed,
    )
    table.append({'environment': name, 'nodes': _NODES.value, **found})
    print(say_speed(**table[-1]), flush=True)
  largest = []
  for name, num_nodes in sizes:
    found = grow_largest(
      environments[name], num_nodes, _MAX_MB.value, FLAGS.seed
    )
    largest.append({'environment': name, 'nodes': num_nodes, **found})
    print(say_size(**largest[-1]), flush=True)
  records.finish_record(folder, record, table, largest=largest)


def parse_size(entry: str, environments: Mapping) -> tuple[str, int]:
  """Returns the environment and the size of an entry of `--largest`.

  Raises:
    ValueError: the entry names no environment, or no size.
  """
  name, _, size = entry.partition(':')
  if name not in environments or not size.isdecimal():
    raise ValueError(
      f'expected --largest of {", ".join(environments)}, each with a size after'
      f' a colon, got {entry!r}'
    )
  return name, int(size)


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


def say_size(
  environment, nodes, seconds, mebibytes, max_mebibytes, value
) -> str:
  """Returns a line on one of the largest trees."""
  verdict = 'within' if mebibytes <= max_mebibytes else 'OVER'
  return (
    f'{environment:12}{nodes:8} nodes: {seconds:.2f} s, {mebibytes:.0f} MiB of'
    f' working memory, {verdict} the limit of {max_mebibytes}; D {value:.3f}'
  )


def compare(
  env: environment.Environment,
  draw_fn: heap_trees.DrawFn,
  num_nodes: int,
  num_replicas: int,
  num_heap_replicas: int,
  num_rounds: int,
  num_workers: int,
  seed: int,
) -> dict:
  """Times simulator and heap in turn; returns rates, their ratio, and values.

  Args:
    env: the environment.
    draw_fn: the same for the heap.
    num_nodes: `N`.
    num_replicas: trees of the simulator in a round.
    num_heap_replicas: trees of the heap in a round.
    num_rounds: timed pairs.
    num_workers: threads that share the simulator's trees.
    seed: of the simulator's trees.
  """
  grow = functools.partial(
    brw.curves,
    env,
    num_replicas=-(-num_replicas // num_workers),
    num_nodes=num_nodes,
  )
  keys = jax.random.split(jax.random.key(seed), (num_rounds + 1, num_workers))
  jax.block_until_ready(grow(keys[-1, 0]))
  ours, heaps, ratios, rates = [], [], [], []
  with futures.ThreadPoolExecutor(num_workers) as pool:
    for round_keys in keys[:-1]:
      begin = time.perf_counter()
      parts = pool.map(lambda key: np.asarray(grow(key))[:, -1], round_keys)
      found = np.concatenate(list(parts))
      middle = time.perf_counter()
      heaps += [
        heap_trees.value(draw_fn, num_nodes) for _ in range(num_heap_replicas)
      ]
      end = time.perf_counter()
      ours += found.tolist()
      rates.append(len(found) / (middle - begin))
      ratios.append(rates[-1] * (end - middle) / num_heap_replicas)
  error = lambda x: statistics.pstdev(x) / len(x) ** 0.5
  return {
    'ratio': statistics.median(ratios),
    'ratio_range': (min(ratios), max(ratios)),
    'trees_per_second': statistics.median(rates),
    'value': (statistics.mean(ours), error(ours)),
    'heap_value': (statistics.mean(heaps), error(heaps)),
  }


def grow_largest(
  env: environment.Environment, num_nodes: int, max_mebibytes: int, seed: int
) -> dict:
  """Grows one tree within the limit of memory; returns time and memory.

  Args:
    env: the environment.
    num_nodes: `N`.
    max_mebibytes: the limit that the simulator is given.
    seed: of the tree.

  Raises:
    ValueError: the limit is too small for the tree.
  """
  key = jax.random.key(seed)
  compiled = brw.curves.lower(
    env, key, 1, num_nodes, max_mebibytes * 2**20
  ).compile()
  begin = time.perf_counter()
  value = compiled(env, key)[0, -1].item()
  return {
    'seconds': time.perf_counter() - begin,
    # As planned by the compiler, which is what is then allocated.
    'mebibytes': compiled.memory_analysis().temp_size_in_bytes / 2**20,
    'max_mebibytes': max_mebibytes,
    'value': value,
  }


if __name__ == '__main__':
  common.run(
    main,
    quick={
      'pairs': 2,
      'heap_replicas': 8,
      'largest': ['fixed:65536', 'dirichlet:2048'],
    },
  )
