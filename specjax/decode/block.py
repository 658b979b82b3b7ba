"""Block verification: a chain of drafts is judged as a whole.

Z. Sun et al., "Block Verification Accelerates Speculative Decoding", arXiv
2403.10444.  For drafts x_1 .. x_n, with p_i and q_i the laws of verifier and
drafter after the first i of them,

  k_0 = 1,  k_i = min(1, k_{i-1} p_{i-1}(x_i) / q_{i-1}(x_i)),
  S_i = sum of max(k_i p_i - q_i, 0) over the vocabulary,
  h_i = S_i / (S_i + 1 - k_i) for i < n,  h_n = k_n.

The last i whose coin wins against h_i is where the chain is left, by a token of
law norm(max(k_i p_i - q_i, 0)), or p_n at its end; h_0 = 1.

Why it is lossless: let the chain be left at i or later with probability k_i,
given x_1 .. x_i.  That holds for n, and if it does for i + 1, then for i:
a mean over x_{i+1} gives `sum of min(k_i p_i, q_i) = k_i - S_i` for i + 1 or
later, and h_i of the rest makes it k_i.  So token x comes after the first i
with probability `min(k_i p_i(x), q_i(x)) + max(k_i p_i(x) - q_i(x), 0)`, which
is k_i p_i(x).  One by one, i drafts are accepted with the product of the
`min(1, p / q)`, which is at most k_i.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from specjax import noise as noise_lib
from specjax import sampling as sampling_lib
from specjax.decode import chances
from specjax.decode import trial as trial_lib
from specjax.trees import tree as tree_lib


class _Chain(NamedTuple):
  """A batch of chains on their way, and where they are left so far."""

  nodes: jax.Array  # [B] to look at next, -1 past the end
  log_kept: jax.Array  # [B] log k of these nodes
  depth: jax.Array  # [] of these nodes
  path: tree_lib.Path  # the chain itself; its length: up to where it is left
  token: jax.Array  # [B] that leaves it
  log_p: jax.Array  # [B] of that token, as reported


def block(trial: trial_lib.Trial) -> tree_lib.Path:
  """Goes along chains by block verification.

  Args:
    trial: the drafts; of a tree, the chain of first children is looked at.

  Returns:
    The path.

  Raises:
    ValueError: drafts without laws, or laws of another vocabulary.
  """
  coins = trial.coins()
  is_inside = lambda chain: jnp.any(chain.nodes != tree_lib.NO_CHILD)
  step = lambda chain: _step(trial, coins, chain)
  return _left(lax.while_loop(is_inside, step, _start(trial)))


def _start(trial):
  """The chains before their roots were looked at."""
  ints = jnp.zeros_like(trial.proposal.tree.tokens)
  floats = jnp.zeros(ints.shape)
  return _Chain(
    nodes=jnp.where(trial.active, tree_lib.ROOT, tree_lib.NO_CHILD),
    log_kept=floats[:, 0],
    depth=jnp.int32(0),
    path=tree_lib.Path(ints, ints, floats, ints[:, 0]),
    token=ints[:, 0],
    log_p=floats[:, 0],
  )


def _step(trial, coins, chain):
  """Looks at one node of each chain."""
  inside = chain.nodes != tree_lib.NO_CHILD
  nodes = jnp.maximum(chain.nodes, tree_lib.ROOT)
  laws = trial.laws_fn(nodes)
  is_child = trial.children(nodes)
  is_last = ~jnp.any(is_child, axis=1)
  children = jnp.argmax(is_child, axis=1).astype(jnp.int32)
  drafts = sampling_lib.at(trial.proposal.tree.tokens, children)
  chance, log_law, log_kept = jax.vmap(chances.block_chance)(
    laws.sampled,
    trial.log_q(nodes, laws.sampled.shape[1]),
    drafts,
    is_last,
    chain.log_kept,
  )
  token = trial.draw(log_law, chain.depth, noise_lib.USE_RESIDUAL)
  log_p = sampling_lib.at(laws.reported, token)
  wins = inside & (sampling_lib.at(coins, nodes) < chance)
  # Behind a draft that cannot be, none can be accepted.
  goes_on = inside & ~is_last & (log_kept > -jnp.inf)
  put = lambda column, value: column.at[:, chain.depth].set(value)
  return _Chain(
    nodes=jnp.where(goes_on, children, tree_lib.NO_CHILD),
    log_kept=log_kept,
    depth=chain.depth + 1,
    path=tree_lib.Path(
      nodes=put(chain.path.nodes, nodes),
      tokens=put(chain.path.tokens, drafts),
      extra=put(chain.path.extra, sampling_lib.at(laws.reported, drafts)),
      length=jnp.where(wins, chain.depth + 1, chain.path.length),
    ),
    token=jnp.where(wins, token, chain.token),
    log_p=jnp.where(wins, log_p, chain.log_p),
  )


def _left(chain):
  """The path up to where a chain is left, by its last token; 0 past that."""
  path = chain.path
  place = jnp.arange(path.nodes.shape[1])
  last = path.length[:, None] - 1
  end = lambda values, value: jnp.where(
    place < last, values, jnp.where(place == last, value[:, None], 0)
  )
  return path._replace(
    nodes=jnp.where(place <= last, path.nodes, 0),
    tokens=end(path.tokens, chain.token),
    extra=end(path.extra, chain.log_p),
  )
