"""A small hand-made run of the main job, as it lies on disk."""

import jax.numpy as jnp
import numpy as np

from experiments import measure, oracle_runs
from specjax.theory import entropy

VOCAB, LIMIT, LENGTH, SEED = 5, 8, 12, 3
CAPACITIES = [1, 3, 5]
NUM_TOKENS = np.array([12, 12, 5, 12, 2, 12])
NUM_ROWS = len(NUM_TOKENS)


def arrays():
  """What `arrays.npz` holds of random laws, trees and runs of `lookup`."""
  rng = np.random.default_rng(SEED)
  logits = 2 * rng.normal(size=(NUM_ROWS, LENGTH, VOCAB))
  log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
  is_token = np.arange(LENGTH) < NUM_TOKENS[:, None]
  tokens = (log_p + rng.gumbel(size=log_p.shape)).argmax(-1) * is_token
  laws = entropy.summarise(jnp.asarray(log_p), jnp.asarray(tokens), VOCAB)
  values = np.cumsum(rng.random((NUM_ROWS, LIMIT, len(CAPACITIES))), axis=-1)
  named = {
    'plain/tokens': tokens,
    'plain/num_tokens': NUM_TOKENS,
    'oracle/value': 1 + values * (np.array(CAPACITIES) > 1),
    **{f'laws/{k}': np.asarray(v) for k, v in vars(laws).items()},
  }
  for capacity in CAPACITIES:
    for name, depth in [('lookup', 1), ('oracle_run', capacity - 1)]:
      taken = rng.integers(1, min(depth, capacity - 1) + 2, (NUM_ROWS, LIMIT))
      run = oracle_runs.run(taken, np.minimum(NUM_TOKENS, LIMIT), LIMIT)
      run['tokens'] = tokens[:, :LIMIT]
      # A path may lead on past the limit.
      depths = [
        row[places[:count]] - 1
        for row, places, count in zip(
          taken, run['place'], run['num_steps'], strict=True
        )
      ]
      run['depth'] = measure.pad(depths, LIMIT)
      named |= {f'{name}-{capacity}/{k}': v for k, v in run.items()}
  return named


def record(experiment, table, **facts):
  """A record of an experiment of which nothing is made up but the table."""
  return {
    'schema': 1,
    'experiment': experiment,
    'flags': {
      'model': 'models/small',
      'input': 'logs/small.jsonl',
      'temperature': 1.0,
      'capacities': CAPACITIES,
      'drafters': ['lookup'],
      'max_new_tokens': LIMIT,
      'seed': SEED,
    },
    'seed': SEED,
    'versions': {},
    'device': {},
    'commit': 'cafe',
    'started': '2026-01-01T00:00:00+00:00',
    'finished': '2026-01-01T00:01:00+00:00',
    'best_drafter': 'lookup',
    'vacuous': [],
    **facts,
    'table': table,
  }


def rows(curves, capacities=CAPACITIES):
  """Rows of curves, each with values of its own."""
  return [
    {
      'capacity': capacity,
      'curve': curve,
      'D': 1 + capacity * (number + 1) / 7,
      'low': 1 + capacity * (number + 0.9) / 7,
      'high': 1 + capacity * (number + 1.2) / 7,
    }
    for number, curve in enumerate(curves)
    for capacity in capacities
  ]
