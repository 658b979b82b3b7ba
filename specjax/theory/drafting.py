"""What drafters win that are not the verifier, and drafts that are random.

A fixed tree is worth `sum_{w in T} p(w)`, whoever grew it.  A drafter of law q
takes the nodes with `q(w) >= e^-t`, of which there are about `e^t / H_q`.  The
text follows p and leaves the tree when its cost under q, a walk of steps
`-log q(x)` with x drawn from p, exceeds t.  So the depth is that of a renewal
process of mean step `E_p[-log q] = H + KL(p||q)`.

A random tree escapes this law of `log N`.  A rule that leaves the output's law
as it is emits w as a beginning of its text with probability `p(w)`, and accepts
w as a draft only where w was drafted:

  E[D] = sum_w Pr[w is accepted] <= sum_w min(p(w), Pr[w in T]).

With `q = p` a chain of drafts can be accepted whole.  As elsewhere `N` counts
the root, which is always accepted: a chain of `N` nodes has `N - 1` drafts.
"""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp


class CrossMoments(NamedTuple):
  """Moments of the steps `-log q(x)` of a text that follows p, all `[...]`.

  Attributes:
    mean: nats, `E_p[-log q]` over the tokens that q can draft; it is
      `H + KL(p||q)` if those are all.
    second: nats squared, `E_p[log^2 q]` over the same tokens.
    drafter_entropy: nats, `H_q = E_q[-log q]`.
    missed: probability under p of the tokens that q never drafts.
  """

  mean: jax.Array
  second: jax.Array
  drafter_entropy: jax.Array
  missed: jax.Array


def cross_moments(log_p: jax.Array, log_q: jax.Array) -> CrossMoments:
  """Returns the moments `[...]` of pairs of laws.

  For random i.i.d. pairs of laws take their means over the pairs.

  Args:
    log_p: `[..., V]` the verifier's log-probabilities, of the law that is
      sampled; -inf where a token cannot occur.
    log_q: `[..., V]` the drafter's; -inf where it drafts no token.
  """
  chex.assert_equal_shape([log_p, log_q])
  p, q = jnp.exp(log_p), jnp.exp(log_q)
  is_drafted = ~jnp.isneginf(log_q)
  cost = jnp.where(is_drafted, -log_q, 0.0)
  return CrossMoments(
    mean=jnp.sum(p * cost, axis=-1),
    second=jnp.sum(p * cost**2, axis=-1),
    drafter_entropy=jnp.sum(q * cost, axis=-1),
    missed=jnp.sum(jnp.where(is_drafted, 0.0, p), axis=-1),
  )


def drafter_asymptote(moments: CrossMoments, capacity: jax.Array) -> jax.Array:
  """Returns the tokens `D` that the drafter's own best trees win, up to o(1).

    (log N + log H_q) / CE + m2 / (2 CE^2),

  `CE = H + KL(p||q)` and `m2 = E_p[log^2 q]`, for laws that are not on a
  lattice: a doubling of capacity buys `log 2 / CE` where a perfect drafter gets
  `log 2 / H`.  A drafter that misses the mass e of p loses the text with that
  chance at every token; with the moments given that it does not, and U for the
  value above, `D = (1 - (1 - e)^U) / e`, which ends at `1 / e` however large
  the tree.  A bound in neither direction, within [1, N].  Derived as
  `iid_bounds.sharp` is, which it equals for `q = p`.

  Args:
    moments: of `cross_moments`, `[...]`.
    capacity: `N`, broadcast against them.
  """
  kept = 1.0 - moments.missed
  safe_kept = jnp.where(kept > 0.0, kept, 1.0)
  mean = moments.mean / safe_kept
  # The drafter is sure of its tokens: its tree is a chain.
  is_chain = mean <= 0.0
  safe_mean = jnp.where(is_chain, 1.0, mean)
  safe_entropy = jnp.where(is_chain, 1.0, moments.drafter_entropy)
  overshoot = moments.second / safe_kept / safe_mean / 2.0
  depth = (jnp.log(capacity * safe_entropy) + overshoot) / safe_mean
  depth = jnp.where(is_chain, capacity, jnp.clip(depth, 1.0, capacity))
  return chain(kept, depth)


def variance(
  mean: jax.Array, second: jax.Array, capacity: jax.Array
) -> jax.Array:
  """Returns the leading term of `Var D`, in tokens squared.

  `(m2 - CE^2) log N / CE^3`, the variance of a renewal count (W. Smith, 1959);
  what is left out stays bounded as `N` grows.  0 for uniform and sure laws,
  whose variance stays bounded.

  Args:
    mean: nats, `CE`; the mean entropy mu for a perfect drafter.
    second: nats squared, `m2`; mu2 for a perfect drafter.
    capacity: `N`.
  """
  safe_mean = jnp.where(mean > 0.0, mean, 1.0)
  spread = jnp.maximum(second - mean * mean, 0.0) / safe_mean**3
  return jnp.where(mean > 0.0, spread * jnp.log(capacity), 0.0)


def chain(acceptance: jax.Array, capacity: jax.Array) -> jax.Array:
  """Returns `D = (1 - a^N) / (1 - a)` tokens of a chain of drafts.

  Each of the `N - 1` drafts is accepted with probability a if all before it
  were (Y. Leviathan, M. Kalman and Y. Matias, "Fast Inference from Transformers
  via Speculative Decoding", arXiv 2211.17192).  Their rule has `a = 1 -
  TV(p, q)`, which is `draft_acceptance` of one draft.

  Args:
    acceptance: a, in [0, 1].
    capacity: `N >= 1`, broadcast against it.
  """
  is_sure = jnp.asarray(acceptance) >= 1.0
  log_a = jnp.log(jnp.where(is_sure, 0.5, acceptance))
  value = jnp.expm1(capacity * log_a) / jnp.expm1(log_a)
  return jnp.where(is_sure, capacity, value)


def random_tree_bound(log_p: jax.Array, log_membership: jax.Array) -> jax.Array:
  """Returns `sum_w min(p(w), Pr[w in T])`, an upper bound on `D` in tokens.

  For every lossless way of verifying a random tree; proof in the module's
  docstring.  A tree without randomness is worth exactly this.

  Args:
    log_p: `[..., W]` log-probabilities of all paths that may be drafted, the
      root with 0 among them, paths that end in EOS not.
    log_membership: `[..., W]` log-probability that the tree holds the path.
  """
  chex.assert_equal_shape([log_p, log_membership])
  return jnp.sum(jnp.exp(jnp.minimum(log_p, log_membership)), axis=-1)


def chain_overlaps(log_p: jax.Array, log_q: jax.Array) -> jax.Array:
  """Returns samples `[..., A]` whose means bound a chain's acceptances.

  `Pr[the first l drafts are accepted] <= 1 - TV(p_{1:l}, q_{1:l}) =
  E_q[min(1, p(x_{1:l}) / q(x_{1:l}))]` for l = 1 .. A, whatever lossless rule
  verifies them; `D` is at most 1 plus the sum over l.  The laws of chains are
  those given their starts, and the mean may be over starts too.

  Args:
    log_p: `[..., A]` the verifier's log-probability of each draft after the
      drafts before it; -inf from an EOS on, for that is worth nothing.
    log_q: `[..., A]` log-probability under the law it was drafted from; finite.
  """
  chex.assert_equal_shape([log_p, log_q])
  log_ratio = jnp.cumsum(log_p - log_q, axis=-1)
  return jnp.exp(jnp.minimum(log_ratio, 0.0))


def draft_acceptance(
  log_p: jax.Array, log_q: jax.Array, num_drafts: int
) -> jax.Array:
  """Returns the best chance `[...]` that one of k i.i.d. drafts is accepted.

    min over sets H of tokens of  1 + p(H) - q(H)^k.

  An accepted token lies in H with probability at most `p(H)`; out of H it must
  have been drafted, with probability at most `1 - q(H)^k`.  Some transport
  attains the minimum, and it lies among the sets of the tokens with the least
  `p / q`, none and all included (Z. Hu et al., "Towards Optimal Multi-draft
  Speculative Decoding", arXiv 2502.18779).  One draft gives `1 - TV(p, q)`.

  Args:
    log_p: `[..., V]` the verifier's log-probabilities at one position.
    log_q: `[..., V]` those of the law that the drafts are drawn from, with
      replacement.
    num_drafts: `k >= 1`.

  Raises:
    ValueError: `num_drafts` is below 1.
  """
  if num_drafts < 1:
    raise ValueError(f'expected num_drafts >= 1, got {num_drafts}')
  chex.assert_equal_shape([log_p, log_q])
  # A token that is never drafted comes last, also if it never occurs either.
  log_ratio = jnp.where(jnp.isneginf(log_q), jnp.inf, log_p - log_q)
  order = jnp.argsort(log_ratio, axis=-1)

  def masses(log_law):
    law = jnp.take_along_axis(jnp.exp(log_law), order, axis=-1)
    return jnp.cumsum(law, axis=-1)

  values = 1.0 + masses(log_p) - masses(log_q) ** num_drafts
  return jnp.clip(jnp.min(values, axis=-1), 0.0, 1.0)
