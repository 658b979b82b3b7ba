"""Limits of whole runs: tokens per iteration, totals over totals.

They hold for every process and every draft policy, adaptive or random, so long
as it does not see the tokens it drafts for.  Each rests on a *progress* `g_i
>= 0` of every emitted token and a *ceiling* `K(N)` on the expected progress of
one iteration.  Summed over the calls of a run (that a call happens is known
before it, and what the last call overshoots is dropped on one side only),

  E[sum of g over the tokens] <= K(N) E[calls],

so a run's calls are at least `progress / K(N)`, and `D`, tokens over calls, at
most `K(N) / mean progress`.  It bounds no mean over prompts of ratios.

The functions return `calls [C, R]`: a lower bound in expectation on the calls
that each text needs at each capacity.  A ceiling has a free parameter.  It is
chosen by the totals of one half of the texts and used on the other, and the
calls of both halves are added up: each is a valid bound for its own texts, so
the total is one for all, and the rate stays a ratio of totals.  One token of
progress a token with the ceiling N, the sure limit, is always among the
choices.

Proof of `moment_ceiling` and `run_context`.  Let `lam` be a cap that may
depend on the context, `g = min(s, lam)`, and `Z` the exponential of the
progress of one iteration.  Let `W(v)` be the same product along the path to
the node v.  A visited node emits one token, so, following the growth of the
product,

  E[Z] = 1 + sum_{v in T} p(v) W(v) (E_v[e^g] - 1).

Along a path `p(v) W(v) = prod min(1, p e^lam) <= 1`, and `E_v[e^g] = sum_y
min(1, p_y e^lam)` is at most `min(e^lam, V)`; or it is `1 + B`, if lam solves
this at every context.  Jensen's inequality gives `E[log Z] <= log(1 + N
(min(e^lam, V) - 1))`, or `log(1 + N B)`.

Proof of `split_ceiling`.  Let `C(N)` be the supremum of the expected progress
of one iteration over all processes and trees.  At the root, in-tree children
have `n_c` nodes with `sum n_c = N - 1` and probabilities `p_c`; what leaves
the tree gains at most lam.  With `A = C - lam`,

  A(N) <= sup of sum_c p_c (A(n_c) - log p_c) over p_c >= 0, sum p_c <= 1.

With `x = sum_c e^A(n_c)` the supremum over p is `x / e` where `x <= e` (at
`p_c = e^(A(n_c) - 1)`) and `log x` above, rising in x.  From `A(1) <= 0` it
follows by induction that `e^A(n) <= n`, so `x <= N - 1`, which single children
attain.
"""

import chex
import jax
import jax.numpy as jnp
import numpy as np

from specjax.theory import entropy as entropy_lib
from specjax.theory import heads as heads_lib
from specjax.theory import resample

# Caps on a token's surprisal that are tried, in nats.
CAPS = (*np.geomspace(0.05, 20.0, 256), np.inf)
_NUM_SURPLUSES = 96
_TINY = 1e-30


def split_ceiling(cap: jax.Array, capacity: jax.Array) -> jax.Array:
  """Returns `lam + x / e` or, for `x >= e`, `lam + log x`, with `x = N - 1`.

  Nats of `min(s, lam)` that one iteration can gain in expectation; proof in
  the module's docstring.

  Args:
    cap: lam, nats.
    capacity: `N`, broadcast against `cap`.
  """
  others = capacity - 1.0
  return cap + jnp.where(
    others <= jnp.e, others / jnp.e, jnp.log(jnp.maximum(others, 1.0))
  )


def moment_ceiling(
  cap: jax.Array, capacity: jax.Array, vocab_size: int
) -> jax.Array:
  """Returns `log(1 + N (min(e^lam, V) - 1))`.

  Nats of `min(s, lam)` that one iteration can gain in expectation; proof in
  the module's docstring.

  Args:
    cap: lam, nats; may be inf.
    capacity: `N`, broadcast against `cap`.
    vocab_size: `V`, the largest support of the sampled laws.
  """
  growth = jnp.expm1(jnp.minimum(cap, jnp.log(float(vocab_size))))
  return jnp.log1p(capacity * growth)


def run(
  surprisals: jax.Array,
  num_tokens: jax.Array,
  capacities: jax.Array,
  vocab_size: int,
  seed: int = 0,
) -> jax.Array:
  """Returns the least calls of each text, `[C, R]`, from log-probs alone.

  Progress `min(s, lam)`; ceiling the smaller of `split_ceiling` and
  `moment_ceiling`; lam is cross-fitted.

  Args:
    surprisals: `[R, T]` nats, of the sampled tokens.
    num_tokens: `[R]` int32, tokens of each text.
    capacities: `[C]` int32, N.
    vocab_size: `V`, the largest support of the sampled laws.
    seed: draws the halves.

  Raises:
    ValueError: a capacity is below 1, or there are fewer than two texts.
  """
  progress = _capped_progress(surprisals, num_tokens, jnp.asarray(CAPS))
  return run_of_progress(progress, num_tokens, capacities, vocab_size, seed)


def run_of_progress(
  progress: jax.Array,
  num_tokens: jax.Array,
  capacities: jax.Array,
  vocab_size: int,
  seed: int = 0,
) -> jax.Array:
  """Returns what `run` does, `[C, R]`, from each text's progress.

  Args:
    progress: `[G, R]` nats, totals of `min(s, lam)` for each of `CAPS`.
    num_tokens: `[R]` int32, tokens of each text.
    capacities: `[C]` int32, N.
    vocab_size: `V`, the largest support of the sampled laws.
    seed: draws the halves.

  Raises:
    ValueError: as `run` does.
  """
  capacities = _check(capacities)
  caps = jnp.asarray(CAPS)[:, None]
  ceilings = jnp.minimum(
    split_ceiling(caps, capacities),
    moment_ceiling(caps, capacities, vocab_size),
  )
  return fitted_calls(progress, ceilings, num_tokens, capacities, seed)


def run_context(
  laws: entropy_lib.LawSummary,
  num_tokens: jax.Array,
  capacities: jax.Array,
  seed: int = 0,
) -> jax.Array:
  """Returns the least calls of each text, `[C, R]`, from the laws.

  Progress `E_y[min(s, lam(c))]`, where lam(c) solves `sum_y min(1, p_y e^lam) =
  1 + B`; ceiling `log(1 + N B)`; B is cross-fitted.  Sharper than the limit of
  `moment_ceiling`, and attained by uniform laws on complete trees.  Values of B
  up to K are tried; past `K - 1` a head of K tokens shows less progress than
  there is.

  Args:
    laws: summaries `[R, T]` with heads of K tokens.
    num_tokens: `[R]` int32, tokens of each text.
    capacities: `[C]` int32, N.
    seed: draws the halves.

  Raises:
    ValueError: a capacity is below 1, or there are fewer than two texts.
  """
  surpluses = jnp.geomspace(1e-2, laws.top_log_p.shape[-1], _NUM_SURPLUSES)
  progress = _context_progress(laws, num_tokens, surpluses)
  return run_context_of_progress(
    progress, surpluses, num_tokens, capacities, seed
  )


def run_context_of_progress(
  progress: jax.Array,
  surpluses: jax.Array,
  num_tokens: jax.Array,
  capacities: jax.Array,
  seed: int = 0,
) -> jax.Array:
  """Returns what `run_context` does, `[C, R]`, from each text's progress.

  Args:
    progress: `[G, R]` nats, totals of `E_y[min(s, lam(c))]` for each B.
    surpluses: `[G]`, the values of B.
    num_tokens: `[R]` int32, tokens of each text.
    capacities: `[C]` int32, N.
    seed: draws the halves.

  Raises:
    ValueError: as `run_context` does.
  """
  capacities = _check(capacities)
  ceilings = jnp.log1p(capacities * surpluses[:, None])
  return fitted_calls(progress, ceilings, num_tokens, capacities, seed)


def leaf(
  entropies: jax.Array,
  num_tokens: jax.Array,
  capacities: jax.Array,
  vocab_size: int,
  seed: int = 0,
) -> jax.Array:
  """Returns the least calls of each text, `[C, R]`, from entropies: prior art.

  `D <= log((V - 1) N + 1) / mean entropy`: a tree has at most `(V - 1) N + 1`
  exits, and no law on them has more entropy (J. Massey; J. Kobus and D. Gunduz,
  arXiv 2504.15475).  Loose for large vocabularies.

  Args:
    entropies: `[R, T]` nats, of the laws the tokens were sampled from.
    num_tokens: `[R]` int32, tokens of each text.
    capacities: `[C]` int32, N.
    vocab_size: `V`, the largest support of the sampled laws.
    seed: draws the halves.

  Raises:
    ValueError: a capacity is below 1, or there are fewer than two texts.
  """
  capacities = _check(capacities)
  progress = entropy_lib.row_totals(entropies, num_tokens)[None]
  ceilings = moment_ceiling(jnp.inf, capacities, vocab_size)[None]
  return fitted_calls(progress, ceilings, num_tokens, capacities, seed)


def rate(
  calls: jax.Array, num_tokens: jax.Array, capacities: jax.Array, seed: int
) -> resample.Interval:
  """Returns the limit of `D`, `[C]` tokens, with its interval over texts.

  `min(N, total tokens / total calls)`.

  Args:
    calls: `[C, R]` least calls of each text.
    num_tokens: `[R]` int32, tokens of each text.
    capacities: `[C]` int32, N.
    seed: draws the resamples.
  """
  limits = resample.ratio(num_tokens, calls, seed)
  return resample.Interval(
    *(jnp.minimum(limit, jnp.asarray(capacities)) for limit in limits)
  )


@jax.jit
def _capped_progress(surprisals, num_tokens, caps):
  """Returns `[G, R]`: each text's progress for each lam."""

  def at_cap(cap):
    progress = jnp.minimum(surprisals, cap)
    return entropy_lib.row_totals(progress, num_tokens)

  return jax.lax.map(at_cap, caps)


@jax.jit
def _context_progress(laws, num_tokens, surpluses):
  """Returns `[G, R]`: each text's progress for each B, capped by context."""
  heads = heads_lib.of_laws(laws)

  def at_surplus(surplus):
    caps = heads_lib.saturating_cap(heads, surplus)
    progress = heads_lib.capped_surprisal(heads, caps)
    return entropy_lib.row_totals(progress, num_tokens)

  return jax.lax.map(at_surplus, surpluses)


def fitted_calls(
  progress: jax.Array,
  ceilings: jax.Array,
  num_tokens: jax.Array,
  capacities: jax.Array,
  seed: int,
) -> jax.Array:
  """Returns `[C, R]` calls, the parameter fitted on the other half's texts.

  Args:
    progress: `[G, R]` nats, each text's progress under each parameter.
    ceilings: `[G, C]` nats, what a call can gain of it.
    num_tokens: `[R]` int32.
    capacities: `[C]`.
    seed: draws the halves.
  """
  num_rows, num_capacities = progress.shape[1], len(capacities)
  chex.assert_shape(ceilings, (progress.shape[0], num_capacities))
  rows = jnp.arange(num_rows)
  is_first = resample.halves(rows, seed)
  # The sure limit: every token is progress 1, and a call gains at most N.
  progress = jnp.concatenate([num_tokens[None], progress])
  ceilings = jnp.concatenate([capacities[None], ceilings])
  # A vocabulary of one token has no progress under a ceiling of 0.
  ceilings = jnp.maximum(ceilings, _TINY)

  def fit(half):
    totals = jnp.sum(jnp.where(half, progress, 0.0), axis=1)
    return jnp.argmax(totals[:, None] / ceilings, axis=0)[:, None]

  choice = jnp.where(is_first, fit(~is_first), fit(is_first))  # [C, R]
  gain = ceilings[choice, jnp.arange(num_capacities)[:, None]]
  return progress[choice, rows] / gain


def _check(capacities):
  """Returns capacities `[C]` as floats, or raises."""
  capacities = np.asarray(capacities)
  if capacities.ndim != 1 or not np.all(capacities >= 1):
    raise ValueError(f'expected a list of capacities >= 1, got {capacities}')
  return jnp.asarray(capacities, float)
