"""What the head of a law, its K most probable tokens, says of the whole law.

Every function here is exact where its docstring says so, and errs to the side
that keeps the bounds valid elsewhere.  All rest on one remark: the tail's
tokens have the total `tail_mass` and none is above the head's last
probability `p_K`, so on the tail a convex function that is 0 at 0 is at most
the chord `p f(p_K) / p_K`.
"""

import chex
import flax
import jax
import jax.numpy as jnp

from specjax.theory import entropy as entropy_lib

# Replaces a divisor of 0 where the quotient is multiplied by 0.
_TINY = 1e-30


@flax.struct.dataclass
class Head:
  """The K most probable tokens of a law, and the mass of the others.

  Attributes:
    log_p: `[..., K]` falling log-probabilities.
    p: `[..., K]` probabilities of the tokens that count: 0 for those that end
      a text, where they were excluded.
    tail_mass: `[...]` probability of all tokens that are not in the head.
  """

  log_p: jax.Array
  p: jax.Array
  tail_mass: jax.Array


def of_laws(
  laws: entropy_lib.LawSummary, excluded: jax.Array | None = None
) -> Head:
  """Returns the heads `[...]` of laws.

  Args:
    laws: summaries `[...]`.
    excluded: `[num_eos]` int32, tokens of the head that shall not count.
  """
  head = of_top(laws.top_log_p)
  if excluded is None:
    return head
  is_excluded = jnp.isin(laws.top_tokens, excluded)
  return head.replace(p=jnp.where(is_excluded, 0.0, head.p))


def of_top(top_log_p: jax.Array) -> Head:
  """Returns the heads `[...]` of laws whose K most probable tokens are known.

  Args:
    top_log_p: `[..., K]` falling; -inf past the support.
  """
  p = jnp.exp(top_log_p)
  # A head that holds the whole support has no tail but rounding.
  holds_all = jnp.isneginf(top_log_p[..., -1])
  tail_mass = jnp.maximum(1.0 - jnp.sum(p, axis=-1), 0.0)
  return Head(
    log_p=top_log_p, p=p, tail_mass=jnp.where(holds_all, 0.0, tail_mass)
  )


def excess(head: Head, log_theta: jax.Array) -> jax.Array:
  """Returns `sum_y (p_y - theta)_+`, exactly if `theta >= 1 / K`.

  At most `1 / theta` tokens have `p_y >= theta`, for their sum is at most 1; so
  for `theta >= 1 / K` the head holds them all.  Below, the tail is given its
  chord `tail_mass (1 - theta / p_K)_+`, which is an upper bound and still 0,
  hence exact, where `p_K <= theta`.

  Args:
    head: heads `[...]`.
    log_theta: `[...]` log of the threshold; 0 is returned for positive ones.
  """
  chex.assert_equal_shape([head.tail_mass, log_theta])
  theta = jnp.exp(log_theta)
  last_p = jnp.maximum(jnp.exp(head.log_p[..., -1]), _TINY)
  in_head = jnp.sum(jnp.maximum(head.p - theta[..., None], 0.0), axis=-1)
  return in_head + head.tail_mass * jnp.maximum(1.0 - theta / last_p, 0.0)


def mass_above(head: Head, log_theta: jax.Array) -> jax.Array:
  """Returns `sum of p_y over p_y >= theta`, exactly if `theta >= 1 / K`.

  For smaller `theta` than `p_K` the whole tail is counted: an upper bound.

  Args:
    head: heads `[...]`.
    log_theta: `[...]` log of the threshold.
  """
  chex.assert_equal_shape([head.tail_mass, log_theta])
  is_above = head.log_p >= log_theta[..., None]
  in_head = jnp.sum(jnp.where(is_above, head.p, 0.0), axis=-1)
  return in_head + jnp.where(is_above[..., -1], head.tail_mass, 0.0)


def capped_surprisal(head: Head, cap: jax.Array) -> jax.Array:
  """Returns `sum_y p_y min(-log p_y, cap)` nats, exactly if `cap <= -log p_K`.

  Tokens of the tail have at least the surprisal `-log p_K`.  Under a lower cap
  all of them count `cap`; under a higher one they are counted as `-log p_K`,
  which is a lower bound.

  Args:
    head: heads `[...]`.
    cap: `[...]` nats, may be inf.
  """
  chex.assert_equal_shape([head.tail_mass, cap])
  counts = head.p > 0.0  # 0 log 0 = 0
  surprisal = jnp.minimum(jnp.where(counts, -head.log_p, 0.0), cap[..., None])
  has_tail = head.tail_mass > 0.0
  of_tail = jnp.minimum(jnp.where(has_tail, -head.log_p[..., -1], 0.0), cap)
  return jnp.sum(head.p * surprisal, axis=-1) + head.tail_mass * of_tail


def saturating_cap(head: Head, surplus: jax.Array) -> jax.Array:
  """Returns the `cap` at which `sum_y min(1, p_y e^cap) = 1 + surplus`.

  Write `R_j` for the mass of all but the j most probable tokens.  In a sum of
  minima every choice of sides is an upper bound and the best choice takes side
  1 for the most probable tokens, so the left side is `min_j (j + R_j e^cap)`.
  It reaches `1 + surplus` once each of the terms does:

    e^cap = max over j of (1 + surplus - j)_+ / R_j,

  infinite if `1 + surplus` tokens or fewer carry all the mass.  Terms with
  `j > 1 + surplus` are 0, so the head has all that matter if `surplus < K - 1`;
  then fewer than K tokens are saturated, so `cap <= -log p_K` and
  `capped_surprisal` is exact too.  For a larger surplus the head's terms give a
  smaller cap, at which the sum is at most `1 + surplus`: valid, not tight.

  Args:
    head: heads `[...]` with no token excluded.
    surplus: `[]`, positive.
  """
  num_top = head.p.shape[-1]
  # R_0 .. R_K, summed from the small end: 1 - cumsum would lose small tails.
  masses = jnp.concatenate([head.p, head.tail_mass[..., None]], axis=-1)
  rest = jnp.flip(jnp.cumsum(jnp.flip(masses, axis=-1), axis=-1), axis=-1)
  room = 1.0 + surplus - jnp.arange(num_top + 1)
  log_ratio = jnp.where(
    room > 0.0,
    jnp.log(jnp.maximum(room, _TINY)) - jnp.log(rest),
    -jnp.inf,
  )
  return jnp.max(log_ratio, axis=-1)
