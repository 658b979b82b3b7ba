"""Logits, sampling parameters and noise become the sampled law and its token.

Baseline decoding, tree verification and the entropy estimators call the same
functions, so that they speak of one law: `laws` turns logits into the law that
is sampled (`log_law` gives that one alone), `choose` draws a token from it
under the noise of its position, `draw` does both, and less where no row asks
for noise.  Whoever needs the token at a position therefore finds the same one,
whatever the tree, the capacity or the neighbours in the batch.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import struct
from jax import lax

from specjax import edits as edits_lib
from specjax import filters, noise


@struct.dataclass
class Sampling:
  """Sampling parameters, one entry a row.

  Attributes:
    temperature: `[B]` float32; 0 means argmax, the first of equals.
    top_k: `[B]` int32; keep the k most probable tokens, 0 keeps all.
    top_p: `[B]` float32; keep the fewest most probable tokens whose mass
      reaches top_p (of what top_k left), 1 keeps all.
    min_p: `[B]` float32; keep tokens of at least min_p times the largest
      probability, 0 keeps all.
    edits: penalties, bias and minimum length, `[B]`; None for no row.
  """

  temperature: jax.Array
  top_k: jax.Array
  top_p: jax.Array
  min_p: jax.Array
  edits: edits_lib.Edits | None = None


class Laws(NamedTuple):
  """What laws belong to logits, log-probabilities in nats.

  Attributes:
    sampled: `[B, ..., V]` float32, `-inf` where a token cannot be sampled. At
      temperature 0 the law is degenerate: 0 at the first largest logit.
    reported: the same law, except at temperature 0, where it would say nothing:
      there it is that of temperature 1 without filters.
  """

  sampled: jax.Array
  reported: jax.Array


def make(
  batch: int,
  temperature: float = 1.0,
  top_k: int = 0,
  top_p: float = 1.0,
  min_p: float = 0.0,
) -> Sampling:
  """Returns the same sampling parameters for each of `batch` rows.

  Args:
    batch: number of rows `B`.
    temperature: 0 for argmax, else the divisor of the logits.
    top_k: number of tokens kept, 0 for all.
    top_p: probability mass kept, in (0, 1].
    min_p: least probability kept, relative to the largest, in [0, 1].

  Raises:
    ValueError: a parameter is out of its range.
  """
  if not 0.0 <= temperature < float('inf'):
    raise ValueError(f'expected temperature >= 0, got {temperature}')
  if top_k < 0 or int(top_k) != top_k:
    raise ValueError(f'expected a whole top_k >= 0, got {top_k}')
  if not 0.0 < top_p <= 1.0:
    raise ValueError(f'expected top_p in (0, 1], got {top_p}')
  if not 0.0 <= min_p <= 1.0:
    raise ValueError(f'expected min_p in [0, 1], got {min_p}')
  full = lambda value, dtype: jnp.full((batch,), value, dtype)
  return Sampling(
    temperature=full(temperature, jnp.float32),
    top_k=full(top_k, jnp.int32),
    top_p=full(top_p, jnp.float32),
    min_p=full(min_p, jnp.float32),
  )


def laws(
  logits: jax.Array,
  sampling: Sampling,
  history: edits_lib.History | None = None,
) -> Laws:
  """Returns the law that is sampled, and the one that is reported.

  Edits of the logits first, then temperature, top-k, top-p and min-p, then
  normalisation.  No work is done for what no row asks for.

  Args:
    logits: `[B, ..., V]` unnormalised log-probabilities.
    sampling: parameters, `[B]`.
    history: what stands before each place; wanted where `sampling` has edits.

  Raises:
    ValueError: edits without a history.
  """
  logits = _edited(logits, sampling, history)
  sampling = sampling.replace(edits=None)
  lead = logits.shape[:-1]
  over_rows = lambda x: jnp.broadcast_to(
    x.reshape(x.shape + (1,) * (logits.ndim - x.ndim)), (*lead, 1)
  )
  sampling = jax.tree.map(over_rows, sampling)
  greedy = sampling.temperature == 0
  scaled = logits / jnp.where(greedy, 1.0, sampling.temperature)
  cuts = (sampling.top_k, sampling.top_p, sampling.min_p)
  scaled = lax.cond(
    jnp.any(filters.is_cut(*cuts) & ~greedy),
    lambda x: jnp.where(greedy, x, filters.cut(x, *cuts)),
    lambda x: x,
    scaled,
  )
  reported = jax.nn.log_softmax(scaled)
  sampled = lax.cond(
    jnp.any(greedy),
    lambda x: jnp.where(greedy, _one_hot_log(logits), x),
    lambda x: x,
    reported,
  )
  return Laws(sampled, reported)


def log_law(
  logits: jax.Array,
  sampling: Sampling,
  history: edits_lib.History | None = None,
) -> jax.Array:
  """Returns the log-probabilities of the law that is sampled, in nats.

  Args:
    logits: `[B, ..., V]` unnormalised log-probabilities.
    sampling: parameters, `[B]`.
    history: what stands before each place; wanted where `sampling` has edits.

  Returns:
    `[B, ..., V]` float32, as `Laws.sampled`.

  Raises:
    ValueError: edits without a history.
  """
  return laws(logits, sampling, history).sampled


def choose(
  log_p: jax.Array,
  seeds: jax.Array,
  positions: jax.Array,
  use: int = noise.USE_TOKEN,
) -> jax.Array:
  """Returns the token that each law gives under its own noise.

  `argmax_y log p(y) + g(y)` with independent standard Gumbel variables `g` (the
  Gumbel-max trick), so a token is drawn with its probability; a degenerate law
  gives its only token, as does one whose largest probability rounds to 1.
  Tokens of probability zero are never drawn.

  Args:
    log_p: `[B, V]` log-probabilities, in nats.
    seeds: `[B]` uint32 request seeds.
    positions: `[B]` absolute positions of the tokens to draw.
    use: what the draw is for, one of the uses of `noise`.

  Returns:
    `[B]` int32 tokens.
  """
  # A law with a token of probability 1 needs no noise, which is dear to make.
  is_sure = jnp.max(log_p, axis=-1, keepdims=True) == 0
  gumbel = lambda: jax.vmap(noise.gumbel, in_axes=(0, 0, None, None))(
    seeds, positions, use, log_p.shape[-1]
  )
  noisy = lax.cond(
    jnp.all(is_sure),
    lambda: log_p,
    lambda: jnp.where(is_sure, log_p, log_p + gumbel()),
  )
  return _first_largest(noisy)[..., 0]


def draw(
  logits: jax.Array,
  sampling: Sampling,
  seeds: jax.Array,
  positions: jax.Array,
  history: edits_lib.History | None = None,
) -> tuple[jax.Array, jax.Array]:
  """Draws the token at a position, and says how probable it was.

  Args:
    logits: `[B, V]`.
    sampling: parameters, `[B]`.
    seeds: `[B]` uint32 request seeds.
    positions: `[B]` absolute positions of the tokens to draw.
    history: what stands before the tokens; wanted where `sampling` has edits.

  Returns:
    `[B]` int32 tokens, and their log-probabilities `[B]` in nats under the law
    that is reported.

  Raises:
    ValueError: edits without a history.
  """
  logits = _edited(logits, sampling, history)
  sampling = sampling.replace(edits=None)

  # At temperature 0 the largest is what is drawn, in a third of the time.
  return lax.cond(
    jnp.all(sampling.temperature == 0),
    lambda: _largest(logits),
    lambda: draw_from(laws(logits, sampling), seeds, positions),
  )


def draw_from(
  both: Laws, seeds: jax.Array, positions: jax.Array
) -> tuple[jax.Array, jax.Array]:
  """Draws as `draw` does, from laws that are known.

  Args:
    both: laws `[B, V]` after the same places.
    seeds: `[B]` uint32 request seeds.
    positions: `[B]` absolute positions of the tokens to draw.

  Returns:
    `[B]` int32 tokens, and what the reported laws say of them, `[B]` in nats.
  """
  tokens = choose(both.sampled, seeds, positions)
  return tokens, at(both.reported, tokens)


def at(log_law: jax.Array, tokens: jax.Array) -> jax.Array:
  """Returns `[B]`: what each law `[B, V]` says of its token, `tokens [B]`."""
  return jnp.take_along_axis(log_law, tokens[:, None], axis=1)[:, 0]


def _edited(logits, sampling, history):
  """Logits as float32, after the edits that rows ask for."""
  if sampling.edits is None:
    return logits.astype(jnp.float32)
  if history is None:
    raise ValueError(
      'expected the history of every law, on which edits of logits depend, '
      'got None'
    )
  return edits_lib.apply(logits, sampling.edits, history)


def _largest(logits):
  """The first largest of logits `[B, V]`, and its log-probability."""
  shifted = logits - jnp.max(logits, axis=-1, keepdims=True)
  log_p = -jnp.log(jnp.sum(jnp.exp(shifted), axis=-1))
  return _first_largest(logits)[..., 0], log_p


def _one_hot_log(logits: jax.Array) -> jax.Array:
  tokens = lax.broadcasted_iota(jnp.int32, logits.shape, logits.ndim - 1)
  return jnp.where(tokens == _first_largest(logits), 0.0, -jnp.inf)


def _first_largest(x: jax.Array) -> jax.Array:
  """Returns argmax over the last axis, `[..., 1]`; 0 where there is NaN.

  A maximum and a minimum, which a CPU takes of many at a time; unlike argmax.
  """
  places = lax.broadcasted_iota(jnp.int32, x.shape, x.ndim - 1)
  is_less = x < jnp.max(x, axis=-1, keepdims=True)
  return jnp.min(
    jnp.where(is_less, x.shape[-1], places), axis=-1, keepdims=True
  )
