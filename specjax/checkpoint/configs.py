"""The configuration of a model as files spell it, and ours."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from specjax.llama import config as llama_config

# Model types that are known, and whether they normalise queries and keys.
_QK_NORM = {'llama': False, 'qwen3': True}


def from_hf(config: Mapping[str, Any]) -> llama_config.LlamaConfig:
  """Reads a Hugging Face `config.json`.

  Args:
    config: the parsed file, of model type llama or qwen3; RoPE may be spelled
      `rope_theta` and `rope_scaling`, or `rope_parameters`.

  Returns:
    The configuration.

  Raises:
    ValueError: names what is missing or is not supported.
  """
  model_type = config.get('model_type')
  if model_type not in _QK_NORM:
    raise ValueError(
      f'expected model_type in {sorted(_QK_NORM)}, got {model_type!r}'
    )
  _refuse_unsupported(config)
  num_heads = _need(config, 'num_attention_heads')
  width = _need(config, 'hidden_size')
  return llama_config.LlamaConfig(
    num_layers=_need(config, 'num_hidden_layers'),
    width=width,
    ffn_width=_need(config, 'intermediate_size'),
    num_heads=num_heads,
    num_kv_heads=config.get('num_key_value_heads') or num_heads,
    head_dim=config.get('head_dim') or width // num_heads,
    vocab_size=_need(config, 'vocab_size'),
    norm_eps=config.get('rms_norm_eps', 1e-6),
    rope=_rope_from_hf(config),
    tie_embeddings=config.get('tie_word_embeddings', False),
    qk_norm=_QK_NORM[model_type],
    max_positions=config.get('max_position_embeddings', 2048),
  )


def to_hf(config: llama_config.LlamaConfig) -> dict[str, Any]:
  """Writes what `from_hf` reads, in the spelling that every reader knows.

  Args:
    config: the configuration.

  Returns:
    The content of a Hugging Face `config.json`.
  """
  model_type = 'qwen3' if config.qk_norm else 'llama'
  rope = config.rope
  scaling = None
  if rope.kind != 'plain':
    scaling = {'rope_type': rope.kind, 'factor': rope.factor}
  if rope.kind == 'llama3':
    scaling |= {
      'low_freq_factor': rope.low_freq_factor,
      'high_freq_factor': rope.high_freq_factor,
      'original_max_position_embeddings': rope.original_max_positions,
    }
  return {
    'architectures': [f'{model_type.capitalize()}ForCausalLM'],
    'model_type': model_type,
    'num_hidden_layers': config.num_layers,
    'hidden_size': config.width,
    'intermediate_size': config.ffn_width,
    'num_attention_heads': config.num_heads,
    'num_key_value_heads': config.num_kv_heads,
    'head_dim': config.head_dim,
    'vocab_size': config.vocab_size,
    'rms_norm_eps': config.norm_eps,
    'rope_theta': rope.theta,
    'rope_scaling': scaling,
    'tie_word_embeddings': config.tie_embeddings,
    'max_position_embeddings': config.max_positions,
    'hidden_act': 'silu',
  }


def from_gguf(
  metadata: Mapping[str, Any], tie_embeddings: bool
) -> llama_config.LlamaConfig:
  """Reads the metadata of a GGUF file.

  Args:
    metadata: the file's key-value pairs, of architecture llama or qwen3.
    tie_embeddings: whether the file lacks a head of its own, which only its
      list of tensors tells.

  Returns:
    The configuration.  Llama-3 scaling is not in the metadata either: such
    files carry its frequencies as a tensor.

  Raises:
    ValueError: names what is missing or is not supported.
  """
  arch = metadata.get('general.architecture')
  if arch not in _QK_NORM:
    raise ValueError(
      f'expected general.architecture in {sorted(_QK_NORM)}, got {arch!r}'
    )
  get = lambda name, default: metadata.get(f'{arch}.{name}', default)
  need = lambda name: _need(metadata, f'{arch}.{name}')
  num_heads, width = need('attention.head_count'), need('embedding_length')
  scaling = get('rope.scaling.type', 'none')
  if scaling not in ('none', 'linear'):
    raise ValueError(f'expected rope scaling none or linear, got {scaling!r}')
  vocab_size = get('vocab_size', None) or len(
    _need(metadata, 'tokenizer.ggml.tokens')
  )
  return llama_config.LlamaConfig(
    num_layers=need('block_count'),
    width=width,
    ffn_width=need('feed_forward_length'),
    num_heads=num_heads,
    num_kv_heads=get('attention.head_count_kv', num_heads),
    head_dim=get('attention.key_length', width // num_heads),
    vocab_size=vocab_size,
    norm_eps=_decimal(need('attention.layer_norm_rms_epsilon')),
    rope=llama_config.RopeConfig(
      theta=_decimal(get('rope.freq_base', 10000.0)),
      kind='plain' if scaling == 'none' else scaling,
      factor=1.0 if scaling == 'none' else need('rope.scaling.factor'),
    ),
    tie_embeddings=tie_embeddings,
    qk_norm=_QK_NORM[arch],
    max_positions=need('context_length'),
  )


def _need(fields: Mapping[str, Any], name: str) -> Any:
  if fields.get(name) is None:
    raise ValueError(f'expected a value for {name}, got none')
  return fields[name]


def _decimal(value: float) -> float:
  """The number that was meant: 1e-05 where float32 made 9.99999974e-06."""
  return float(str(np.float32(value)))


def _refuse_unsupported(config: Mapping[str, Any]) -> None:
  for name in ('attention_bias', 'mlp_bias', 'use_sliding_window'):
    if config.get(name):
      raise ValueError(f'expected no {name}, got {name} = {config[name]}')
  rotated = config.get('partial_rotary_factor', 1.0)
  if rotated != 1.0:
    raise ValueError(f'expected partial_rotary_factor 1, got {rotated}')
  activation = config.get('hidden_act', 'silu')
  if activation != 'silu':
    raise ValueError(f'expected hidden_act silu, got {activation!r}')
  other = set(config.get('layer_types') or ()) - {'full_attention'}
  if other:
    raise ValueError(f'expected full_attention layers, got {sorted(other)}')
  if config.get('quantization_config'):
    raise ValueError('expected plain weights, got a quantization_config')


def _rope_from_hf(config: Mapping[str, Any]) -> llama_config.RopeConfig:
  rope = config.get('rope_parameters') or config.get('rope_scaling') or {}
  theta = rope.get('rope_theta') or config.get('rope_theta', 10000.0)
  # 'type' is the older spelling of 'rope_type'.
  kind = rope.get('rope_type') or rope.get('type') or 'default'
  if kind == 'default':
    return llama_config.RopeConfig(theta=theta)
  if kind not in ('linear', 'llama3'):
    raise ValueError(
      f'expected rope type default, linear or llama3, got {kind!r}'
    )
  if kind == 'linear':
    return llama_config.RopeConfig(
      theta=theta, kind=kind, factor=_need(rope, 'factor')
    )
  return llama_config.RopeConfig(
    theta=theta,
    kind=kind,
    factor=_need(rope, 'factor'),
    low_freq_factor=_need(rope, 'low_freq_factor'),
    high_freq_factor=_need(rope, 'high_freq_factor'),
    original_max_positions=_need(rope, 'original_max_position_embeddings'),
  )
