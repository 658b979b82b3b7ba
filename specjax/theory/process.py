"""The speculative process itself, run on texts of an environment.

Sample-and-match decoding emits the very tokens that plain sampling would, so a
text is sampled first and then every policy is run on the same one: at a start
the policy draws a tree from what is known there, the text's next tokens walk
through it, and the first that leaves it is the bonus token.  The next start is
behind that.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from specjax.theory import brw, environment
from specjax.theory import entropy as entropy_lib
from specjax.trees import tree as tree_lib

# From the state of a start to the tree that is drafted there.
Policy = Callable[[environment.State], tree_lib.Tree]


class Sample(NamedTuple):
  """Texts drawn from an environment, and all that can be known in them.

  Attributes:
    texts: `[R, T]` tokens and their laws; no token ends a text.
    states: `[R, T]` the state before each token.
  """

  texts: entropy_lib.Texts
  states: environment.State


@functools.partial(jax.jit, static_argnums=(2, 3, 4))
def sample(
  env: environment.Environment,
  key: jax.Array,
  num_texts: int,
  length: int,
  num_top: int = 64,
) -> Sample:
  """Draws texts, each from a start of its own.

  Args:
    env: the environment.
    key: consumed.
    num_texts: `R`.
    length: `T`, tokens of a text.
    num_top: tokens that are kept of each law.
  """

  def step(state, key):
    log_p = env.log_law(state)
    token = jax.random.categorical(key, log_p).astype(jnp.int32)
    law = entropy_lib.summarise(log_p, token, num_top)
    return env.child(state, token), (law, token, state)

  def text(key):
    key_root, key_tokens = jax.random.split(key)
    keys = jax.random.split(key_tokens, length)
    return lax.scan(step, env.root(key_root), keys)[1]

  law, tokens, states = jax.vmap(text)(jax.random.split(key, num_texts))
  texts = entropy_lib.Texts(
    laws=law,
    tokens=tokens,
    num_tokens=jnp.full(num_texts, length, jnp.int32),
    eos_ids=jnp.zeros(0, jnp.int32),
  )
  return Sample(texts=texts, states=states)


@functools.partial(jax.jit, static_argnums=1)
def run(sample: Sample, policy: Policy) -> jax.Array:
  """Returns `[R, T]` int32: tokens that the iteration starting there emits.

  0 where no iteration starts, so the starts that were visited are the positive
  entries, tokens per iteration are their mean, and the verifier calls that the
  first n tokens of a text need are those among its first n.  The last
  iteration's count ends with the text.

  Args:
    sample: texts and states.
    policy: draws the trees; all of one size `N`.
  """
  tokens = sample.texts.tokens
  num_texts, length = tokens.shape
  rows = jnp.arange(num_texts)

  def iterate(carry):
    places, emitted = carry
    at = lambda x: x[rows, jnp.minimum(places, length - 1)]
    trees = jax.vmap(policy)(jax.tree.map(at, sample.states))

    def next_token(_, level):
      return tokens[rows, jnp.minimum(places + level, length - 1)], ()

    path = tree_lib.walk(trees, next_token, active=places < length)
    count = jnp.minimum(path.length, length - places)
    emitted = emitted.at[rows, places].set(count, mode='drop')
    return places + path.length, emitted

  start = (jnp.zeros(num_texts, jnp.int32), jnp.zeros_like(tokens))
  _, emitted = lax.while_loop(
    lambda carry: jnp.any(carry[0] < length), iterate, start
  )
  return emitted


def best_policy(
  env: environment.Environment,
  max_nodes: int,
  count_fn: Callable[[environment.State], jax.Array] | None = None,
) -> Policy:
  """Returns the policy that drafts the best tree of a size it may choose.

  Args:
    env: the environment.
    max_nodes: `N`, the largest size.
    count_fn: from a state to the nodes of its tree, `[]` int32 in 1 .. N; N
      everywhere if None.
  """

  def policy(state):
    tree = brw.best_tree(env, state, max_nodes)
    if count_fn is None:
      return tree
    return tree.replace(num_nodes=jnp.clip(count_fn(state), 1, max_nodes))

  return policy
