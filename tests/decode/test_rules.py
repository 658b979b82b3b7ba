"""Rules against a slow twin with the same noise, and against the law."""

import functools
import itertools
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference_drafts
import reference_rules
from scipy import stats

from specjax import noise as noise_lib
from specjax import sampling as sampling_lib
from specjax.decode import rules
from specjax.decode import trial as trial_lib
from specjax.draft import base
from specjax.trees import tree as tree_lib

VOCAB, N, ROWS = 5, 7, 240
STOCHASTIC = ('with_replacement', 'without_replacement', 'block')


def random_laws(rng, shape):
  """Laws of all sorts: with every token, without some, sure."""
  logits = 1.5 * rng.normal(size=(*shape, VOCAB))
  kind = rng.integers(0, 4, shape)[..., None]
  best = logits.max(axis=-1, keepdims=True)
  logits[(kind == 0) & (logits < best)] = -np.inf
  logits[
    (kind == 1) & (rng.random(logits.shape) < 0.4) & (logits < best)
  ] = -np.inf
  return np.array(jax.nn.log_softmax(logits), np.float32)


def random_tree(rng, log_q):
  """A tree whose nodes are mostly possible draws, and its number of nodes."""
  parents = [-1] + [int(rng.integers(0, i)) for i in range(1, N)]
  tokens = [0]
  for node in range(1, N):
    q = np.exp(log_q[parents[node]].astype(float))
    q = np.ones(VOCAB) if rng.random() < 0.1 else q
    tokens.append(int(rng.choice(VOCAB, p=q / q.sum())))
  return tokens, parents, int(rng.integers(1, N + 1))


def random_case():
  rng = np.random.default_rng(0)
  log_p, log_q = random_laws(rng, (ROWS, N)), random_laws(rng, (ROWS, N))
  # Some drafters agree with the verifier.
  log_q[::5] = log_p[::5]
  return log_p, log_q, [random_tree(rng, row) for row in log_q]


@functools.partial(jax.jit, static_argnames='rule')
def run(rule, proposal, log_p, reported, seeds, starts, active, scale):
  """The path of a rule whose coins are scaled."""
  take = lambda x, nodes: jnp.take_along_axis(x, nodes[:, None, None], 1)[:, 0]
  laws_fn = lambda n: sampling_lib.Laws(take(log_p, n), take(reported, n))
  trial = trial_lib.Trial(
    proposal,
    laws_fn,
    lambda n, depth: sampling_lib.draw_from(laws_fn(n), seeds, starts + depth),
    seeds,
    starts,
    active,
  )
  true_coins = noise_lib.coins
  coins = lambda *args: scale * true_coins(*args)
  with mock.patch.object(noise_lib, 'coins', coins):
    return rules.named(rule)(trial)


# Kinds: keys shared by rows or depths, tokens of probability zero that are
# accepted with a coin of zero, siblings taken for a chain.
@pytest.mark.parametrize('scale', [1.0, 0.0])
@pytest.mark.parametrize('rule', STOCHASTIC)
def test_walks_equal_the_slow_twin_under_the_same_noise(rule, scale):
  log_p, log_q, trees = random_case()
  tokens, parents, num_nodes = (np.asarray(x) for x in zip(*trees, strict=True))
  reported = random_laws(np.random.default_rng(1), (ROWS, N))
  tree = tree_lib.Tree(
    jnp.asarray(tokens), jnp.asarray(parents), jnp.zeros((ROWS, N)), num_nodes
  )
  seeds = jnp.arange(ROWS, dtype=jnp.uint32) // 2
  starts = 7 + jnp.arange(ROWS) % 2
  active = jnp.arange(ROWS) % 9 != 0
  path = jax.device_get(
    run(
      rule,
      base.Proposal(tree, jnp.asarray(log_q)),
      jnp.asarray(log_p),
      jnp.asarray(reported),
      seeds,
      starts,
      active,
      scale,
    )
  )
  coins = np.asarray(noise_lib.coins(seeds, starts, N)) * scale
  depths = jnp.arange(N)
  noise_of = lambda seed, start: jax.vmap(
    lambda depth: noise_lib.gumbel(
      seed, start + depth, noise_lib.USE_RESIDUAL, VOCAB
    )
  )(depths)
  noise = np.asarray(jax.vmap(noise_of)(seeds, starts), float)
  exact = lambda x: np.exp(x.astype(float))
  for row in range(ROWS):
    if not active[row]:
      assert path.length[row] == 0
      continue
    with np.errstate(divide='ignore'):
      nodes, emitted = reference_rules.walk(
        rule,
        trees[row],
        exact(log_p[row]) / exact(log_p[row]).sum(-1, keepdims=True),
        exact(log_q[row]) / exact(log_q[row]).sum(-1, keepdims=True),
        coins[row],
        lambda law, depth, row=row: int(
          np.argmax(np.log(law) + noise[row, depth])
        ),
      )
    length = len(nodes)
    assert path.length[row] == length
    assert path.nodes[row, :length].tolist() == nodes
    assert path.tokens[row, :length].tolist() == emitted
    np.testing.assert_array_equal(
      path.extra[row, :length], reported[row, nodes, emitted]
    )
    assert not np.any(path.nodes[row, length:])
    assert np.all(log_p[row, nodes, emitted] > -np.inf)
  assert set(path.length) >= {0, 1, 2, 3}


# Texts of a chain of tokens with given laws, decoded iteration by iteration
# with the noise that the loop would use.

STATES, LENGTH, NUM_TEXTS = 5, 3, 20_000
SHAPE = {
  'with_replacement': (-1, 0, 0, 1, 1),
  'without_replacement': (-1, 0, 0, 1, 1),
  'block': (-1, 0, 1, 2),
}


def markov_laws(seed):
  logits = np.random.default_rng(seed).normal(size=(STATES, STATES))
  return jax.nn.log_softmax(jnp.asarray(logits, jnp.float32))


@functools.partial(jax.jit, static_argnames='rule')
def iterate(rule, log_p, log_q, told, tokens, lengths, seeds):
  """One iteration of all texts; `tokens [B, S]` have room for it."""
  proposal = reference_drafts.draw(
    lambda last: log_q[last],
    base.last_tokens(tokens, lengths),
    seeds,
    lengths,
    SHAPE[rule],
    rule == 'with_replacement',
  )
  at = proposal.tree.tokens
  laws_fn = lambda nodes: sampling_lib.Laws(
    *[log_p[sampling_lib.at(at, nodes)]] * 2
  )
  path = rules.named(rule)(
    trial_lib.Trial(
      proposal.replace(log_q_full=told[at]),
      laws_fn,
      lambda nodes, depth: sampling_lib.draw_from(
        laws_fn(nodes), seeds, lengths + depth
      ),
      seeds,
      lengths,
      jnp.ones(seeds.shape, bool),
    )
  )
  order = jnp.arange(at.shape[1])
  places = jnp.where(
    order < path.length[:, None], lengths[:, None] + order, tokens.shape[1]
  )
  rows = jnp.arange(seeds.shape[0])[:, None]
  tokens = tokens.at[rows, places].set(path.tokens, mode='drop')
  return tokens, lengths + path.length


def empty_texts():
  tokens = jnp.zeros((NUM_TEXTS, 10), jnp.int32)
  lengths = jnp.ones(NUM_TEXTS, jnp.int32)
  return tokens, lengths, jnp.arange(NUM_TEXTS, dtype=jnp.uint32)


def p_value(rule, error=1.0):
  """Of the chi-square test that texts have the verifier's law."""
  log_p, log_q = markov_laws(0), markov_laws(1)
  told = jax.nn.log_softmax(error * log_q)
  tokens, lengths, seeds = empty_texts()
  while jnp.min(lengths) < 1 + LENGTH:
    tokens, lengths = iterate(rule, log_p, log_q, told, tokens, lengths, seeds)
  p = np.exp(np.asarray(log_p, float))
  expected = {
    text: NUM_TEXTS * np.prod([p[a, b] for a, b in itertools.pairwise(text)])
    for text in itertools.product([0], *[range(STATES)] * LENGTH)
  }
  counts = dict.fromkeys(expected, 0)
  for text in np.asarray(tokens[:, : 1 + LENGTH]).tolist():
    counts[tuple(text)] += 1
  wanted = np.array(list(expected.values()))
  found = np.array(list(counts.values()))
  return stats.chisquare(found, wanted * found.sum() / wanted.sum()).pvalue


# Kinds: noise that is used twice, by drafts and decisions or by two iterations;
# a law that is not the one that was drawn from.
@pytest.mark.parametrize('rule', STOCHASTIC)
def test_texts_follow_the_law_over_several_iterations(rule):
  assert p_value(rule) > 1e-3
  assert p_value(rule, error=1.4) < 1e-6


@pytest.mark.parametrize('rule', STOCHASTIC)
def test_what_is_drawn_from_the_verifiers_law_is_accepted_whole(rule):
  log_p = markov_laws(0)
  _, lengths = iterate(rule, log_p, log_p, log_p, *empty_texts())
  depth = 3 if rule == 'block' else 2
  np.testing.assert_array_equal(lengths, 1 + depth + 1)


# Kinds: temperature 0 that differs from plain decoding.
def test_every_rule_is_the_greedy_match_at_temperature_0():
  rng = np.random.default_rng(3)
  log_q = random_laws(rng, (ROWS, N))
  best = rng.integers(0, VOCAB, (ROWS, N))
  log_p = np.where(np.arange(VOCAB) == best[..., None], 0.0, -np.inf)
  parents = np.tile(np.arange(N) - 1, (ROWS, 1))
  tokens = np.where(rng.random((ROWS, N)) < 0.7, np.roll(best, 1, axis=1), 0)
  proposal = base.Proposal(
    tree_lib.Tree(tokens, parents, np.zeros((ROWS, N)), np.full(ROWS, N)), log_q
  )
  args = (
    jax.tree.map(jnp.asarray, proposal),
    jnp.asarray(log_p, jnp.float32),
    jnp.asarray(log_q),
    jnp.arange(ROWS, dtype=jnp.uint32),
    jnp.arange(ROWS),
    jnp.ones(ROWS, bool),
    1.0,
  )
  wanted = run('match', *args)
  assert len(np.unique(wanted.length)) == N
  for rule in STOCHASTIC:
    jax.tree.map(np.testing.assert_array_equal, run(rule, *args), wanted)


@pytest.mark.parametrize('rule', STOCHASTIC)
def test_drafts_without_the_laws_they_came_from_are_refused(rule):
  none = jnp.zeros((1, N), jnp.int32)
  tree = tree_lib.Tree(none, none - 1, none * 0.0, jnp.ones(1, jnp.int32))
  log_p = jnp.zeros((1, N, VOCAB))
  args = (log_p, log_p, jnp.zeros(1, jnp.uint32), none[:, 0], none[:, 0] == 0)
  with pytest.raises(ValueError, match='expected the laws .* log_q_full'):
    run(rule, base.Proposal(tree), *args, 1.0)
  with pytest.raises(ValueError, match='over 5 tokens, .* got 4'):
    run(rule, base.Proposal(tree, log_p[..., 1:]), *args, 1.0)


def test_a_rule_that_is_none_is_named():
  with pytest.raises(ValueError, match="expected .*block, got 'typical'"):
    rules.named('typical')
