"""Small checkpoints under Hugging Face names, drawn again from a seed.

The names and shapes are written out here on their own, so that they check the
table of `specjax.checkpoint.weights`.
"""

import json

import jax.numpy as jnp
import numpy as np
import safetensors.numpy

from specjax import tokenizer
from specjax.checkpoint import configs, orbax_store, weights

NUM_TOKENS = 48
SMALL = {
  'num_hidden_layers': 2,
  'hidden_size': 32,
  'intermediate_size': 48,
  'num_attention_heads': 4,
  'num_key_value_heads': 2,
  'head_dim': 8,
  'vocab_size': 64,
  'rms_norm_eps': 1e-5,
  'max_position_embeddings': 64,
  'rope_theta': 10000.0,
  'tie_word_embeddings': False,
  'hidden_act': 'silu',
}
LLAMA, QWEN3 = {'model_type': 'llama'}, {'model_type': 'qwen3'}
CASES = {
  'llama2': SMALL | LLAMA | {'num_key_value_heads': 4},
  'llama3': SMALL
  | LLAMA
  | {
    'rope_theta': 100.0,
    'rope_scaling': {
      'rope_type': 'llama3',
      'factor': 8.0,
      'low_freq_factor': 1.0,
      'high_freq_factor': 4.0,
      'original_max_position_embeddings': 32,
    },
  },
  'linear': SMALL
  | LLAMA
  | {'rope_scaling': {'rope_type': 'linear', 'factor': 2.0}},
  'tied': SMALL | LLAMA | {'tie_word_embeddings': True},
  'qwen3': SMALL | QWEN3 | {'tie_word_embeddings': True, 'head_dim': 16},
}


def tokens(config):
  """Ids of one text, `[48]`."""
  rng = np.random.RandomState(1)
  return rng.randint(0, config['vocab_size'], NUM_TOKENS)


def tensors(config, seed=0):
  """Draws all tensors of a model: norms near 1, matrices of unit gain.

  Args:
    config: the content of a `config.json`.
    seed: of one `RandomState`, read in alphabetical order of names.

  Returns:
    Name -> float32 array.
  """
  rng = np.random.RandomState(seed)
  drawn = {}
  for name, shape in sorted(shapes(config).items()):
    noise = rng.randn(*shape)
    scaled = 1 + noise / 10 if len(shape) == 1 else noise / shape[1] ** 0.5
    drawn[name] = scaled.astype(np.float32)
  return drawn


def shapes(config):
  """Name -> shape of all tensors of a model."""
  width, ffn = config['hidden_size'], config['intermediate_size']
  head_dim, vocab = config['head_dim'], config['vocab_size']
  q_width = config['num_attention_heads'] * head_dim
  kv_width = config['num_key_value_heads'] * head_dim
  found = {'model.embed_tokens.weight': (vocab, width)}
  found['model.norm.weight'] = (width,)
  if not config['tie_word_embeddings']:
    found['lm_head.weight'] = (vocab, width)
  for layer in range(config['num_hidden_layers']):
    inner = {
      'input_layernorm': (width,),
      'post_attention_layernorm': (width,),
      'self_attn.q_proj': (q_width, width),
      'self_attn.k_proj': (kv_width, width),
      'self_attn.v_proj': (kv_width, width),
      'self_attn.o_proj': (width, q_width),
      'mlp.gate_proj': (ffn, width),
      'mlp.up_proj': (ffn, width),
      'mlp.down_proj': (width, ffn),
    }
    if config['model_type'] == 'qwen3':
      inner |= {'self_attn.q_norm': (head_dim,)}
      inner |= {'self_attn.k_norm': (head_dim,)}
    for name, shape in inner.items():
      found[f'model.layers.{layer}.{name}.weight'] = shape
  return found


def save_model(folder, config):
  """Writes a folder of ours, with the byte-level tokenizer."""
  named = tensors(config)
  params = weights.assemble(
    configs.from_hf(config),
    weights.Source('hf', frozenset(named), named.get),
    jnp.float32,
  )
  orbax_store.save(folder, params, tokenizer.byte_level(), {})


def write_folder(folder, config, named, num_shards=1):
  """Writes a Hugging Face folder, by hand."""
  (folder / 'config.json').write_text(json.dumps(config))
  if num_shards == 1:
    safetensors.numpy.save_file(named, folder / 'model.safetensors')
    return
  files = {
    name: f'model-{i % num_shards + 1:05}-of-{num_shards:05}.safetensors'
    for i, name in enumerate(named)
  }
  for file in set(files.values()):
    shard = {n: t for n, t in named.items() if files[n] == file}
    safetensors.numpy.save_file(shard, folder / file)
  index = json.dumps({'weight_map': files})
  (folder / 'model.safetensors.index.json').write_text(index)
