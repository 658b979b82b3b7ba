import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference_checkpoint

from specjax.checkpoint import configs, weights

TIED = reference_checkpoint.CASES['tied']


def source(named, **kind):
  kind = {'style': 'hf'} | kind
  return weights.Source(names=frozenset(named), read=named.get, **kind)


def assemble(named, config=TIED, dtype=jnp.float32):
  return weights.assemble(configs.from_hf(config), source(named), dtype).weights


@pytest.mark.parametrize('case', ['llama2', 'qwen3'])
def test_every_tensor_lands_in_its_place(case):
  config = reference_checkpoint.CASES[case]
  named = reference_checkpoint.tensors(config)
  got = assemble(named, config)
  count = sum(tensor.size for tensor in named.values())
  assert sum(w.size for w in jax.tree.leaves(got)) == count
  np.testing.assert_array_equal(
    got['layers']['gate'][1].T, named['model.layers.1.mlp.gate_proj.weight']
  )
  np.testing.assert_array_equal(
    got['layers']['ffn_norm'][0],
    named['model.layers.0.post_attention_layernorm.weight'],
  )
  np.testing.assert_array_equal(
    got['embed'], named['model.embed_tokens.weight']
  )


def test_values_are_cast():
  named = reference_checkpoint.tensors(TIED)
  got = assemble(named, dtype=jnp.bfloat16)
  assert {w.dtype for w in jax.tree.leaves(got)} == {jnp.dtype(jnp.bfloat16)}


def test_interleaved_rows_are_put_right():
  """A pair of rows `2i, 2i + 1` of a head becomes `i, i + H/2`."""
  config = configs.from_hf(TIED)
  named = reference_checkpoint.tensors(TIED)
  expected = weights.assemble(config, source(named), jnp.float32)
  half = config.head_dim // 2
  for name, tensor in named.items():
    if 'q_proj' in name or 'k_proj' in name:
      pairs = np.empty_like(tensor)
      for head in range(len(tensor) // config.head_dim):
        start = head * config.head_dim
        for i in range(half):
          pairs[start + 2 * i] = tensor[start + i]
          pairs[start + 2 * i + 1] = tensor[start + i + half]
      named[name] = pairs
  got = weights.assemble(config, source(named, interleaved=True), jnp.float32)
  for array, other in zip(
    jax.tree.leaves(got), jax.tree.leaves(expected), strict=True
  ):
    np.testing.assert_array_equal(array, other)


def test_a_missing_tensor_is_named():
  named = reference_checkpoint.tensors(TIED)
  del named['model.layers.1.mlp.up_proj.weight']
  with pytest.raises(ValueError, match='layers.1.mlp.up_proj.weight'):
    assemble(named)


def test_only_some_of_many_missing_tensors_are_named():
  with pytest.raises(ValueError, match='and 15 more'):
    assemble({})


def test_an_unused_tensor_is_named():
  named = reference_checkpoint.tensors(TIED)
  named['model.layers.2.mlp.up_proj.weight'] = np.zeros((48, 32))
  with pytest.raises(ValueError, match='no other.*layers.2.mlp.up_proj'):
    assemble(named)


def test_a_misshapen_tensor_is_named():
  named = reference_checkpoint.tensors(TIED)
  named['model.layers.1.mlp.up_proj.weight'] = np.zeros((32, 48))
  with pytest.raises(ValueError, match=r'up_proj.*\(48, 32\), got \(32, 48\)'):
    assemble(named)


def test_constants_and_copies_are_passed_over():
  named = reference_checkpoint.tensors(TIED)
  named['model.layers.0.self_attn.rotary_emb.inv_freq'] = np.zeros(4)
  named['lm_head.weight'] = named['model.embed_tokens.weight']
  assert 'head' not in assemble(named)
  untied = TIED | {'tie_word_embeddings': False}
  assert 'head' in assemble(named, untied)
