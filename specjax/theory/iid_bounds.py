"""Bounds on `D` for i.i.d. next-token laws, from `mu` and `mu2` alone.

In this model every position has the same law, or a law drawn afresh, and the
draft tree is a branching random walk with displacement `-log p`.  Summed over
the nodes of one depth, `sum p(w) f(-log p(w)) = E[f(S_n)]`: the tree is judged
by the renewal process of surprisals, `U(t) = E #{n >= 0 : S_n <= t}`.

Every function takes `mu` (nats), `mu2` (nats squared) and the capacity `N`, of
shapes `[...]` that broadcast, and returns `D` in tokens, of their common shape
`[...]`.  A sure law, `mu = 0`, can win every node, so the bounds from above say
`N` and the one from below says 1.

With heterogeneous contexts none of these bounds the mean of `D` over starts,
which is dominated by the easy ones; the bounds of `start_bounds` do.
"""

import jax
import jax.numpy as jnp


def printed(mu: jax.Array, mu2: jax.Array, capacity: jax.Array) -> jax.Array:
  """Returns `1 + (mu + mu2) log N / mu^2`: a leading term, O(1) omitted.

  The bound of S. Pankratov and D. Alistarh, "Speculative Decoding
  Speed-of-Light: Optimal Lower Bounds via Branching Random Walks",
  arXiv 2512.11718, on the accepted tokens `D - 1`.  Its constant is unknown
  and taken as 0.  Infinite for a sure law, but 1 at `N = 1`.
  """
  safe_mu, is_sure = _divisor(mu)
  slope = jnp.where(is_sure, jnp.inf, (1.0 + mu2 / safe_mu) / safe_mu)
  return 1.0 + jnp.where(capacity > 1, slope * jnp.log(capacity), 0.0)


def lorden(mu: jax.Array, mu2: jax.Array, capacity: jax.Array) -> jax.Array:
  """Returns the upper bound `min(N, log(N - 1) / mu + mu2 / mu^2 + 1)`.

  By counting, `D <= U(t) + (N - 1) e^-t` for any t; `t = log(N - 1)` and
  `U(t) <= t / mu + mu2 / mu^2` (G. Lorden, "On excess over the boundary",
  1970).
  """
  safe_mu, is_sure = _divisor(mu)
  log_others = jnp.log(jnp.maximum(capacity - 1.0, 1.0))
  value = log_others / safe_mu + mu2 / safe_mu / safe_mu + 1.0
  return _clip(value, is_sure, capacity)


def lorden_dual(
  mu: jax.Array, mu2: jax.Array, capacity: jax.Array
) -> jax.Array:
  """Returns the upper bound `log(1 + mu (N - c)) / mu + c`, `c = mu2 / mu^2`.

  By duality, `D <= N e^-t + integral_0^t U(x) e^(x - t) dx` for any t.  With
  `U(x) <= x / mu + c` the right side is `(N - c + 1/mu) e^-t + t / mu + c -
  1/mu`, least at `e^t = 1 + mu (N - c)`.  For `N < c` that t is negative, and
  t = 0 gives `N`.
  """
  safe_mu, is_sure = _divisor(mu)
  c = mu2 / safe_mu / safe_mu
  value = jnp.log1p(mu * jnp.maximum(capacity - c, 0.0)) / safe_mu + c
  return _clip(value, is_sure | (capacity < c), capacity)


def achievable(mu: jax.Array, mu2: jax.Array, capacity: jax.Array) -> jax.Array:
  """Returns the lower bound `log((mu N + 1) / (1 + mu2 / mu)) / mu`, or 1.

  Some tree of `N` nodes does better, for one fixed law; for random laws, some
  rule of mean size `N` does.  Slightly above the simpler
  `(log N - log((mu + mu2) / mu^2)) / mu`.
  """
  safe_mu, is_sure = _divisor(mu)
  value = jnp.log((mu * capacity + 1.0) / (1.0 + mu2 / safe_mu)) / safe_mu
  return jnp.where(is_sure, 1.0, jnp.maximum(value, 1.0))


def sharp(mu: jax.Array, mu2: jax.Array, capacity: jax.Array) -> jax.Array:
  """Returns the asymptote `(log N + log mu) / mu + mu2 / (2 mu^2)`.

  What the best tree wins up to o(1), for laws that are not on a lattice: a
  bound in neither direction, and slow to be reached by peaked laws.  From the
  Tunstall codes of M. Drmota, Y. Reznik and W. Szpankowski, "Tunstall code,
  Khodak variations, and random walks", 2010.  Clipped to [1, N].
  """
  safe_mu, is_sure = _divisor(mu)
  value = jnp.log(capacity * safe_mu) + mu2 / safe_mu / 2.0
  return _clip(value / safe_mu, is_sure, capacity)


def sharp_lattice(
  mu: jax.Array, mu2: jax.Array, capacity: jax.Array, span: jax.Array
) -> jax.Array:
  """Returns the asymptote for laws whose surprisals are multiples of `span`.

  The best trees are complete at the sizes `M_n = d e^(n d) / (mu (1 - e^-d))`,
  with the value `U_n = n d / mu + (mu2 + d mu) / (2 mu^2)`, up to o(1); between
  them every further node adds `e^-(n + 1) d`.  Exact up to O(1 / N) for uniform
  laws.  Clipped to [1, N].

  Args:
    mu: `[...]` nats.
    mu2: `[...]` nats squared.
    capacity: `[...]`, `N`.
    span: `[...]` nats, the lattice's span `d`, positive.
  """
  safe_mu, is_sure = _divisor(mu)
  scale = span / (safe_mu * -jnp.expm1(-span))  # M_n = scale e^(n d)
  n = jnp.floor(jnp.log(capacity / scale) / span)
  size = scale * jnp.exp(n * span)
  value = n * span / safe_mu + (mu2 / safe_mu + span) / (2.0 * safe_mu)
  value += (capacity - size) * jnp.exp(-(n + 1.0) * span)
  return _clip(value, is_sure, capacity)


def _divisor(mu):
  """Returns `mu` fit to divide by, and where it is 0."""
  is_sure = jnp.asarray(mu) <= 0.0
  return jnp.where(is_sure, 1.0, mu), is_sure


def _clip(value, is_vacuous, capacity):
  """Returns `value` within the sure limits `1 <= D <= N`."""
  return jnp.where(is_vacuous, capacity, jnp.clip(value, 1.0, capacity))
