import gguf
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference_checkpoint

from specjax.checkpoint import configs, gguf_file, weights
from specjax.llama import config as llama_config
from specjax.llama import mask, rope, storage
from specjax.llama import model as llama_model

# llama.cpp names, written out here on their own.
NAMES = {
  'model.embed_tokens': 'token_embd',
  'model.norm': 'output_norm',
  'lm_head': 'output',
  'model.layers': 'blk',
  'input_layernorm': 'attn_norm',
  'self_attn.q_proj': 'attn_q',
  'self_attn.k_proj': 'attn_k',
  'self_attn.v_proj': 'attn_v',
  'self_attn.o_proj': 'attn_output',
  'self_attn.q_norm': 'attn_q_norm',
  'self_attn.k_norm': 'attn_k_norm',
  'post_attention_layernorm': 'ffn_norm',
  'mlp.gate_proj': 'ffn_gate',
  'mlp.up_proj': 'ffn_up',
  'mlp.down_proj': 'ffn_down',
}
TYPES = gguf.GGMLQuantizationType
# Blocks of 32 need sides that are multiples of it.
BLOCKS = {'hidden_size': 64, 'intermediate_size': 96, 'head_dim': 16}
CASES = {
  name: config | BLOCKS for name, config in reference_checkpoint.CASES.items()
}


def interleave(tensor, num_heads):
  """What llama.cpp's converter does to the rows of Llama's Q and K."""
  rows = tensor.reshape(num_heads, 2, -1, tensor.shape[1])
  return rows.swapaxes(1, 2).reshape(tensor.shape)


def write(path, config, kind=TYPES.F32, extra=None):
  """Writes a model file; returns what its tensors hold, by our file names."""
  arch = config['model_type']
  writer = gguf.GGUFWriter(path, arch)
  writer.add_block_count(config['num_hidden_layers'])
  writer.add_context_length(config['max_position_embeddings'])
  writer.add_embedding_length(config['hidden_size'])
  writer.add_feed_forward_length(config['intermediate_size'])
  writer.add_head_count(config['num_attention_heads'])
  writer.add_head_count_kv(config['num_key_value_heads'])
  writer.add_key_length(config['head_dim'])
  writer.add_layer_norm_rms_eps(config['rms_norm_eps'])
  writer.add_rope_freq_base(config['rope_theta'])
  writer.add_vocab_size(config['vocab_size'])
  scaling = config.get('rope_scaling') or {}
  if scaling.get('rope_type') == 'linear':
    writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
    writer.add_rope_scaling_factor(scaling['factor'])
  held = {}
  for name, tensor in reference_checkpoint.tensors(config).items():
    stored = TYPES.F32 if tensor.ndim == 1 else kind
    heads = config[
      'num_key_value_heads' if 'k_proj' in name else 'num_attention_heads'
    ]
    turned = arch == 'llama' and ('q_proj' in name or 'k_proj' in name)
    rows = interleave(tensor, heads) if turned else tensor
    blocks = gguf.quantize(rows, stored)
    # Rounding is by row, so it does not matter that rows change places.
    held[name] = gguf.dequantize(gguf.quantize(tensor, stored), stored)
    for theirs, ours in NAMES.items():
      name = name.replace(theirs, ours)
    writer.add_tensor(name, blocks, raw_dtype=stored)
  for name, tensor in (extra or {}).items():
    writer.add_tensor(name, tensor)
  writer.write_header_to_file()
  writer.write_kv_data_to_file()
  writer.write_tensors_to_file()
  writer.close()
  return held


def assert_holds(file, config, held):
  expected = weights.assemble(
    configs.from_hf(config),
    weights.Source('hf', frozenset(held), held.get),
    jnp.float32,
  )
  got = weights.assemble(file.config, file.source, jnp.float32)
  assert got.config == expected.config
  for name, array in got.weights['layers'].items():
    np.testing.assert_array_equal(array, expected.weights['layers'][name])
  np.testing.assert_array_equal(got.weights['embed'], expected.weights['embed'])


@jax.jit
def logits(params, tokens, block_mask=None, depths=None):
  """Of every token, without a cache; a chain if no mask is given."""
  size = tokens.shape[1]
  cache = llama_model.empty_cache(params, 1, 1)
  hidden, *_ = llama_model.forward(
    params,
    tokens,
    (jnp.arange(size) if depths is None else depths)[None],
    cache,
    mask.committed(cache.length, 1),
    mask.causal(size) if block_mask is None else block_mask,
  )
  return llama_model.head(params, hidden)


@pytest.mark.parametrize(
  'kind', [TYPES.F32, TYPES.F16, TYPES.BF16, TYPES.Q8_0, TYPES.Q4_1]
)
def test_each_type_of_tensor_is_read(tmp_path, kind):
  held = write(tmp_path / 'm.gguf', CASES['llama2'], kind)
  assert_holds(gguf_file.read(tmp_path / 'm.gguf'), CASES['llama2'], held)


@pytest.mark.parametrize('case', ['linear', 'tied', 'qwen3'])
def test_each_kind_of_model_is_read(tmp_path, case):
  held = write(tmp_path / 'm.gguf', CASES[case])
  file = gguf_file.read(tmp_path / 'm.gguf')
  assert_holds(file, CASES[case], held)
  assert file.metadata['general.architecture'] == CASES[case]['model_type']


@pytest.mark.parametrize('kind', [TYPES.Q8_0, TYPES.Q4_1])
@pytest.mark.parametrize('order', storage.ORDERS)
def test_blocks_are_multiplied_as_their_values(tmp_path, kind, order):
  path = tmp_path / 'm.gguf'
  write(path, CASES['llama2'], kind)
  expected, got = (
    weights.assemble(file.config, file.source, jnp.float32)
    for file in (gguf_file.read(path), gguf_file.read(path, blocks=True))
  )
  layers = storage.ordered(got.weights['layers'], order)
  got = got.replace(weights=got.weights | {'layers': layers})
  tokens = jnp.array([[3, 1, 4, 1, 5]])
  of_values, of_blocks = logits(expected, tokens), logits(got, tokens)
  assert np.std(of_values) > 0.1
  atol = 1e-5 if order != 'out_in' else 1e-4
  np.testing.assert_allclose(of_blocks, of_values, atol=atol)
  # A tree of three branches, each node run as the end of a chain of its own.
  parents = [-1, 0, 1, 0, 0]
  below = np.eye(5, dtype=bool)
  for node, parent in enumerate(parents[1:], 1):
    below[node] |= below[parent]
  in_tree = logits(got, tokens, jnp.asarray(below[None]), below.sum(1) - 1)
  for node in range(5):
    route = np.flatnonzero(below[node])
    alone = logits(
      got, jnp.zeros_like(tokens).at[0, : len(route)].set(tokens[0, route])
    )
    np.testing.assert_allclose(
      in_tree[:, node], alone[:, len(route) - 1], atol=1e-4
    )


def test_matrices_that_are_not_in_blocks_are_named(tmp_path):
  write(tmp_path / 'm.gguf', CASES['llama2'], TYPES.F16)
  file = gguf_file.read(tmp_path / 'm.gguf', blocks=True)
  with pytest.raises(ValueError, match='Q4_1 or Q8_0, got .* of F16'):
    weights.assemble(file.config, file.source, jnp.float32)


def test_llama3_scaling_is_recovered_from_its_tensor(tmp_path):
  preset = llama_config.PRESETS['llama-3.1-8b'].rope
  plain = llama_config.RopeConfig(theta=preset.theta)
  divisors = rope.inverse_frequencies(plain, 16) / rope.inverse_frequencies(
    preset, 16
  )
  config = CASES['llama2'] | {'rope_theta': preset.theta}
  write(tmp_path / 'm.gguf', config, extra={'rope_freqs.weight': divisors})
  file = gguf_file.read(tmp_path / 'm.gguf')
  assert file.config.rope == preset
  weights.assemble(file.config, file.source, jnp.float32)
  other = np.linspace(1, 9, 8, dtype=np.float32)
  write(tmp_path / 'n.gguf', config, extra={'rope_freqs.weight': other})
  with pytest.raises(ValueError, match='rope_freqs.weight'):
    gguf_file.read(tmp_path / 'n.gguf')


def test_a_truncated_file_is_named(tmp_path):
  path = tmp_path / 'm.gguf'
  write(path, CASES['tied'])
  content = path.read_bytes()
  for size in [0, 3, 7, 20, 100, 500, 1000, 3000, len(content) - 64]:
    path.write_bytes(content[:size])
    with pytest.raises(ValueError, match='whole GGUF file, got .*m.gguf'):
      gguf_file.read(path)


def test_another_file_is_named(tmp_path):
  path = tmp_path / 'm.gguf'
  path.write_text('not a model' * 100)
  with pytest.raises(ValueError, match='whole GGUF file, got .*m.gguf'):
    gguf_file.read(path)
  with pytest.raises(ValueError, match='a file .*n.gguf, got none'):
    gguf_file.read(tmp_path / 'n.gguf')


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    ({'general.architecture': 'mamba'}, 'mamba'),
    ({'llama.rope.scaling.type': 'yarn'}, 'yarn'),
    ({'llama.block_count': None}, 'llama.block_count'),
  ],
)
def test_what_is_not_supported_is_named(tmp_path, change, message):
  write(tmp_path / 'm.gguf', CASES['tied'])
  metadata = gguf_file.read(tmp_path / 'm.gguf').metadata
  with pytest.raises(ValueError, match=message):
    configs.from_gguf(metadata | change, tie_embeddings=True)
