"""GGUF files: metadata, configuration and tensors, as values or in blocks.

Format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
"""

import dataclasses
import pathlib
from typing import Any, NamedTuple

import gguf
import numpy as np

from specjax.checkpoint import configs, weights
from specjax.llama import config as llama_config
from specjax.llama import rope, storage

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


class _Reader(gguf.GGUFReader):
  """Reads the file as a plain array.

  A vocabulary takes a million slices, and three times as long by a `memmap`.
  """

  @property
  def data(self) -> np.ndarray:
    """The bytes of the file, which stay on disk until they are looked at."""
    return self._data

  @data.setter
  def data(self, mapped: np.memmap):
    self._data = np.asarray(mapped)


def read(path: pathlib.Path, blocks: bool = False) -> GgufFile:
  """Opens a GGUF file; tensors are read when they are asked for.

  Args:
    path: of the file.
    blocks: whether matrices are read as they are, in blocks of Q4_1 or Q8_0,
      rather than as values.

  Returns:
    The open file.

  Raises:
    ValueError: the file is missing, truncated or not GGUF, its model is not
      supported, or its matrices are not in such blocks.
  """
  if not path.is_file():
    raise ValueError(f'expected a file {path}, got none')
  try:
    reader = _Reader(path)
    metadata = {name: field.contents() for name, field in reader.fields.items()}
  except Exception as error:  # The reader stumbles in many ways.
    raise ValueError(
      f'expected a whole GGUF file, got {path}: {error}'
    ) from error
  tensors = {tensor.name: tensor for tensor in reader.tensors}

  def read_tensor(name: str) -> np.ndarray | storage.Blocks:
    tensor = tensors[name]
    if blocks and len(tensor.shape) == 2:
      return _blocks(tensor)
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


def _blocks(tensor):
  """Takes a matrix apart, `[out, in]`, and changes no number."""
  kind = tensor.tensor_type.name
  if kind not in ('Q4_1', 'Q8_0'):
    raise ValueError(
      f'expected matrices in blocks of Q4_1 or Q8_0, got {tensor.name} of '
      f'{kind}'
    )
  _, num_bytes = gguf.GGML_QUANT_SIZES[tensor.tensor_type]
  rows = np.asarray(tensor.data)
  found = rows.reshape(len(rows), -1, num_bytes)

  def half(i):
    number = found[..., 2 * i : 2 * i + 2].copy().view(np.float16)
    return number[..., 0].astype(np.float32)

  if kind == 'Q8_0':
    quants = found[..., 2:].view(np.int8).reshape(len(rows), -1)
    return storage.Blocks(quants, half(0))
  pairs = found[..., 4:].reshape(len(rows), -1)
  return storage.Blocks(pairs, half(0), half(1))


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
