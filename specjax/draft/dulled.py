"""The verifier made dull: a drafter of any chosen quality, to study with.

At temperature 1 its law after a context c is

  log q(y | c) = log p(y | c) + sigma g(c, y) - normaliser,

with standard normal noise `g` that is a function of context and token alone: a
drafter that errs, and errs again in the same place.  What it loses is known:

  KL(p || q) = log E_p[exp(sigma g)] - sigma E_p[g]  nats,

which grows with sigma from 0 without end.
"""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from specjax.draft import reader as reader_lib
from specjax.llama import cache as llama_cache

# Contexts are told apart by h -> turn h + token + 1 modulo 2^32.
_TURN = np.uint32(0x9E3779B1)
_NOISE_SEED = 0

_NUM_HALVINGS = 40


class _Memory(NamedTuple):
  """What the verifier remembers, and which contexts it has read."""

  cache: llama_cache.KVCache
  context: jax.Array  # [B] uint32 hash of what is committed
  contexts: jax.Array  # [B, P] uint32 hash up to each node that was read


@functools.cache
def reader() -> reader_lib.Reader:
  """Returns the dulled verifier; its `params.drafter` is sigma, `[]`."""
  sharp = reader_lib.verifier()

  @functools.partial(jax.jit, static_argnums=2)
  def init(params, prefix, num_slots):
    empty = jnp.zeros(prefix.lengths.shape, jnp.uint32)
    return _Memory(
      cache=sharp.init(params, prefix, num_slots),
      context=_extend(empty, prefix.tokens, prefix.lengths - 1),
      contexts=jnp.zeros((len(empty), num_slots), jnp.uint32),
    )

  def read(params, memory, nodes):
    rows = jnp.arange(nodes.slots.shape[0])[:, None]
    above = memory.contexts[rows, jnp.maximum(nodes.parent_slots, 0)]
    is_root = nodes.depths == 0
    contexts = _step(
      jnp.where(is_root, memory.context[:, None], above), nodes.tokens
    )
    logits, cache = sharp.read(params, memory.cache, nodes)
    noise = jax.vmap(jax.vmap(functools.partial(_noise, logits.shape[-1])))
    dull = jax.nn.log_softmax(logits) + params.drafter * noise(contexts)
    kept = memory.contexts.at[rows, nodes.slots].set(contexts, mode='drop')
    return dull, memory._replace(cache=cache, contexts=kept)

  def keep(params, memory, accepted, num_slots):
    return memory._replace(
      cache=sharp.keep(params, memory.cache, accepted, num_slots),
      context=_extend(memory.context, accepted.tokens, accepted.number),
    )

  return reader_lib.Reader(init, read, keep)


def sigma_for(log_p: np.ndarray, divergence: float, seed: int = 0) -> float:
  """Returns the sigma at which the mean KL(p || q) is a given one.

  By bisection, with one draw of the noise for each law.

  Args:
    log_p: `[M, V]` laws of the verifier at temperature 1, in nats.
    divergence: the mean of KL(p || q) over the laws, in nats.
    seed: of the noise.

  Returns:
    Sigma.

  Raises:
    ValueError: a divergence below 0, or laws that noise cannot change.
  """
  if not 0 <= divergence < np.inf:
    raise ValueError(f'expected a finite divergence >= 0, got {divergence}')
  log_p = np.asarray(log_p, np.float64)
  noise = np.random.default_rng(seed).normal(size=log_p.shape)
  if not np.any(np.isfinite(log_p).sum(axis=1) > 1):
    raise ValueError('expected a law of more than one token, got none')
  low, high = 0.0, 1.0
  while mean_divergence(log_p, noise, high) < divergence:
    low, high = high, 2 * high
  for _ in range(_NUM_HALVINGS):
    middle = (low + high) / 2
    if mean_divergence(log_p, noise, middle) < divergence:
      low = middle
    else:
      high = middle
  return high


def mean_divergence(
  log_p: np.ndarray, noise: np.ndarray, sigma: float
) -> float:
  """Returns the mean of KL(p || q) over laws `[M, V]`, in nats.

  Args:
    log_p: `[M, V]` the laws p, normalised, in nats.
    noise: `[M, V]` g of q(y) ~ p(y) exp(sigma g(y)).
    sigma: scale of the noise.
  """
  shift = sigma * noise
  tilted = log_p + shift
  largest = np.max(tilted, axis=1, keepdims=True)
  normaliser = largest[:, 0] + np.log(np.exp(tilted - largest).sum(axis=1))
  return float(np.mean(normaliser - np.sum(np.exp(log_p) * shift, axis=1)))


def _step(contexts, tokens):
  return contexts * _TURN + tokens.astype(jnp.uint32) + jnp.uint32(1)


def _extend(context, tokens, lengths):
  """Contexts `[B]` with the first `lengths` of tokens `[B, T]` behind them."""

  def step(context, column):
    place, here = column
    return jnp.where(place < lengths, _step(context, here), context), None

  columns = (jnp.arange(tokens.shape[1]), tokens.T)
  return lax.scan(step, context, columns)[0]


def _noise(vocab_size, context):
  key = jax.random.fold_in(jax.random.key(_NOISE_SEED), context)
  return jax.random.normal(key, (vocab_size,))
