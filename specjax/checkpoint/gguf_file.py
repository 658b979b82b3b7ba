"""GGUF files: metadata, configuration and tensors, dequantised when read.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import dataclasses
import pathlib
from typing import Any, NamedTuple

import gguf
import numpy as np

from specjax.checkpoint import configs, weights
from specjax.llama import config as llama_config
from specjax.llama import rope

# Of every released model whose files carry Llama-3 scaling as a tensor.
_LLAMA3_ROPE = llama_config.RopeConfig(
  kind='llama3',
  low_freq_factor=1.0,
  high_freq_factor=4.0,
  original_max_positions=8192,
)


class GgufFile(NamedTuple):
  """An open GGUF file.

  Attributes:
    metadata: its keys and values; `tokenizer.*` describes the vocabulary.
    config: of the model.
    source: its tensors.
  """

  metadata: dict[str, Any]
  config: llama_config.LlamaConfig
  source: weights.Source


def read(path: pathlib.Path) -> GgufFile:
  """Opens a GGUF file; tensors are read when they are asked for.

  Args:
    path: of the file.

  Returns:
    The open file.

  Raises:
    ValueError: the file is missing, truncated or not GGUF, or its model is not
      supported.
  """
  if not path.is_file():
    raise ValueError(f'expected a file {path}, got none')
  try:
    reader = gguf.GGUFReader(path)
    metadata = {name: field.contents() for name, field in reader.fields.items()}
  except Exception as error:  # The reader stumbles in many ways.
    raise ValueError(
      f'expected a whole GGUF file, got {path}: {error}'
    ) from error
  tensors = {tensor.name: tensor for tensor in reader.tensors}

  def read_tensor(name: str) -> np.ndarray:
    tensor = tensors[name]
    return gguf.dequantize(tensor.data, tensor.tensor_type)

  config = configs.from_gguf(metadata, 'output.weight' not in tensors)
  if 'rope_freqs.weight' in tensors:
    scaled = _llama3_rope(config, read_tensor('rope_freqs.weight'))
    config = dataclasses.replace(config, rope=scaled)
  source = weights.Source(
    style='gguf',
    names=frozenset(tensors),
    read=read_tensor,
    interleaved=metadata['general.architecture'] == 'llama',
  )
  return GgufFile(metadata, config, source)


def _llama3_rope(config, divisors):
  """Recovers the scaling whose frequencies are divided by `divisors [H/2]`."""
  scaled = dataclasses.replace(
    _LLAMA3_ROPE, theta=config.rope.theta, factor=float(divisors.max())
  )
  found = rope.inverse_frequencies(config.rope, config.head_dim) / divisors
  expected = rope.inverse_frequencies(scaled, config.head_dim)
  if found.shape != expected.shape or not np.allclose(
    found, expected, rtol=1e-4, atol=0
  ):
    raise ValueError(
      f'expected rope_freqs.weight of Llama-3 scaling, got {divisors}'
    )
  return scaled
