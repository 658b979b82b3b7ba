"""EAGLE-3 heads in the layout in which they are published.

config.json          of the layer, as Hugging Face spells it, whose vocabulary
                     is the verifier's, and `draft_vocab_size`
model.safetensors    or shards with their index, or `pytorch_model.bin`

`d2t [V_draft]` holds the distance from the head's id of a token to the
verifier's; `t2d [V]` says which tokens the head knows.
`eagle_aux_hidden_state_layer_ids` in the configuration are the layers whose
inputs make a feature; without it they are 2, L//2 and L-3.  With
`tie_word_embeddings` the output matrix may be missing: it is then made of rows
of the verifier's.
"""

import dataclasses
import importlib.util
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import safetensors.numpy

from specjax.checkpoint import configs, hf, orbax_store, weights
from specjax.llama import eagle
from specjax.llama import model as llama_model

_TORCH_FILE = 'pytorch_model.bin'
_FEATURES = 'eagle_aux_hidden_state_layer_ids'
_TO_VERIFIER, _IS_KNOWN = 'd2t', 't2d'
# Ours -> the file's, and whether ours is the transpose of the file's.
_NAMES = {
  'fuse': ('fc.weight', True),
  'embed_norm': ('midlayer.input_layernorm.weight', False),
  'state_norm': ('midlayer.hidden_norm.weight', False),
  'q': ('midlayer.self_attn.q_proj.weight', True),
  'k': ('midlayer.self_attn.k_proj.weight', True),
  'v': ('midlayer.self_attn.v_proj.weight', True),
  'o': ('midlayer.self_attn.o_proj.weight', True),
  'ffn_norm': ('midlayer.post_attention_layernorm.weight', False),
  'gate': ('midlayer.mlp.gate_proj.weight', True),
  'up': ('midlayer.mlp.up_proj.weight', True),
  'down': ('midlayer.mlp.down_proj.weight', True),
  'final_norm': ('norm.weight', False),
  'head': ('lm_head.weight', False),
}


def load(
  folder: pathlib.Path,
  verifier: llama_model.Params,
  dtype: jnp.dtype,
) -> eagle.Params:
  """Reads a head.

  Args:
    folder: published, or written by `save`.
    verifier: the model that the head drafts for.
    dtype: of the parameters.

  Returns:
    The parameters.

  Raises:
    ValueError: names a file that is missing or broken, a tensor that is
      missing, unused, misshapen or contradicts another, or what does not fit
      the verifier.
  """
  folder = pathlib.Path(folder)
  config = _read_config(folder / 'config.json', verifier.config)
  source = _source(folder)
  if _NAMES['head'][0] in source.names:
    # It speaks for itself, whatever its layer would do.
    layer = dataclasses.replace(config.layer, tie_embeddings=False)
    config = dataclasses.replace(config, layer=layer)
  expected = jax.eval_shape(
    lambda: eagle.init_params(
      jax.random.key(0), config, jnp.arange(config.draft_vocab_size), dtype
    )
  )

  names = {_NAMES[ours][0] for ours in expected.weights}
  weights.check_names(source.names, names | {_TO_VERIFIER, _IS_KNOWN})

  def read(ours):
    name, transposed = _NAMES[ours]
    shape = expected.weights[ours].shape
    values = weights.tensor(source, name, shape[::-1] if transposed else shape)
    return jnp.array(values.T if transposed else values, dtype)

  params = expected.replace(
    weights={ours: read(ours) for ours in expected.weights},
    token_ids=_token_ids(config, source),
  )
  return eagle.tied(params, verifier)


def save(folder: pathlib.Path, params: eagle.Params) -> None:
  """Writes a head, whole or not at all.

  Args:
    folder: a path where nothing is yet.
    params: of the head; its output matrix is left out where it is tied.

  Raises:
    ValueError: something is at `folder`.
  """
  with orbax_store.new_folder(folder) as draft:
    write(draft, params)


def write(folder: pathlib.Path, params: eagle.Params) -> None:
  """Writes the files of a head.

  Args:
    folder: that exists.
    params: as for `save`.
  """
  config, ids = params.config, np.asarray(params.token_ids, np.int64)
  fields = configs.to_hf(config.layer) | {
    'architectures': ['LlamaForCausalLMEagle3'],
    'draft_vocab_size': config.draft_vocab_size,
    _FEATURES: list(config.features),
  }
  tensors = {
    _TO_VERIFIER: ids - np.arange(len(ids)),
    _IS_KNOWN: np.isin(np.arange(config.layer.vocab_size), ids),
  }
  kept = set(_NAMES) - ({'head'} if config.layer.tie_embeddings else set())
  for ours in sorted(kept):
    name, transposed = _NAMES[ours]
    values = np.asarray(params.weights[ours])
    tensors[name] = np.ascontiguousarray(values.T if transposed else values)
  orbax_store.write_json(folder / 'config.json', fields)
  safetensors.numpy.save_file(tensors, folder / hf.WHOLE)


def _read_config(path, verifier_config):
  fields = hf.read_json(path)
  if 'draft_vocab_size' not in fields:
    raise ValueError(f'expected draft_vocab_size in {path}, got none')
  # Elsewhere the same name counts from the layers' outputs.
  if _FEATURES in (fields.get('eagle_config') or {}):
    raise ValueError(
      f'expected {_FEATURES} outside of eagle_config in {path}, as the layers '
      'whose inputs are fused, got it inside'
    )
  features = fields.get(_FEATURES)
  if features is None:
    features = eagle.published_features(verifier_config.num_layers)
  config = eagle.EagleConfig(
    layer=configs.from_hf(fields),
    draft_vocab_size=fields['draft_vocab_size'],
    features=tuple(features),
  )
  eagle.check_fit(config, verifier_config)
  return config


def _source(folder):
  has_safetensors = any((folder / n).is_file() for n in (hf.WHOLE, hf.INDEX))
  path = folder / _TORCH_FILE
  if has_safetensors or not path.is_file():
    return hf.tensors(folder)
  if importlib.util.find_spec('torch') is None:
    raise ValueError(
      f'expected {hf.WHOLE} in {folder}, or torch to read {_TORCH_FILE} with, '
      'got neither; install it with: pip install torch'
    )
  return _torch_source(path)


def _torch_source(path):
  import torch  # Needed for nothing else.

  try:
    tensors = torch.load(path, map_location='cpu', weights_only=True)
  except Exception as error:  # It stumbles in many ways.
    raise ValueError(
      f'expected tensors that torch saved in {path}, got: {error}'
    ) from error

  def read(name):
    values = tensors[name]
    # NumPy has no bfloat16.
    return (values.float() if values.is_floating_point() else values).numpy()

  return weights.Source('hf', frozenset(tensors), read)


def _token_ids(config, source):
  """`[V_draft]` int32, what the verifier calls the head's tokens."""
  size, vocab_size = config.draft_vocab_size, config.layer.vocab_size
  ids = np.arange(size) + weights.tensor(source, _TO_VERIFIER, (size,))
  is_known = weights.tensor(source, _IS_KNOWN, (vocab_size,))
  expected = np.flatnonzero(is_known)
  if not np.array_equal(np.sort(ids), expected):
    raise ValueError(
      f'expected {_TO_VERIFIER} to name the {len(expected)} tokens of '
      f'{_IS_KNOWN}, got others'
    )
  return jnp.asarray(ids, jnp.int32)
