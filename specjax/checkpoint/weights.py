"""The names of parameters in files, and how files become `Params`.

Both formats hold matrices as `[out, in]`, one tensor a layer; a `Params` holds
`[in, out]`, stacked over layers.
"""

import functools
from collections.abc import Callable, Iterator, Set
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from specjax import parallel
from specjax.llama import config as llama_config
from specjax.llama import model as llama_model
from specjax.llama import split, storage


class Name(NamedTuple):
  """One parameter: what it is called in each place, and how it is laid out.

  Attributes:
    ours: key in `Params.weights`, or in its `layers`.
    hf: Hugging Face name, `{}` for the layer.
    gguf: GGUF name, `{}` for the layer.
    transposed: whether ours is the transpose of the file's.
    rotary: whether its rows are coordinates that RoPE turns in pairs.
  """

  ours: str
  hf: str
  gguf: str
  transposed: bool = False
  rotary: bool = False


OUTER = (
  Name('embed', 'model.embed_tokens.weight', 'token_embd.weight'),
  Name('final_norm', 'model.norm.weight', 'output_norm.weight'),
  Name('head', 'lm_head.weight', 'output.weight'),
)
# Each after `model.layers.{}.` and `blk.{}.`, before `.weight`.
INNER = tuple(
  Name(ours, f'model.layers.{{}}.{hf}.weight', f'blk.{{}}.{gguf}.weight', *how)
  for ours, hf, gguf, *how in (
    ('attention_norm', 'input_layernorm', 'attn_norm'),
    ('q', 'self_attn.q_proj', 'attn_q', True, True),
    ('k', 'self_attn.k_proj', 'attn_k', True, True),
    ('v', 'self_attn.v_proj', 'attn_v', True),
    ('o', 'self_attn.o_proj', 'attn_output', True),
    ('q_norm', 'self_attn.q_norm', 'attn_q_norm'),
    ('k_norm', 'self_attn.k_norm', 'attn_k_norm'),
    ('ffn_norm', 'post_attention_layernorm', 'ffn_norm'),
    ('gate', 'mlp.gate_proj', 'ffn_gate', True),
    ('up', 'mlp.up_proj', 'ffn_up', True),
    ('down', 'mlp.down_proj', 'ffn_down', True),
  )
)


class Source(NamedTuple):
  """Named tensors of a file or of a folder of files.

  Attributes:
    style: 'hf' or 'gguf', whose names they are.
    names: of all tensors.
    read: name -> array, or matrix in blocks; called once a tensor.
    interleaved: whether RoPE turns neighbouring rows of a head, as in Llama
      GGUF files, rather than row `i` with row `i + H/2`.
  """

  style: str
  names: frozenset[str]
  read: Callable[[str], np.ndarray | storage.Blocks]
  interleaved: bool = False


def shapes(
  config: llama_config.LlamaConfig, dtype: jnp.dtype
) -> llama_model.Params:
  """The parameters of a model without their values.

  Args:
    config: of the model.
    dtype: of the parameters.

  Returns:
    `Params` of `jax.ShapeDtypeStruct`.
  """
  make = lambda: llama_model.Llama(config, rngs=nnx.Rngs(0), dtype=dtype)
  return llama_model.params_of(nnx.eval_shape(make))


def assemble(
  config: llama_config.LlamaConfig,
  source: Source,
  dtype: jnp.dtype,
  layout: parallel.Layout | None = None,
) -> llama_model.Params:
  """Fills the parameters of a model from a source.

  One tensor of the source is on the host at a time.

  Args:
    config: of the model.
    source: its tensors.
    dtype: of the parameters; blocks stay what they are.
    layout: devices whose groups share out a copy each; None for one device.

  Returns:
    The parameters.

  Raises:
    ValueError: names a tensor that is missing, unused or misshapen, or in
      blocks of another kind than the same of the first layer.
  """
  expected = shapes(config, dtype)
  outer = [name for name in OUTER if name.ours in expected.weights]
  inner = [name for name in INNER if name.ours in expected.weights['layers']]
  _check_names(config, source, set(_file_names(config, source, outer, inner)))

  def read(name, number, shape):
    values = _tensor(config, source, name, number, shape)
    if not isinstance(values, storage.Blocks):
      values = np.asarray(values, dtype)
    where = sharding(config, name.ours, layout, number)
    # What a source hands out may be the file itself, mapped read-only.
    return jax.device_put(values, where, may_alias=False)

  def stack(name):
    shape = expected.weights['layers'][name.ours].shape
    layers = (read(name, i, shape[1:]) for i in range(config.num_layers))
    return _stack(layers, shape[0], sharding(config, name.ours, layout), name)

  weights = {
    name.ours: read(name, None, expected.weights[name.ours].shape)
    for name in outer
  }
  weights['layers'] = {name.ours: stack(name) for name in inner}
  return expected.replace(weights=weights)


def sharding(
  config: llama_config.LlamaConfig,
  name: str,
  layout: parallel.Layout | None,
  number: int | None = None,
) -> jax.sharding.Sharding | None:
  """Says where a parameter goes.

  Args:
    config: of the model.
    name: key in `Params.weights`, or in its `layers`.
    layout: devices whose groups share out a copy each; None for one device.
    number: of the layer whose slice of the stack is meant; None for the whole
      array.

  Returns:
    Its place; None for the default device.
  """
  if layout is None:
    return None
  axis = split.axis(config, name, layout.num_parts)
  if axis is not None and number is not None:
    axis -= 1
  return parallel.part(layout, axis)


def check_names(found: Set[str], expected: Set[str]) -> None:
  """Raises `ValueError` that names tensors that are missing or unused.

  Args:
    found: names of the tensors that there are.
    expected: names of the tensors that there have to be.
  """
  missing, unused = expected - found, found - expected
  if missing:
    raise ValueError(f'expected tensors that are missing: {_some(missing)}')
  if unused:
    raise ValueError(f'expected no other tensors, got {_some(unused)}')


def tensor(
  source: Source, name: str, shape: tuple[int, ...]
) -> np.ndarray | storage.Blocks:
  """Reads one tensor.

  Args:
    source: it is in.
    name: what the source calls it.
    shape: what the source has to hold.

  Raises:
    ValueError: names a tensor of another shape.
  """
  values = source.read(name)
  if values.shape != shape:
    raise ValueError(f'expected {name} of shape {shape}, got {values.shape}')
  return values


def _file_names(config, source, outer, inner) -> Iterator[str]:
  for name in outer:
    yield getattr(name, source.style)
  for name in inner:
    for number in range(config.num_layers):
      yield getattr(name, source.style).format(number)


def _check_names(config, source, expected):
  known = {
    name
    for name in source.names - expected
    # Constants of RoPE, which follow from the configuration.
    if name.endswith('rotary_emb.inv_freq') or name == 'rope_freqs.weight'
  }
  if config.tie_embeddings:
    known.add('lm_head.weight')  # Written by some: the embedding again.
  check_names(source.names - known, expected)


def _some(names):
  listed = sorted(names)
  return ', '.join(listed[:5]) + (
    f' and {len(listed) - 5} more' if len(listed) > 5 else ''
  )


def _tensor(config, source, name, number, shape):
  """Reads one tensor in our layout; `shape` is ours too."""
  file_name = getattr(name, source.style).format(number)
  file_shape = shape[::-1] if name.transposed else shape
  values = tensor(source, file_name, file_shape)
  if name.rotary and source.interleaved:
    turn = functools.partial(_halves_from_pairs, head_dim=config.head_dim)
    values = jax.tree.map(turn, values)
  return jax.tree.map(np.transpose, values) if name.transposed else values


def _stack(layers, num_layers, where, name):
  """Puts layers into an array of all of them, one after the other."""
  stack = None
  for number, values in enumerate(layers):
    if stack is None:
      empty = lambda x: jnp.zeros((num_layers, *x.shape), x.dtype, device=where)
      stack = jax.tree.map(empty, values)
    if jax.tree.structure(values) != jax.tree.structure(stack):
      raise ValueError(
        f'expected {name.ours} of all layers in blocks of one kind, got '
        f'another in layer {number}'
      )
    # Waits, or reading would run ahead, and fill the host.
    stack = jax.block_until_ready(_put(stack, values, number))
  return stack


def _halves_from_pairs(values, head_dim):
  """Rows `2i` and `2i + 1` of each head become `i` and `i + H/2`."""
  paired = values.reshape(-1, head_dim // 2, 2, values.shape[-1])
  return paired.swapaxes(1, 2).reshape(values.shape)


@functools.partial(jax.jit, donate_argnums=0)
def _put(stack, values, number):
  put = lambda stack, x: stack.at[number].set(x)
  return jax.tree.map(put, stack, values)
