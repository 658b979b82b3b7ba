"""Passes over rows packed with texts, without a cache.

`read` is `model.forward`.  Its backward pass would add a gradient as large as
all layers once a layer, and keep what every layer computed: for training there
is `forward`.
"""

import jax
import jax.numpy as jnp
from jax import lax

from specjax.llama import attention as attention_lib
from specjax.llama import layer, mask, rope
from specjax.llama import model as llama_model


def read(
  params: llama_model.Params,
  tokens: jax.Array,
  positions: jax.Array,
  documents: jax.Array,
  features: tuple[int, ...] = (),
) -> tuple[jax.Array, jax.Array]:
  """Reads texts that share rows; none sees another.

  Args:
    params: of the model.
    tokens: `[B, T]` int32.
    positions: `[B, T]` int32, of each token in its text.
    documents: `[B, T]` int32, which text of its row a token belongs to.
    features: layers whose inputs are wanted.

  Returns:
    hidden: `[B, T, E]`, the input of `model.head`.
    features: `[B, T, F, E]`.
  """
  # A cache has one slot at least; it is closed.
  cache = llama_model.empty_cache(params, len(tokens), 1)
  hidden, found, _ = llama_model.forward(
    params,
    tokens,
    positions,
    cache,
    mask.committed(cache.length, 1),
    mask.within(documents),
    features,
  )
  return hidden, found


def forward(
  params: llama_model.Params,
  tokens: jax.Array,
  positions: jax.Array,
  documents: jax.Array,
  remat: bool = False,
) -> jax.Array:
  """Runs texts that share rows; none sees another.

  Args:
    params: of the model.
    tokens: `[B, T]` int32.
    positions: `[B, T]` int32, of each token in its text.
    documents: `[B, T]` int32, which text of its row a token belongs to.
    remat: whether the backward pass computes each layer anew, and keeps its
      input alone.

  Returns:
    hidden: `[B, T, E]`, the input of `model.head`.
  """
  config = params.config
  x = llama_model.embed(params, tokens)
  view = _view(config, documents, x.dtype)
  turn = rope.angles(config.rope, config.head_dim, positions)

  def step(x, weights):
    x, _ = layer.run(config, weights, x, turn, view)
    return x, None

  if remat:
    step = jax.checkpoint(step, prevent_cse=False)
  x, _ = lax.scan(step, x, params.weights['layers'])
  return layer.rms_norm(x, params.weights['final_norm'], config.norm_eps)


def _view(config, documents, dtype):
  """Opens a text's earlier tokens, and a cache of one slot that is closed."""
  batch = len(documents)
  heads = (batch, config.num_kv_heads)
  return attention_lib.View(
    keys=jnp.zeros((*heads, config.head_dim, 1), dtype),
    values=jnp.zeros((*heads, 1, config.head_dim), dtype),
    cache_mask=jnp.zeros((batch, 1, 1), bool),
    block_mask=mask.within(documents),
  )
