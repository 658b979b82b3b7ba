"""How likely a draft is to be accepted, and what is left where it is not.

The arithmetic of the stochastic verification rules, one node at a time and
without noise.  Laws are log-probabilities in nats, so that what is left of a
law is exact however little it is.
"""

import jax
import jax.numpy as jnp
from jax import lax


def residual(
  log_p: jax.Array, log_q: jax.Array, log_kept: jax.Array = 0.0
) -> tuple[jax.Array, jax.Array]:
  """Returns what of a law another one does not cover: mass and law.

    m = sum of max(k p - q, 0),  r = max(k p - q, 0) / m.

  Where nothing is left, as for `p = q` and k = 1, no draft can be rejected but
  by rounding, and r is p.

  Args:
    log_p: `[V]` the verifier's law.
    log_q: `[V]` the drafter's.
    log_kept: `[]` log k, k in [0, 1].

  Returns:
    `[]` log m and `[V]` log r, no NaN in them.
  """
  log_p_kept = log_p + log_kept
  is_more = log_p_kept > log_q
  gap = jnp.where(is_more, log_q - log_p_kept, 0.0)
  # Where there is nothing more the gap of 0 leaves log 0.
  log_more = jnp.where(is_more, log_p_kept, 0.0) + jnp.log(-jnp.expm1(gap))
  log_mass = jax.nn.logsumexp(log_more)
  is_empty = jnp.isneginf(log_mass)
  log_law = log_more - jnp.where(is_empty, 0.0, log_mass)
  return log_mass, jnp.where(is_empty, log_p, log_law)


def rejection_chances(
  log_p: jax.Array,
  log_q: jax.Array,
  tokens: jax.Array,
  is_child: jax.Array,
  *,
  replaced: bool,
) -> tuple[jax.Array, jax.Array]:
  """Returns the chances of one node's children, tried in their order.

  Args:
    log_p: `[V]` the verifier's law after the node.
    log_q: `[V]` the law that the first child was drawn from.
    tokens: `[N]` int32 tokens of the tree's nodes.
    is_child: `[N]` bool; which of them are the children.
    replaced: whether the children were drawn with replacement.

  Returns:
    `[N]` chance that a child is accepted if those before it were not, 0 for all
    other nodes; `[V]` law of the token where none is accepted.
  """

  def try_next(carry):
    left, chances, log_r, log_q = carry
    node = jnp.argmax(left)
    token = tokens[node]
    log_d = drawn_from(log_q, token)
    chance = jnp.exp(jnp.minimum(log_r[token] - log_d[token], 0.0))
    _, log_r = residual(log_r, log_d)
    if not replaced:
      log_q = without(log_q, token)
    left = left.at[node].set(False)
    return left, chances.at[node].set(chance), log_r, log_q

  carry = (is_child, jnp.zeros(tokens.shape), log_p, log_q)
  _, chances, log_r, _ = lax.while_loop(
    lambda carry: jnp.any(carry[0]), try_next, carry
  )
  return chances, log_r


def block_chance(
  log_p: jax.Array,
  log_q: jax.Array,
  draft: jax.Array,
  is_last: jax.Array,
  log_kept: jax.Array,
) -> tuple[jax.Array, jax.Array, jax.Array]:
  """Returns the chance that a chain is left at a node, if not behind it.

    h = S / (S + 1 - k),  S = sum of max(k p - q, 0);  at the last node h = k.

  Args:
    log_p: `[V]` the verifier's law after the node.
    log_q: `[V]` the law that the next draft was drawn from; not looked at if
      there is none.
    draft: `[]` int32 token of the next draft.
    is_last: `[]` bool; there is no next draft.
    log_kept: `[]` log k of the node, 0 at the root.

  Returns:
    `[]` h; `[V]` law of the token that leaves the chain there; `[]` log k of
    the next node.
  """
  log_d = drawn_from(log_q, draft)
  log_mass, log_law = residual(log_p, log_d, log_kept)
  mass, lost = jnp.exp(log_mass), -jnp.expm1(log_kept)
  is_sure = mass + lost <= 0.0
  chance = jnp.where(is_sure, 1.0, mass / jnp.where(is_sure, 1.0, mass + lost))
  return (
    jnp.where(is_last, jnp.exp(log_kept), chance),
    jnp.where(is_last, log_p, log_law),
    jnp.minimum(log_kept + log_p[draft] - log_d[draft], 0.0),
  )


def drawn_from(log_q: jax.Array, token: jax.Array) -> jax.Array:
  """Returns the law `[V]` that a draft really came from.

  A draft to which its law gives no probability was not drawn: the law was used
  up, or the drafter put it there.  Then it was certain.

  Args:
    log_q: `[V]` the drafter's law.
    token: `[]` int32 the draft.
  """
  certain = jnp.where(jnp.arange(log_q.shape[0]) == token, 0.0, -jnp.inf)
  return jnp.where(jnp.isneginf(log_q[token]), certain, log_q)


def without(log_q: jax.Array, token: jax.Array) -> jax.Array:
  """Returns the law `[V]` of a further draw that cannot give the token again.

  Args:
    log_q: `[V]` the law so far.
    token: `[]` int32 what was drawn.

  Returns:
    The law; all `-inf` where nothing is left.
  """
  rest = log_q.at[token].set(-jnp.inf)
  log_mass = jax.nn.logsumexp(rest)
  return rest - jnp.where(jnp.isneginf(log_mass), 0.0, log_mass)
