"""Limits of runs against policies, good and bad, on sources of unlike starts.

The exact best policy of tiny sources, by dynamic programming, is in
test_run_bounds, as are texts that end by themselves.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference_theory as reference

from specjax.theory import laws, process, resample, run_bounds
from specjax.trees import tree as tree_lib

# Easy, sure, flat and peaked on another token.
ROWS = np.array(
  [
    [0.97, 0.01, 0.01, 0.01],
    [0.0, 1.0, 0.0, 0.0],
    [0.3, 0.2, 0.4, 0.1],
    [0.05, 0.05, 0.05, 0.85],
  ]
)
SOURCES = {
  'mixture': laws.switching(ROWS, np.eye(4)),
  'switching': laws.switching(ROWS, 0.8 * np.eye(4) + 0.05),
}
CAPACITIES = (2, 6)
LARGEST = max(CAPACITIES)


def tree(parents, tokens):
  """A tree that is drafted everywhere."""
  return tree_lib.Tree(
    tokens=jnp.asarray(tokens),
    parents=jnp.asarray(parents),
    log_q=jnp.zeros(LARGEST),
    num_nodes=jnp.int32(LARGEST),
  )


CHAIN = np.arange(-1, LARGEST - 1)
FIXED_TREES = {
  'chain': tree(CHAIN, np.zeros(LARGEST, int)),
  'wrong chain': tree(CHAIN, np.full(LARGEST, 2)),
  'star': tree([-1, 0, 0, 0, 0, 1], [0, 0, 1, 2, 3, 1]),
  'drawn blindly': tree([-1, 0, 1, 0, 2, 4], [3, 1, 3, 0, 1, 1]),
}
# Regimes in which the best tree of the full size is used; else the root alone.
IN_REGIMES = {
  'best': [True, True, True, True],
  'moody': [True, True, False, True],
  'contrary': [False, False, True, False],
}


@jax.jit
def calls_of_fixed_trees(sample, drafted):
  """Calls `[R]` of a run on each text."""
  return jnp.sum(process.run(sample, lambda state: drafted) > 0, axis=1)


@jax.jit
def calls_of_best_trees(env, sample, sizes):
  """Calls `[R]` of a run on each text, with trees of a size for each regime."""
  policy = process.best_policy(env, LARGEST, lambda state: sizes[state.regime])
  return jnp.sum(process.run(sample, policy) > 0, axis=1)


@pytest.mark.parametrize('name', SOURCES)
def test_no_policy_exceeds_the_limits(name):
  env = SOURCES[name]
  sample = process.sample(env, jax.random.key(2), 80, 60, 4)
  texts, num_tokens = sample.texts, sample.texts.num_tokens
  limits = {
    'run': run_bounds.run(texts.laws.surprisal, num_tokens, CAPACITIES, 4),
    'run_context': run_bounds.run_context(texts.laws, num_tokens, CAPACITIES),
  }
  for c, capacity in enumerate(CAPACITIES):
    used = {
      policy: calls_of_best_trees(env, sample, np.where(is_used, capacity, 1))
      for policy, is_used in IN_REGIMES.items()
    } | {
      policy: calls_of_fixed_trees(sample, drafted.replace(num_nodes=capacity))
      for policy, drafted in FIXED_TREES.items()
    }
    rates = {
      policy: np.sum(num_tokens) / np.sum(x) for policy, x in used.items()
    }
    assert rates['best'] == max(rates.values()) > 1.3
    assert min(rates.values()) < 1.3
    for limit in limits.values():
      for policy, calls in used.items():
        ahead = resample.ratio_difference(
          (num_tokens, num_tokens), (limit[c], calls), seed=0
        )
        assert ahead.low > 0.0, (policy, capacity)


def test_a_known_vocabulary_sharpens_the_moment_ceiling():
  surprisals = -np.log(reference.ZIPF)
  limits = []
  for vocab_size in (10**9, 50):
    ceilings = run_bounds.moment_ceiling(
      np.array(run_bounds.CAPS), 21, vocab_size
    )
    progress = np.minimum(surprisals, np.array(run_bounds.CAPS)[:, None])
    limits.append(np.min(ceilings / (progress @ reference.ZIPF)))
  np.testing.assert_allclose(limits, [3.216, 3.011], atol=1e-3)
