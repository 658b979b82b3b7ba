"""The EAGLE-3 head: a layer that foresees what a verifier will say.

The verifier has seen tokens t_0 .. t_i; some of its layers' inputs at t_i, one
behind the other, are the feature f_i.  The head runs one decoder layer over the
tokens, of which each brings what was known before it:

  x_{i+1} = fc f_i
  h_{i+1} = x_{i+1} + attention(norm(embedding of t_{i+1}), norm(x_{i+1}))
  o_{i+1} = h_{i+1} + ffn(norm(h_{i+1}))
  logits of t_{i+2} = head norm(o_{i+1})

A draft has no feature yet: there x is the o of the token before.  Embeddings
are the verifier's; the head knows a part of its vocabulary.

Source: Y. Li et al., "EAGLE-3", arXiv 2503.01840.
"""

import dataclasses
from typing import Any

import chex
import flax.struct
import jax
import jax.numpy as jnp
from flax import nnx

from specjax.llama import attention as attention_lib
from specjax.llama import cache as llama_cache
from specjax.llama import config as llama_config
from specjax.llama import layer, linear, rope, storage
from specjax.llama import model as llama_model


@dataclasses.dataclass(frozen=True)
class EagleConfig:
  """Sizes of a head; hashable, so it may be static to jit.

  Attributes:
    layer: of its one layer; `vocab_size` and `width` are the verifier's.  With
      `tie_embeddings` the head speaks with rows of the verifier's own output
      matrix, see `tied`.
    draft_vocab_size: tokens that the head can draft.
    features: layers of the verifier whose inputs make a feature, rising.
  """

  layer: llama_config.LlamaConfig
  draft_vocab_size: int
  features: tuple[int, ...]

  def __post_init__(self):
    if self.layer.num_layers != 1 or self.layer.qk_norm:
      raise ValueError(
        f'expected one layer without qk_norm, got {self.layer.num_layers} and '
        f'qk_norm {self.layer.qk_norm}'
      )
    if not 1 <= self.draft_vocab_size <= self.layer.vocab_size:
      raise ValueError(
        f'expected draft_vocab_size in [1, {self.layer.vocab_size}], got '
        f'{self.draft_vocab_size}'
      )
    rising = sorted(set(self.features))
    if not rising or list(self.features) != rising or rising[0] < 0:
      raise ValueError(
        f'expected features of rising layers, got {self.features}'
      )


def published_features(num_layers: int) -> tuple[int, int, int]:
  """Returns the layers whose inputs published heads read: low, middle, high.

  Args:
    num_layers: `L`, of the verifier.

  Raises:
    ValueError: too few layers for three different ones.
  """
  if num_layers < 7:
    raise ValueError(
      'expected a verifier of at least 7 layers, so that 2, L//2 and L-3 '
      f'differ, got {num_layers}'
    )
  return 2, num_layers // 2, num_layers - 3


def check_fit(
  config: EagleConfig, verifier_config: llama_config.LlamaConfig
) -> None:
  """Raises `ValueError` if a head was made for another verifier.

  Args:
    config: of the head.
    verifier_config: of the model that decides.
  """
  for name in ('vocab_size', 'width'):
    own, others = getattr(config.layer, name), getattr(verifier_config, name)
    if own != others:
      raise ValueError(
        f'expected a head with the {name} of its verifier, {others}, got {own}'
      )
  if config.features[-1] >= verifier_config.num_layers:
    raise ValueError(
      f'expected features of layers 0 to {verifier_config.num_layers - 1}, got '
      f'{config.features}'
    )


class Eagle(nnx.Module):
  """A head at random, its parameters ready to inspect, replace or save.

  Attributes:
    config: sizes.
    fuse: `[F E, E]` for `F` features.
    embed_norm: `[E]`, of the token's embedding.
    state_norm: `[E]`, of what was known before it.
    q: `[2 E, Q H]`; the embedding comes first.
    k: `[2 E, K H]`.
    v: `[2 E, K H]`.
    o: `[Q H, E]`.
    ffn_norm: `[E]`.
    gate: `[E, F]`.
    up: `[E, F]`.
    down: `[F, E]`.
    final_norm: `[E]`.
    head: `[V_draft, E]`; absent where it is tied to the verifier's.
  """

  def __init__(self, config: EagleConfig, *, rngs: nnx.Rngs, dtype: jnp.dtype):
    self.config = config
    sizes = config.layer
    width, ffn_width = sizes.width, sizes.ffn_width
    q_width = sizes.num_heads * sizes.head_dim
    kv_width = sizes.num_kv_heads * sizes.head_dim
    ones = lambda: nnx.Param(jnp.ones(width, dtype))
    matrix = lambda *shape, **axes: nnx.Param(
      nnx.initializers.lecun_normal(**axes)(rngs.params(), shape, dtype)
    )
    self.fuse = matrix(len(config.features) * width, width)
    self.embed_norm = ones()
    self.state_norm = ones()
    self.q = matrix(2 * width, q_width)
    self.k = matrix(2 * width, kv_width)
    self.v = matrix(2 * width, kv_width)
    self.o = matrix(q_width, width)
    self.ffn_norm = ones()
    self.gate = matrix(width, ffn_width)
    self.up = matrix(width, ffn_width)
    self.down = matrix(ffn_width, width)
    self.final_norm = ones()
    if not sizes.tie_embeddings:
      table = (config.draft_vocab_size, width)
      self.head = matrix(*table, in_axis=1, out_axis=0)


@flax.struct.dataclass
class Params:
  """What a pass needs to know of a head.

  Attributes:
    weights: parameters of an `Eagle` by name.
    token_ids: `[V_draft]` int32, what the verifier calls the head's tokens.
    config: sizes, static to jit.
  """

  weights: dict[str, Any]
  token_ids: jax.Array
  config: EagleConfig = flax.struct.field(pytree_node=False)


def init_params(
  key: jax.Array, config: EagleConfig, token_ids: jax.Array, dtype: jnp.dtype
) -> Params:
  """A head at random.

  Args:
    key: PRNG key, consumed.
    config: sizes.
    token_ids: `[V_draft]` what the verifier calls the tokens to be drafted.
    dtype: of the parameters.

  Returns:
    Matrices near normal with the standard deviation 1/sqrt(inputs), norms 1.
  """
  chex.assert_shape(token_ids, (config.draft_vocab_size,))
  head = Eagle(config, rngs=nnx.Rngs(key), dtype=dtype)
  weights = nnx.to_pure_dict(nnx.state(head, nnx.Param))
  return Params(weights, jnp.asarray(token_ids, jnp.int32), config)


def tied(params: Params, verifier: llama_model.Params) -> Params:
  """Gives a head the rows of the verifier's output matrix to speak with.

  Args:
    params: of a head; of one with `tie_embeddings` the weights lack `head`.
    verifier: the model that the head drafts for.

  Returns:
    The head, with `head` in the type of its other weights; as it came where
    it has one of its own.
  """
  if not params.config.layer.tie_embeddings:
    return params
  matrix = llama_model.head_matrix(verifier)
  rows = storage.take_rows(matrix, params.token_ids)
  rows = rows.astype(params.weights['fuse'].dtype)
  return params.replace(weights={**params.weights, 'head': rows})


def ordered(params: Params, order: str) -> Params:
  """Stores the matrices of a head in another order, for decoding.

  Args:
    params: of a head as it was made or read.
    order: of `storage.ORDERS`, best that of the verifier.

  Raises:
    ValueError: an unknown order.
  """
  # The output matrix is stored by token whatever the order.
  weights = {
    name: storage.in_order(w, order) if w.ndim == 2 and name != 'head' else w
    for name, w in params.weights.items()
  }
  return params.replace(weights=weights)


def empty_cache(
  params: Params, batch: int, num_slots: int
) -> llama_cache.KVCache:
  """A cache for a head, in the compute type of its weights.

  Args:
    params: of the head.
    batch: `B`.
    num_slots: `S`.

  Returns:
    Zeros, every length 0.
  """
  return llama_cache.init(params.config.layer, batch, num_slots, _dtype(params))


def fuse(params: Params, features: jax.Array) -> jax.Array:
  """Returns `fc f`, `[..., E]`, in the compute type of the weights.

  Args:
    params: of the head.
    features: `[..., F E]`, inputs of the layers one behind the other.
  """
  return linear.matmul(features.astype(_dtype(params)), params.weights['fuse'])


def forward(
  params: Params,
  embedded: jax.Array,
  states: jax.Array,
  positions: jax.Array,
  cache: llama_cache.KVCache,
  cache_mask: jax.Array,
  block_mask: jax.Array,
) -> tuple[jax.Array, llama_cache.NewKV]:
  """One pass over a block of tokens; masks as for a Llama.

  Args:
    params: of the head.
    embedded: `[B, T, E]` the verifier's vectors of the tokens.
    states: `[B, T, E]` what was known before each: fused features, or for a
      draft the state of the token before.
    positions: `[B, T]` int32.
    cache: of one layer.
    cache_mask: `[B, 1 or T, S]` bool.
    block_mask: `[B or 1, T, T]` bool, query by key.

  Returns:
    states: `[B, T, E]` after the tokens, the input of `head`.
    new_kv: keys and values of the block, to be committed or stashed.
  """
  chex.assert_equal_shape([embedded, states])
  config, weights = params.config.layer, params.weights
  norm = lambda x, name: layer.rms_norm(
    x.astype(_dtype(params)), weights[name], config.norm_eps
  )
  known = [norm(embedded, 'embed_norm'), norm(states, 'state_norm')]
  mixed, (keys, values) = layer.attention(
    config,
    weights,
    jnp.concatenate(known, axis=-1),
    rope.angles(config.rope, config.head_dim, positions),
    attention_lib.View(cache.keys[0], cache.values[0], cache_mask, block_mask),
  )
  states = states + mixed
  states = states + layer.ffn(weights, norm(states, 'ffn_norm'))
  return states, llama_cache.NewKV(keys[None], values[None])


def head(params: Params, states: jax.Array) -> jax.Array:
  """Logits of the next token.

  Args:
    params: of the head.
    states: `[..., E]`, as `forward` returns them.

  Returns:
    `[..., V_draft]` float32, of the tokens `params.token_ids`.
  """
  hidden = layer.rms_norm(
    states, params.weights['final_norm'], params.config.layer.norm_eps
  )
  return linear.matmul_rows(hidden, params.weights['head'])


def _dtype(params):
  return linear.compute_dtype(params.weights['final_norm'].dtype)
