"""What is kept of the verifier's laws, and their pooled moments.

A full law has as many numbers as the vocabulary, so a run keeps a summary of
each sampled position: three scalars and the most probable tokens.
"""

from typing import NamedTuple

import chex
import flax
import jax
import jax.numpy as jnp


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
    eos_ids: `[E]` int32, tokens that end a text; may be empty.
  """

  laws: LawSummary
  tokens: jax.Array
  num_tokens: jax.Array
  eos_ids: jax.Array


class Moments(NamedTuple):
  """Mean entropy `mu` in nats and mean squared surprisal `mu2`, both `[]`."""

  mu: jax.Array
  mu2: jax.Array


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
  surprisal = -jnp.where(jnp.isneginf(log_p), 0.0, log_p)
  p = jnp.exp(log_p)
  sampled = jnp.take_along_axis(log_p, tokens[..., None], axis=-1)[..., 0]
  top_log_p, top_tokens = jax.lax.top_k(log_p, min(num_top, log_p.shape[-1]))
  return LawSummary(
    # Rounding can lift the log-probability of a sure token above 0.
    surprisal=jnp.maximum(-sampled, 0.0),
    entropy=jnp.maximum(jnp.sum(p * surprisal, axis=-1), 0.0),
    second_moment=jnp.sum(p * surprisal**2, axis=-1),
    top_log_p=jnp.minimum(top_log_p, 0.0),
    top_tokens=top_tokens,
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
