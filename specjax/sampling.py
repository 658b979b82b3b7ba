"""Logits, sampling parameters and noise become the sampled law and its token.

Baseline decoding, tree verification and the entropy estimators call the same
two functions, so that they speak of one law: `log_law` turns logits into the
law that is sampled, `choose` draws a token from it.  The noise of a draw is a
function of (request seed, absolute position, use) and of nothing else.  Whoever
needs the token at a position therefore finds the same one, whatever the tree,
the capacity or the neighbours in the batch.
"""

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import lax

# The uses of noise at one position: the verifier's own token, the coins that
# decide which drafts are accepted, the token after drafts were rejected, and
# from `_FIRST_DRAFT` on the drafts, a number for every node.
USE_TOKEN = 0
USE_COIN = 1
USE_RESIDUAL = 2
_FIRST_DRAFT = 3

_LOWEST_KEY = np.iinfo(np.int32).min
_HIGHEST_KEY = np.iinfo(np.int32).max


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
  """

  temperature: jax.Array
  top_k: jax.Array
  top_p: jax.Array
  min_p: jax.Array


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


def log_law(logits: jax.Array, sampling: Sampling) -> jax.Array:
  """Returns the log-probabilities of the law that is sampled, in nats.

  Temperature first, then top-k, top-p and min-p, then normalisation.  Tokens
  that tie with the last one kept are kept too.  No sort: a cut is a threshold,
  found by bisection, and no work is done when no row asks for one.

  Args:
    logits: `[B, ..., V]` unnormalised log-probabilities.
    sampling: parameters, `[B]`.

  Returns:
    `[B, ..., V]` float32, `-inf` where a token cannot be sampled.  At
    temperature 0 the law is degenerate: 0 at the first largest logit.
  """
  logits = logits.astype(jnp.float32)
  lead = logits.shape[:-1]
  over_rows = lambda x: jnp.broadcast_to(
    x.reshape(x.shape + (1,) * (logits.ndim - x.ndim)), (*lead, 1)
  )
  sampling = jax.tree.map(over_rows, sampling)
  greedy = sampling.temperature == 0
  scaled = logits / jnp.where(greedy, 1.0, sampling.temperature)
  scaled = lax.cond(
    jnp.any(_is_filtered(sampling)),
    lambda x: _filter(x, sampling),
    lambda x: x,
    scaled,
  )
  return lax.cond(
    jnp.any(greedy),
    lambda x: jnp.where(greedy, _one_hot_log(logits), jax.nn.log_softmax(x)),
    jax.nn.log_softmax,
    scaled,
  )


def choose(
  log_p: jax.Array,
  seeds: jax.Array,
  positions: jax.Array,
  use: int = USE_TOKEN,
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
    use: what the draw is for, one number a use.

  Returns:
    `[B]` int32 tokens.
  """
  # A law with a token of probability 1 needs no noise, which is dear to make.
  is_sure = jnp.max(log_p, axis=-1, keepdims=True) == 0
  noise = lambda: jax.vmap(gumbel, in_axes=(0, 0, None, None))(
    seeds, positions, use, log_p.shape[-1]
  )
  noisy = lax.cond(
    jnp.all(is_sure),
    lambda: log_p,
    lambda: jnp.where(is_sure, log_p, log_p + noise()),
  )
  return jnp.argmax(noisy, axis=-1).astype(jnp.int32)


def draw(
  logits: jax.Array,
  sampling: Sampling,
  seeds: jax.Array,
  positions: jax.Array,
) -> tuple[jax.Array, jax.Array]:
  """Draws the token at a position, and says how probable it was.

  Args:
    logits: `[B, V]`.
    sampling: parameters, `[B]`.
    seeds: `[B]` uint32 request seeds.
    positions: `[B]` absolute positions of the tokens to draw.

  Returns:
    `[B]` int32 tokens, and their log-probabilities `[B]` in nats under the law
    they were drawn from.  That law says nothing at temperature 0, where the
    log-probabilities are those of temperature 1 without filters.
  """
  log_p = log_law(logits, sampling)
  tokens = choose(log_p, seeds, positions)
  said = jnp.where(
    sampling.temperature[:, None] == 0, jax.nn.log_softmax(logits), log_p
  )
  return tokens, jnp.take_along_axis(said, tokens[:, None], axis=1)[:, 0]


def draft_use(node: int) -> int:
  """Returns the use of the noise that the children of a node are drawn with.

  Nodes of a tree that stand at one depth draw at one position, each with noise
  of its own.  Where the depth of a node number is the same in every tree, as it
  is in a static shape, no two trees of a text draw with the same noise.

  Args:
    node: index of the node in its tree.
  """
  return _FIRST_DRAFT + node


def coins(seeds: jax.Array, positions: jax.Array, num_coins: int) -> jax.Array:
  """Returns the coins that decide which drafts of a tree are accepted.

  A chance c wins if its coin lies strictly below it: one of 0 never wins, one
  of 1 always.

  Args:
    seeds: `[B]` uint32 request seeds.
    positions: `[B]` absolute positions of the first token that the trees might
      add, which no two trees of a text share.
    num_coins: how many, one for each node of the tree.

  Returns:
    `[B, num_coins]` float32, uniform in [0, 1).
  """
  toss = lambda seed, position: jax.random.uniform(
    _key(seed, position, USE_COIN), (num_coins,)
  )
  return jax.vmap(toss)(seeds, positions)


def gumbel(
  seed: jax.Array, position: jax.Array, use: int, vocab_size: int
) -> jax.Array:
  """Returns the standard Gumbel noise of one (seed, position, use).

  Drawn in `high` mode: with the default 23 random bits the tails of a
  vocabulary of 10^5 tokens would be visibly coarse.

  Args:
    seed: `[]` uint32 request seed.
    position: `[]` int32 absolute position of the token to draw.
    use: what the draw is for, one number a use.
    vocab_size: `V`.

  Returns:
    `[V]` float32.
  """
  key = _key(seed, position, use)
  return jax.random.gumbel(key, (vocab_size,), mode='high')


def _key(seed, position, use):
  key = jax.random.fold_in(jax.random.key(seed), position)
  return jax.random.fold_in(key, use)


def _is_filtered(sampling: Sampling) -> jax.Array:
  cut = (sampling.top_k > 0) | (sampling.top_p < 1) | (sampling.min_p > 0)
  return cut & (sampling.temperature > 0)


def _filter(logits: jax.Array, sampling: Sampling) -> jax.Array:
  """Sets the tokens that top-k, top-p or min-p cut to `-inf`."""
  keys = _sortable(logits)

  def enough_tokens(threshold):
    count = jnp.sum(keys >= threshold, axis=-1, keepdims=True)
    return (sampling.top_k > 0) & (count >= sampling.top_k)

  logits = jnp.where(
    keys >= _largest_threshold(enough_tokens, keys), logits, -jnp.inf
  )
  p = jax.nn.softmax(logits)

  def enough_mass(threshold):
    mass = jnp.sum(jnp.where(keys >= threshold, p, 0.0), axis=-1, keepdims=True)
    return (sampling.top_p < 1) & (mass >= sampling.top_p)

  kept = keys >= _largest_threshold(enough_mass, keys)
  kept &= p >= sampling.min_p * jnp.max(p, axis=-1, keepdims=True)
  return jnp.where(kept, logits, -jnp.inf)


def _largest_threshold(satisfied_fn, keys: jax.Array) -> jax.Array:
  """Largest int32 `t` with `satisfied_fn(t)`, which holds up to some point.

  If it holds nowhere the result is the lowest key, which cuts nothing.
  """

  def halve(_, bounds):
    low, high = bounds
    # The mean rounded up, without overflow of low + high.
    middle = (low | high) - ((low ^ high) >> 1)
    good = satisfied_fn(middle)
    return jnp.where(good, middle, low), jnp.where(good, high, middle - 1)

  ends = lambda end: jnp.full((*keys.shape[:-1], 1), end, jnp.int32)
  low, _ = lax.fori_loop(0, 32, halve, (ends(_LOWEST_KEY), ends(_HIGHEST_KEY)))
  return low


def _sortable(x: jax.Array) -> jax.Array:
  """Maps float32 to int32 so that the order is kept (-0 lies below +0)."""
  bits = lax.bitcast_convert_type(x, jnp.int32)
  return bits ^ ((bits >> 31) & _HIGHEST_KEY)


def _one_hot_log(logits: jax.Array) -> jax.Array:
  best = jnp.argmax(logits, axis=-1, keepdims=True)
  tokens = lax.broadcasted_iota(jnp.int32, logits.shape, logits.ndim - 1)
  return jnp.where(tokens == best, 0.0, -jnp.inf)
