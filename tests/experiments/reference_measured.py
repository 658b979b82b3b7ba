"""A small hand-made run of the main job, as it lies on disk."""

import jax.numpy as jnp
import numpy as np

from experiments import measure, oracle_runs
from specjax.theory import entropy, prices

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
  trees = best_trees(rng, NUM_ROWS, LIMIT, max(CAPACITIES))
  named |= {f'oracle/{k}': v for k, v in trees.items()}
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


def best_trees(rng, num_rows, length, size, is_sure=False):
  """What is kept of the oracle's trees, of laws that nobody has seen."""
  shape = (num_rows, length, size)
  falling = np.cumprod(rng.random((*shape[:2], size - 1)), axis=-1)
  p = np.concatenate([np.ones((*shape[:2], 1)), falling], axis=-1)
  # None may be above what it can be.
  highest = np.array([1.0, *np.log1p(prices.SURPLUSES)])
  notes = highest * rng.random((*shape, len(highest)))
  if is_sure:
    p, notes = np.ones(shape), np.zeros_like(notes)
  notes[..., 0] = 1.0
  is_read = np.broadcast_to(np.arange(size) < max(size - 1, 1), shape)
  return {'p': p, 'notes': notes, 'is_read': is_read}


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
