"""Llama: the module that declares the parameters and the pass over them."""

import dataclasses
from typing import Any

import chex
import flax.struct
import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

from specjax.llama import attention as attention_lib
from specjax.llama import cache as llama_cache
from specjax.llama import config as llama_config
from specjax.llama import layer, linear, mask, rope, storage


class Layers(nnx.Module):
  """Parameters of all layers, each stacked over `L`."""

  def __init__(
    self, config: llama_config.LlamaConfig, rngs: nnx.Rngs, dtype: jnp.dtype
  ):
    width, ffn_width = config.width, config.ffn_width
    q_width = config.num_heads * config.head_dim
    kv_width = config.num_kv_heads * config.head_dim
    ones = lambda size: nnx.Param(jnp.ones((config.num_layers, size), dtype))
    matrix = lambda inputs, outputs: _normal(
      rngs, (config.num_layers, inputs, outputs), inputs, dtype
    )
    self.attention_norm = ones(width)
    self.q = matrix(width, q_width)
    self.k = matrix(width, kv_width)
    self.v = matrix(width, kv_width)
    self.o = matrix(q_width, width)
    if config.qk_norm:
      self.q_norm = ones(config.head_dim)
      self.k_norm = ones(config.head_dim)
    self.ffn_norm = ones(width)
    self.gate = matrix(width, ffn_width)
    self.up = matrix(width, ffn_width)
    self.down = matrix(ffn_width, width)


class Llama(nnx.Module):
  """A Llama at random, its parameters ready to inspect, replace or save.

  Attributes:
    config: sizes and switches.
    embed: `[V, E]`.
    layers: `Layers`.
    final_norm: `[E]`.
    head: `[V, E]`; absent where the embedding serves as the head.
  """

  def __init__(
    self, config: llama_config.LlamaConfig, *, rngs: nnx.Rngs, dtype: jnp.dtype
  ):
    self.config = config
    table = (config.vocab_size, config.width)
    self.embed = _normal(rngs, table, config.width, dtype)
    self.layers = Layers(config, rngs, dtype)
    self.final_norm = nnx.Param(jnp.ones(config.width, dtype))
    if not config.tie_embeddings:
      self.head = _normal(rngs, table, config.width, dtype)


@flax.struct.dataclass
class Params:
  """What a pass needs to know of a model.

  Attributes:
    weights: parameters of a `Llama` as nested dicts of arrays.
    config: sizes and switches, static to jit.
  """

  weights: dict[str, Any]
  config: llama_config.LlamaConfig = flax.struct.field(pytree_node=False)


def params_of(llama: Llama) -> Params:
  """The parameters of a module, for `forward`.

  Args:
    llama: the module; under `nnx.eval_shape`, shapes and types alone.

  Returns:
    Its parameters, sharing the arrays.
  """
  return Params(nnx.to_pure_dict(nnx.state(llama, nnx.Param)), llama.config)


def init_params(
  key: jax.Array, config: llama_config.LlamaConfig, dtype: jnp.dtype
) -> Params:
  """A model at random.

  Args:
    key: PRNG key, consumed.
    config: sizes and switches.
    dtype: of the parameters.

  Returns:
    Matrices normal with the standard deviation 1/sqrt(inputs),
    norms 1.
  """
  return params_of(Llama(config, rngs=nnx.Rngs(key), dtype=dtype))


def embed(params: Params, tokens: jax.Array) -> jax.Array:
  """Vectors of tokens.

  Args:
    params: of the model.
    tokens: `[...]` int32 in `[0, V)`.

  Returns:
    `[..., E]` in the compute type of the weights.
  """
  table = params.weights['embed']
  vectors = storage.take_rows(table, tokens)
  return vectors.astype(linear.compute_dtype(table.dtype))


def head(params: Params, hidden: jax.Array) -> jax.Array:
  """Logits of the next token.

  Args:
    params: of the model.
    hidden: `[..., E]` as `forward` returns it; only the rows that are needed.

  Returns:
    `[..., V]` float32.
  """
  return linear.matmul_rows(hidden, head_matrix(params))


def head_matrix(params: Params) -> storage.Stored:
  """Returns the matrix of `head`, `[V, E]`; the embedding where it is tied.

  Args:
    params: of the model.
  """
  name = 'embed' if params.config.tie_embeddings else 'head'
  return params.weights[name]


def forward(
  params: Params,
  tokens: jax.Array,
  positions: jax.Array,
  cache: llama_cache.KVCache,
  cache_mask: jax.Array,
  block_mask: jax.Array,
  features: tuple[int, ...] = (),
  layers: tuple[int, ...] | None = None,
) -> tuple[jax.Array, jax.Array, llama_cache.NewKV]:
  """One pass over a block of tokens: prefill, plain step or tree alike.

  A query attends in one softmax to the cache slots that `cache_mask` opens and
  to the tokens of the block that `block_mask` opens; one that sees nothing
  gets zeros from attention.  The cache is only read.

  Args:
    params: of the model.
    tokens: `[B, T]` int32.
    positions: `[B, T]` int32; of a tree node: prefix length plus depth.
    cache: as deep as the layers that run: the `i`-th of them reads its entry
      `i`.
    cache_mask: `[B, 1 or T, S]` bool.
    block_mask: `[B or 1, T, T]` bool, query by key.
    features: layers whose inputs are returned.
    layers: the layers that run, all by default.

  Returns:
    hidden: `[B, T, E]`, the input of `head`.
    features: `[B, T, len(features), E]`.
    new_kv: keys and values of the block, to be committed or stashed.

  Raises:
    ValueError: a layer that the model lacks, a feature of a layer that is not
      run, or a cache of another depth.
  """
  config = params.config
  layers = _check_layers(config, cache, features, layers)
  batch, num_tokens = tokens.shape
  chex.assert_shape(positions, (batch, num_tokens))
  chex.assert_shape(block_mask, (None, num_tokens, num_tokens))
  chex.assert_shape(cache_mask, (batch, None, cache.num_slots))
  turn = rope.angles(config.rope, config.head_dim, positions)
  stacks = params.weights['layers']
  wanted = jnp.asarray(features, jnp.int32).reshape(-1, 1, 1, 1)

  def step(carry, here):
    x, taken = carry
    number, keys, values = here
    taken = jnp.where(wanted == number, x, taken)
    weights = linear.entries(stacks, number)
    view = attention_lib.View(keys, values, cache_mask, block_mask)
    x, new_kv = layer.run(config, weights, x, turn, view)
    return (x, taken), new_kv

  x = embed(params, tokens)
  taken = jnp.zeros((len(features), *x.shape), x.dtype)
  here = (jnp.asarray(layers, jnp.int32), cache.keys, cache.values)
  (x, taken), (keys, values) = lax.scan(step, (x, taken), here)
  hidden = layer.rms_norm(x, params.weights['final_norm'], config.norm_eps)
  new_kv = llama_cache.NewKV(keys=keys, values=values)
  return hidden, jnp.moveaxis(taken, 0, 2), new_kv


def prefill(
  params: Params,
  tokens: jax.Array,
  lengths: jax.Array,
  cache: llama_cache.KVCache,
  layers: tuple[int, ...] | None = None,
) -> tuple[jax.Array, llama_cache.KVCache]:
  """Reads tokens from left to right and commits them.

  Args:
    params: of the model.
    tokens: `[B, T]` int32, padded on the right; `T` may be 0.
    lengths: `[B]` int32, tokens of each row that count.
    cache: empty, or holding what precedes the tokens.
    layers: the layers that run, all by default.

  Returns:
    hidden: `[B, T, E]`, the input of `head`; of no meaning past `lengths`.
    cache: with `lengths` more tokens.
  """
  if tokens.shape[1] == 0:
    return embed(params, tokens), cache
  hidden, _, new_kv, order = _left_to_right(params, tokens, cache, layers)
  return hidden, llama_cache.commit(cache, new_kv, order, lengths)


def read(
  params: Params,
  tokens: jax.Array,
  lengths: jax.Array,
  num_slots: int,
  features: tuple[int, ...] = (),
) -> tuple[jax.Array, jax.Array, llama_cache.KVCache]:
  """Reads tokens from left to right into a cache of their own.

  As `prefill` with an empty cache, but the pass does not attend to the empty
  slots, which would cost it as much again.

  Args:
    params: of the model.
    tokens: `[B, T]` int32, padded on the right; `T` is at least 1.
    lengths: `[B]` int32, tokens of each row that count.
    num_slots: `S`, at least the largest of the lengths.
    features: layers whose inputs are returned.

  Returns:
    hidden: `[B, T, E]`, the input of `head`; of no meaning past `lengths`.
    features: `[B, T, len(features), E]`, alike.
    cache: of the first `lengths` tokens, in the compute type of the weights.
  """
  # A cache has one slot at least; it is closed.
  closed = empty_cache(params, tokens.shape[0], 1)
  hidden, taken, new_kv, _ = _left_to_right(
    params, tokens, closed, features=features
  )
  return hidden, taken, llama_cache.of_pass(new_kv, lengths, num_slots)


def empty_cache(
  params: Params,
  batch: int,
  num_slots: int,
  layers: tuple[int, ...] | None = None,
) -> llama_cache.KVCache:
  """A cache for a model, in the compute type of its weights.

  Args:
    params: of the model.
    batch: `B`.
    num_slots: `S`.
    layers: the layers that will run, all by default.

  Returns:
    Zeros, every length 0.
  """
  config = params.config
  if layers is not None:
    config = dataclasses.replace(config, num_layers=len(layers))
  dtype = linear.compute_dtype(params.weights['embed'].dtype)
  return llama_cache.init(config, batch, num_slots, dtype)


def _left_to_right(params, tokens, cache, layers=None, features=()):
  """Runs tokens behind those of the cache, and numbers them `[B, T]`."""
  order = jnp.broadcast_to(jnp.arange(tokens.shape[1]), tokens.shape)
  hidden, taken, new_kv = forward(
    params,
    tokens,
    cache.length[:, None] + order,
    cache,
    mask.committed(cache.length, cache.num_slots),
    mask.causal(tokens.shape[1]),
    features,
    layers,
  )
  return hidden, taken, new_kv, order


def _check_layers(config, cache, features, layers):
  every = tuple(range(config.num_layers))
  layers = every if layers is None else layers
  if not layers or not set(layers) <= set(every):
    raise ValueError(
      f'expected layers of 0 to {config.num_layers - 1}, got {layers}'
    )
  if not set(features) <= set(layers):
    raise ValueError(f'expected features among {layers}, got {features}')
  if cache.keys.shape[0] != len(layers):
    raise ValueError(
      f'expected a cache of {len(layers)} layers, got {cache.keys.shape[0]}'
    )
  return layers


def _normal(rngs, shape, inputs, dtype):
  values = rngs.params.normal(shape, jnp.float32) * inputs**-0.5
  return nnx.Param(values.astype(dtype))
