"""What is kept of the verifier's laws, and their moments.

A full law has as many numbers as the vocabulary, so a run keeps a summary of
each sampled position: three scalars and the most probable tokens.  Moments of
single laws, full or cut to their most probable tokens, are pooled here for
texts in memory and in `streaming` for any number of tokens.
"""

from typing import NamedTuple

import chex
import flax
import jax
import jax.numpy as jnp

from specjax import sampling as sampling_lib

# An upper limit on vocabularies: token ids are numbers of 32 bits.
_ANY_VOCAB = 2**32


@flax.struct.dataclass
class LawSummary:
  """What is kept of the law of one sampled position, or of many.

  Attributes:
    surprisal: `[...]` nats, `-log p` of the token that was sampled.
    entropy: `[...]` nats, `-sum p log p`.
    second_moment: `[...]` nats squared, `sum p log^2 p`.
    top_log_p: `[..., K]` log-probabilities of the K most probable tokens,
      falling; -inf past the support.
    top_tokens: `[..., K]` int32, those tokens.
  """

  surprisal: jax.Array
  entropy: jax.Array
  second_moment: jax.Array
  top_log_p: jax.Array
  top_tokens: jax.Array


@flax.struct.dataclass
class Texts:
  """Sampled texts with the law of every token, padded to one length.

  Attributes:
    laws: summaries `[R, T]` of the laws that the tokens were drawn from.
    tokens: `[R, T]` int32, the sampled tokens; an end-of-sequence token is
      kept, and is the last one of its text.
    num_tokens: `[R]` int32, tokens of each text; the rest is padding.
    eos_ids: `[num_eos]` int32, tokens that end a text; may be empty.
  """

  laws: LawSummary
  tokens: jax.Array
  num_tokens: jax.Array
  eos_ids: jax.Array


class Moments(NamedTuple):
  """Entropy `mu` in nats and second log-moment `mu2`, of laws or their mean."""

  mu: jax.Array
  mu2: jax.Array


class MomentLimits(NamedTuple):
  """What cut laws say of the moments of the whole, all of one shape.

  Attributes:
    low: moments that no law with these most probable tokens is below.
    estimate: right in the mean over the sampled token; may leave the limits.
    high: moments that no such law is above.
    missing: mass of the tokens that are not listed.
  """

  low: Moments
  estimate: Moments
  high: Moments
  missing: jax.Array


def summarise(log_p: jax.Array, tokens: jax.Array, num_top: int) -> LawSummary:
  """Returns what is kept of laws from which tokens were sampled.

  `0 log 0 = 0`: tokens that a filter removed carry `log_p = -inf`.

  Args:
    log_p: `[..., V]` log-probabilities of the law that is sampled.
    tokens: `[...]` int32, the sampled tokens.
    num_top: how many of the most probable tokens are kept; the whole
      vocabulary if that is smaller.

  Raises:
    ValueError: `num_top` is below 1.
  """
  if num_top < 1:
    raise ValueError(f'expected num_top >= 1, got {num_top}')
  chex.assert_equal_shape_prefix([log_p, tokens], tokens.ndim)
  chex.assert_rank(log_p, tokens.ndim + 1)
  moments = law_moments(log_p)
  sampled = jnp.take_along_axis(log_p, tokens[..., None], axis=-1)[..., 0]
  top_log_p, top_tokens = jax.lax.top_k(log_p, min(num_top, log_p.shape[-1]))
  return LawSummary(
    # Rounding can lift the log-probability of a sure token above 0.
    surprisal=jnp.maximum(-sampled, 0.0),
    entropy=moments.mu,
    second_moment=moments.mu2,
    top_log_p=jnp.minimum(top_log_p, 0.0),
    top_tokens=top_tokens,
  )


def law_moments(log_p: jax.Array) -> Moments:
  """Returns the moments `[...]` of laws: `-sum p log p` and `sum p log^2 p`.

  Args:
    log_p: `[..., V]` log-probabilities; -inf counts nothing.
  """
  surprisal = -jnp.where(jnp.isneginf(log_p), 0.0, log_p)
  p = jnp.exp(log_p)
  return Moments(
    mu=jnp.maximum(jnp.sum(p * surprisal, axis=-1), 0.0),
    mu2=jnp.sum(p * surprisal**2, axis=-1),
  )


@jax.jit
def moments_under(
  logits: jax.Array, settings: sampling_lib.Sampling
) -> Moments:
  """Returns the moments `[P, ...]` of the laws of P settings, from one pass.

  They are those at the contexts that the logits belong to: texts sampled under
  another setting visit other contexts.  One setting's laws are in memory at a
  time.

  Args:
    logits: `[..., V]` of the verifier.
    settings: sampling parameters, `[P]`.
  """

  def under(setting):
    setting = jax.tree.map(lambda x: x[None], setting)
    return law_moments(sampling_lib.log_law(logits[None], setting)[0])

  return jax.lax.map(under, settings)


def moment_limits(
  top_log_p: jax.Array,
  surprisal: jax.Array,
  is_listed: jax.Array,
  vocab_size: int = _ANY_VOCAB,
) -> MomentLimits:
  """Returns what the K most probable tokens say of the moments, `[...]`.

  Let m be the mass of the tail, the n tokens that are not listed, and `f_j(p) =
  p (-log p)^j`, whose sum over the law is mu for j = 1 and mu2 for j = 2.

  Low: a token of the tail has no more than `c = min(p_K, m)`, hence at least
  the surprisal `-log c`, and the tail adds `m (-log c)^j` or more.  Equality
  where m is a multiple of `p_K`, or one token carries it.

  High: the tail adds at most `n f_j(m / n) = m log^j(n / m)`, the value of a
  flat tail.  For `f_j'' < 0`, which is so for p below 1 / e, this is Jensen's
  inequality.  Only f_2, and only for K = 1, meets a larger p, at most 1/2; each
  other token of the tail is then at most `1 - 2p`, and `f_2''(p) + f_2''(1 -
  2p) < 0`: what two tokens hold together is still worth most in equal parts.

  The estimate replaces the tail's sum by its sample: the sampled token's `s^j`
  where it is not listed, else 0.

  Args:
    top_log_p: `[..., K]` log-probabilities of the most probable tokens, in any
      order; -inf where there are fewer.
    surprisal: `[...]` nats, of the sampled token.
    is_listed: `[...]` bool, the sampled token is among the K.
    vocab_size: `V`; what is larger is still valid.

  Raises:
    ValueError: `vocab_size` is below 1.
  """
  if vocab_size < 1:
    raise ValueError(f'expected vocab_size >= 1, got {vocab_size}')
  chex.assert_equal_shape([top_log_p[..., 0], surprisal, is_listed])
  listed = law_moments(jnp.minimum(top_log_p, 0.0))
  is_token = ~jnp.isneginf(top_log_p)
  num_others = float(vocab_size) - jnp.sum(is_token, axis=-1)
  missing = 1.0 - jnp.sum(jnp.exp(top_log_p), axis=-1)
  missing = jnp.where(num_others > 0, jnp.maximum(missing, 0.0), 0.0)
  log_missing = jnp.log(jnp.where(missing > 0.0, missing, 1.0))
  last_log_p = jnp.min(jnp.where(is_token, top_log_p, 0.0), axis=-1)
  least = -jnp.minimum(last_log_p, log_missing)
  most = jnp.log(jnp.maximum(num_others, 1.0)) - log_missing
  # Too small a vocabulary for this tail is rounding.
  most = jnp.maximum(most, least)
  plus = lambda mass, s: Moments(
    mu=listed.mu + mass * s, mu2=listed.mu2 + mass * s**2
  )
  return MomentLimits(
    low=plus(missing, least),
    estimate=plus(jnp.where(is_listed, 0.0, 1.0), surprisal),
    high=plus(missing, most),
    missing=missing,
  )


def row_totals(values: jax.Array, num_tokens: jax.Array) -> jax.Array:
  """Returns `[..., R]`: sums of `values [..., R, T]` over each text's tokens.

  Args:
    values: `[..., R, T]`; what padding holds, NaN included, is ignored.
    num_tokens: `[R]` int32.
  """
  chex.assert_axis_dimension(num_tokens, 0, values.shape[-2])
  is_token = jnp.arange(values.shape[-1]) < num_tokens[:, None]
  return jnp.sum(jnp.where(is_token, values, 0.0), axis=-1)


def moments_of_laws(laws: LawSummary, num_tokens: jax.Array) -> Moments:
  """Returns the moments pooled over texts and tokens, from the full laws.

  `mu = mean(-sum p log p)`, `mu2 = mean(sum p log^2 p)`.  They have the
  expectation of `moments_of_surprisals` and less noise.

  Args:
    laws: summaries `[R, T]`.
    num_tokens: `[R]` int32, at least one token in all.
  """
  return _pool(laws.entropy, laws.second_moment, num_tokens)


def moments_of_surprisals(
  surprisals: jax.Array, num_tokens: jax.Array
) -> Moments:
  """Returns the moments pooled over texts and tokens, from log-probs alone.

  `mu = mean(s)`, `mu2 = mean(s^2)`.

  Args:
    surprisals: `[R, T]` nats, `-log p` of the sampled tokens.
    num_tokens: `[R]` int32, at least one token in all.
  """
  return _pool(surprisals, surprisals**2, num_tokens)


def _pool(first, second, num_tokens):
  """Returns both values' totals over texts, by the total of tokens."""
  total = jnp.sum(num_tokens)
  return Moments(
    mu=jnp.sum(row_totals(first, num_tokens)) / total,
    mu2=jnp.sum(row_totals(second, num_tokens)) / total,
  )
