"""Bounds on `E[D | start]` for any process, from sampled texts.

Nothing is assumed of the verifier: contexts may be as unlike as they please.
A start is a place in a sampled text, its root the token before it; the text
after it is one sample of what a draft tree there is compared with.

`dual`.  Let `T` be any prefix-closed set of at most `N` nodes chosen at the
context `c`, and `theta = e^-t`.  A node that ends in EOS is followed by no
token, is worth nothing, and is left out.  Then

  E[D | c] = sum_{w in T} p(w) <= N theta + sum_{w in T} (p(w) - theta)_+
          <= N theta + sum over all w of depth <= N - 1 of (p(w) - theta)_+
           = N theta + E[ sum_{n = 0}^{N - 1} (1 - e^(S_n - t))_+ | c ],

the last because a path of depth n is sampled with probability `p(w)`; the sum
stops at EOS.  No tree of `N` nodes is deeper than `N - 1`.  The best tree
makes it an equality at the t of its least probable node.  Averaged over
starts: one constant t covers every rule of *mean* size at most `N`; a t that
depends on the context covers the rules with at most `N` nodes at *every*
context, and is tighter.

`counting`.  The same with `1[S_n <= t]` in place of `(1 - e^(S_n - t))_+`:
nodes with `p(w) >= theta` are all counted, and of the others there are at most
`N - 1`, for the root is not among them, each worth at most theta.

In both, the term of depth n + 1 is replaced by its mean given the first n
tokens, which the head of the law after them tells: `sum_y (p_y - e^(S_n -
t))_+` over the tokens y that are not EOS.  A walk that is still below t where
its recorded text ends, without EOS, is open: `S_n` can only grow, so no later
depth is worth more than depth n, and all of them are counted as that.  Never
drop a start because its walk is open: that keeps the hard ones, and the result
bounds nothing.
"""

from collections.abc import Callable

import chex
import flax
import jax
import jax.numpy as jnp
import numpy as np

from specjax.theory import entropy as entropy_lib
from specjax.theory import heads as heads_lib


@flax.struct.dataclass
class StartBound:
  """A bound's sample at each start; its mean over starts is the bound.

  Attributes:
    values: `[M]` tokens.  A single one may lie on either side of `E[D | c]`.
    is_open: `[M]` bool, the walk outlived its text and counts its worst case.
  """

  values: jax.Array
  is_open: jax.Array

  @property
  def num_open(self) -> jax.Array:
    """`[]` int32: walks that count their worst case."""
    return jnp.sum(self.is_open)


def dual(
  texts: entropy_lib.Texts,
  rows: jax.Array,
  positions: jax.Array,
  capacity: int,
  thresholds: jax.Array,
) -> StartBound:
  """Returns samples of the dual bound on `D`, in tokens.

  `N e^-t + E[sum over n < N of (1 - e^(S_n - t))_+]`; proof in the module's
  docstring.

  Args:
    texts: sampled texts with their laws, of `R` rows and `T` tokens.
    rows: `[M]` int32, the text of each start.
    positions: `[M]` int32, the first token after each start's root.
    capacity: `N >= 1`.
    thresholds: `[]` or `[M]` nats, t; functions of what precedes the start.

  Raises:
    ValueError: the capacity is below 1, a threshold is negative, or a start
      lies outside its text.
  """
  thresholds = _check(texts, rows, positions, capacity, thresholds)
  return _dual(texts, rows, positions, capacity, thresholds)


def counting(
  texts: entropy_lib.Texts,
  rows: jax.Array,
  positions: jax.Array,
  capacity: int,
  thresholds: jax.Array,
) -> StartBound:
  """Returns samples of the counting bound on `D`, in tokens.

  `E #{n < N : S_n <= t} + (N - 1) e^-t`; never below `dual` at the same t.
  Arguments and errors are those of `dual`.
  """
  thresholds = _check(texts, rows, positions, capacity, thresholds)
  return _counting(texts, rows, positions, capacity, thresholds)


@jax.jit
def _dual(texts, rows, positions, capacity, thresholds):
  """`dual` after its checks."""
  walks = _walk(
    texts,
    rows,
    positions,
    capacity,
    thresholds,
    next_fn=heads_lib.excess,
    here_fn=lambda room: -jnp.expm1(-room),
  )
  sure = capacity * jnp.exp(-thresholds) - jnp.expm1(-thresholds)
  return walks.replace(values=sure + walks.values)


@jax.jit
def _counting(texts, rows, positions, capacity, thresholds):
  """`counting` after its checks."""
  walks = _walk(
    texts,
    rows,
    positions,
    capacity,
    thresholds,
    next_fn=heads_lib.mass_above,
    here_fn=jnp.ones_like,
  )
  sure = (capacity - 1) * jnp.exp(-thresholds) + 1.0
  return walks.replace(values=sure + walks.values)


def _walk(
  texts: entropy_lib.Texts,
  rows: jax.Array,
  positions: jax.Array,
  capacity: jax.Array,
  thresholds: jax.Array,
  next_fn: Callable[[heads_lib.Head, jax.Array], jax.Array],
  here_fn: Callable[[jax.Array], jax.Array],
) -> StartBound:
  """Returns what the depths 1 .. N - 1 of each start's walk are worth.

  Args:
    texts: sampled texts with their laws.
    rows: `[M]` int32.
    positions: `[M]` int32.
    capacity: `[]`.
    thresholds: `[M]` nats.
    next_fn: `(heads [M], log theta [M]) -> [M]`, the mean worth of the next
      depth over its tokens, theta being the threshold that is left of t.
    here_fn: `(room [M]) -> [M]`, the worth of a depth that is `room = t - S_n`
      nats below the threshold, which no later depth exceeds.
  """
  heads = heads_lib.of_laws(texts.laws, excluded=texts.eos_ids)
  is_eos = jnp.isin(texts.tokens, texts.eos_ids)
  last = texts.tokens.shape[1] - 1

  def body(state):
    depth, room, is_walking, total, is_open = state
    is_recorded = positions + depth < texts.num_tokens[rows]
    at = (rows, jnp.minimum(positions + depth, last))
    worth = jnp.where(
      is_recorded,
      next_fn(jax.tree.map(lambda x: x[at], heads), -room),
      (capacity - 1 - depth) * here_fn(room),
    )
    total += jnp.where(is_walking, worth, 0.0)
    is_open |= is_walking & ~is_recorded
    room -= jnp.where(is_walking & is_recorded, texts.laws.surprisal[at], 0.0)
    depth += 1
    is_walking &= is_recorded & ~is_eos[at] & (room >= 0.0)
    return depth, room, is_walking & (depth < capacity - 1), total, is_open

  start = (
    jnp.zeros((), jnp.int32),
    thresholds,
    jnp.broadcast_to(capacity > 1, rows.shape),
    jnp.zeros_like(thresholds),
    jnp.zeros(rows.shape, bool),
  )
  _, _, _, total, is_open = jax.lax.while_loop(
    lambda state: jnp.any(state[2]), body, start
  )
  return StartBound(values=total, is_open=is_open)


def _check(texts, rows, positions, capacity, thresholds):
  """Returns thresholds `[M]`, or raises."""
  chex.assert_equal_shape([rows, positions])
  if capacity < 1:
    raise ValueError(f'expected capacity >= 1, got {capacity}')
  thresholds = jnp.broadcast_to(jnp.asarray(thresholds, float), rows.shape)
  if not np.all(thresholds >= 0.0):
    raise ValueError(f'expected thresholds >= 0, got {np.min(thresholds)}')
  ends = np.asarray(texts.num_tokens)[np.asarray(rows)]
  is_inside = (np.asarray(positions) >= 0) & (np.asarray(positions) < ends)
  if not np.all(is_inside):
    outside = int(np.argmin(is_inside))
    raise ValueError(
      f'expected a start inside its text, got position {positions[outside]}'
      f' of {ends[outside]} tokens'
    )
  return thresholds
