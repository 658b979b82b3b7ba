"""What plans are made from: records of other experiments, and models' sizes."""

import itertools
import pathlib
from collections.abc import Mapping, Sequence

import numpy as np

from experiments import drafters, recipes, records
from specjax.llama import config as llama_config
from specjax.theory import pass_times, profiles, resample, roofline

# What every row of the table of `latency` has.
LATENCY_COLUMNS = ('capacity', 'batch', 'context', 'seconds', 'low', 'high')

# Limits of runs of deterministic trees that records of curves may have.
_LIMITS = ('run', 'run_context', 'run_priced')

# Drafters that run no model; to look something up costs next to nothing.
FREE = ('lookup', 'suffix', 'bigram')


def sizes_of(
  config: llama_config.LlamaConfig,
  weight_bytes: float = 2.0,
  value_bytes: float = 2.0,
) -> roofline.Sizes:
  """Returns a model's sizes as plain numbers.

  Args:
    config: of the model.
    weight_bytes: of one weight, in the mean.
    value_bytes: of one entry of keys, values and activations.
  """
  return roofline.Sizes(
    config.num_layers,
    config.width,
    config.ffn_width,
    config.num_heads,
    config.num_kv_heads,
    config.head_dim,
    config.vocab_size,
    weight_bytes,
    value_bytes,
  )


def grid_of(record: Mapping) -> pass_times.Grid:
  """Returns the times that `latency` measured.

  Args:
    record: of `latency`.

  Raises:
    ValueError: a table that is no full grid.
  """
  axes = [
    sorted({row[name] for row in record['table']})
    for name in LATENCY_COLUMNS[:3]
  ]
  rows = {
    tuple(row[name] for name in LATENCY_COLUMNS[:3]): row
    for row in record['table']
  }
  points = list(itertools.product(*axes))
  if missing := [point for point in points if point not in rows]:
    raise ValueError(
      'expected a time for every capacity, batch and context, got none at '
      f'{missing[0]}'
    )
  column = lambda name: np.reshape(
    [rows[point][name] for point in points], [len(axis) for axis in axes]
  )
  visits = {
    (row['capacity'], row['batch']): row['seconds'] for row in record['visits']
  }
  return pass_times.Grid(
    *map(np.array, axes),
    resample.Interval(column('seconds'), column('low'), column('high')),
    np.array([[visits[size, batch] for batch in axes[1]] for size in axes[0]]),
  )


def load_curves(path: str | pathlib.Path, temperature: float) -> dict:
  """Reads a record of curves of `D`, as far as it is of one temperature.

  Args:
    path: a `record.json` of `speed_of_light` or `acceptance`.
    temperature: of sampling.

  Returns:
    The record.

  Raises:
    ValueError: no such record, or none of that temperature.
  """
  record = records.load_record(
    pathlib.Path(path), ('capacity', 'curve', 'D', 'low', 'high')
  )
  of_run = record['flags'].get('temperature')
  table = [
    row
    for row in record['table']
    if row.get('temperature', of_run) == temperature
  ]
  if not table:
    raise ValueError(
      f'expected a record of temperature {temperature:g} in {path}, got another'
    )
  return {**record, 'table': table}


def profile_of(
  record: Mapping, plain_seconds: float, costs: Mapping[str, float]
) -> profiles.Profile:
  """Returns the curves of all drafters as candidates.

  Args:
    record: of `load_curves`.
    plain_seconds: of a pass of plain decoding.
    costs: by drafter what a level of a tree costs, in such passes.

  Raises:
    ValueError: a drafter that runs a model and whose cost is not given, or a
      bad file of a tree.
    OSError: the file of a tree that cannot be read.
  """
  found = {}
  for name, recipe in _recipes(record).items():
    if recipe.drafter in recipes.YARDSTICKS:
      continue
    if recipe.drafter not in (*FREE, *costs):
      raise ValueError(
        f'expected --draft_costs for {recipe.drafter}, which runs a model, got '
        'none'
      )
    found[name] = plain_seconds * costs.get(recipe.drafter, 0.0), recipe.tree
  rows = [row for row in record['table'] if row['curve'] in found]
  seconds = []
  for row in rows:
    of_level, tree = found[row['curve']]
    seconds.append(of_level * drafters.num_levels(tree, row['capacity']))
  return profiles.Profile(
    tuple(row['curve'] for row in rows),
    np.array([row['capacity'] for row in rows]),
    _interval(rows),
    np.array(seconds),
  )


def limit_of(record: Mapping) -> profiles.Profile | None:
  """Returns the least of the limits of runs by capacity, None without any.

  Args:
    record: of `load_curves`.
  """
  vacuous = record.get('vacuous', ())
  found = [
    row
    for row in record['table']
    if row['curve'] in _LIMITS
    and row['curve'] not in vacuous
    and row['D'] is not None
  ]
  if not found:
    return None
  sizes = sorted({row['capacity'] for row in found})
  least = [
    min(
      (row for row in found if row['capacity'] == size),
      key=lambda row: row['D'],
    )
    for size in sizes
  ]
  return profiles.Profile(
    tuple(row['curve'] for row in least),
    np.array(sizes),
    _interval(least),
    np.zeros(len(sizes)),
  )


def within(
  profile: profiles.Profile, times: pass_times.PassTimes
) -> profiles.Profile:
  """Returns the candidates of sizes whose pass times are known.

  Args:
    profile: the candidates.
    times: of passes.
  """
  keep = np.flatnonzero(profile.num_nodes <= np.max(times.num_nodes))
  return profile._replace(
    names=tuple(profile.names[i] for i in keep),
    num_nodes=profile.num_nodes[keep],
    tokens=resample.Interval(*(x[keep] for x in profile.tokens)),
    draft_seconds=profile.draft_seconds[keep],
  )


def parse_costs(entries: Sequence[str]) -> dict[str, float]:
  """Returns the entries of `--draft_costs` by drafter.

  Args:
    entries: such as `layer_skip:0.6`.

  Raises:
    ValueError: an entry without a name or without a number of at least 0.
  """
  costs = {}
  for entry in entries:
    name, _, share = entry.partition(':')
    try:
      costs[name] = float(share)
    except ValueError:
      costs[name] = -1.0
    if not name or not costs[name] >= 0:
      raise ValueError(
        f'expected --draft_costs such as layer_skip:0.6, got {entry!r}'
      )
  return costs


def has_chains(record: Mapping) -> bool:
  """Returns whether chains are among the candidates of a record.

  Args:
    record: of `load_curves`.
  """
  return any(recipe.tree == 'chain' for recipe in _recipes(record).values())


def _recipes(record):
  """The recipes of a record by the names of their curves."""
  if 'recipes' in record:
    return {k: recipes.Recipe(**v) for k, v in record['recipes'].items()}
  # The main job's record names drafters alone.
  return {
    name: recipes.MAIN_JOB.get(name, recipes.Recipe(name))
    for name in record['flags']['drafters']
  }


def _interval(rows):
  column = lambda name: np.array([row[name] for row in rows], float)
  return resample.Interval(column('D'), column('low'), column('high'))
