"""Lessons: packed texts, and what a verifier says of every token of them."""

import flax.struct
import jax
import jax.numpy as jnp
from jax import lax

from specjax.llama import model as llama_model
from specjax.llama import packed

# Places whose logits are there at a time.
_CHUNK = 64


@flax.struct.dataclass
class Lesson:
  """Packed texts, and what the verifier says of them.

  Attributes:
    tokens: `[B, T]` int32.
    documents: `[B, T]` int32 from 1, 0 for padding.
    positions: `[B, T]` int32, of a token in its document.
    is_target: `[B, T]` bool, whether the token is to be predicted; False for
      the first of a document.
    features: `[B, T, F E]` of each token, inputs of layers side by side.
    hidden: `[B, T, E]` of each token, the input of the verifier's head.
    log_total: `[B, T]` float32, log of the sum of `e^logits`.
    best: `[B, T]` int32, the most probable next token.
  """

  tokens: jax.Array
  documents: jax.Array
  positions: jax.Array
  is_target: jax.Array
  features: jax.Array
  hidden: jax.Array
  log_total: jax.Array
  best: jax.Array


def read(
  verifier: llama_model.Params,
  tokens: jax.Array,
  documents: jax.Array,
  positions: jax.Array,
  is_target: jax.Array,
  layers: tuple[int, ...],
) -> Lesson:
  """Lets the verifier read packed texts, in one pass.

  Args:
    verifier: the model.
    tokens: `[B, T]` int32.
    documents: `[B, T]` int32; a token sees earlier ones of its document.
    positions: `[B, T]` int32.
    is_target: `[B, T]` bool.
    layers: whose inputs make a feature.

  Returns:
    The lesson, in the compute type of the verifier.
  """
  hidden, features = packed.read(verifier, tokens, positions, documents, layers)

  def summary(hidden):
    logits = llama_model.head(verifier, hidden)
    return jax.nn.logsumexp(logits), jnp.argmax(logits).astype(jnp.int32)

  flat = hidden.reshape(-1, hidden.shape[-1])
  log_total, best = lax.map(summary, flat, batch_size=_CHUNK)
  return Lesson(
    tokens=tokens,
    documents=documents,
    positions=positions,
    is_target=is_target,
    features=features.reshape(*tokens.shape, -1),
    hidden=hidden,
    log_total=log_total.reshape(tokens.shape),
    best=best.reshape(tokens.shape),
  )


def is_first(documents: jax.Array) -> jax.Array:
  """Returns which tokens begin a document, `[B, T]` bool.

  Args:
    documents: `[B, T]` int32 from 1, 0 for padding.
  """
  return documents != of_parents(documents)


def of_parents(x: jax.Array) -> jax.Array:
  """Returns at each token what there was at the token before, 0 at the first.

  Args:
    x: `[B, T, ...]`.
  """
  return jnp.pad(x[:, :-1], [(0, 0), (1, 0)] + [(0, 0)] * (x.ndim - 2))
