"""Hugging Face folders: `config.json` and safetensors, whole or in shards."""

import json
import pathlib
from collections.abc import Mapping
from typing import Any

import numpy as np
import safetensors

from specjax.checkpoint import configs, weights
from specjax.llama import config as llama_config

WHOLE = 'model.safetensors'
INDEX = 'model.safetensors.index.json'


def read(
  folder: pathlib.Path,
) -> tuple[llama_config.LlamaConfig, weights.Source]:
  """Opens a model folder; tensors are read when they are asked for.

  Args:
    folder: holds `config.json` and `model.safetensors`, or
      `model.safetensors.index.json` and the shards that it lists.

  Returns:
    The configuration and the tensors.

  Raises:
    ValueError: names a file that is missing or broken.
  """
  config = configs.from_hf(read_json(folder / 'config.json'))
  return config, tensors(folder)


def tensors(folder: pathlib.Path) -> weights.Source:
  """Opens the tensors of a folder, of whatever model they are.

  Args:
    folder: holds `model.safetensors`, or `model.safetensors.index.json` and the
      shards that it lists.

  Returns:
    The tensors, which are read when they are asked for.

  Raises:
    ValueError: names a file that is missing or broken.
  """
  files = {}
  for shard in _shards(folder):
    opened = _open(shard)
    files |= dict.fromkeys(opened.keys(), opened)

  def read_tensor(name: str) -> np.ndarray:
    return files[name].get_tensor(name)

  return weights.Source('hf', frozenset(files), read_tensor)


def read_json(path: pathlib.Path) -> Mapping[str, Any]:
  """Reads a JSON object.

  Args:
    path: of the file.

  Returns:
    Its content.

  Raises:
    ValueError: names the file when it is missing or broken.
  """
  if not path.is_file():
    raise ValueError(f'expected a file {path}, got none')
  try:
    content = json.loads(path.read_text('utf-8'))
  except ValueError as error:
    raise ValueError(f'expected JSON in {path}, got: {error}') from error
  if not isinstance(content, dict):
    raise ValueError(f'expected a JSON object in {path}, got {content!r}')
  return content


def _shards(folder: pathlib.Path) -> list[pathlib.Path]:
  if (folder / WHOLE).is_file():
    return [folder / WHOLE]
  if not (folder / INDEX).is_file():
    raise ValueError(f'expected {WHOLE} or {INDEX} in {folder}, got neither')
  listed = read_json(folder / INDEX).get('weight_map')
  if not listed:
    raise ValueError(f'expected a weight_map in {folder / INDEX}, got none')
  return [folder / name for name in sorted(set(listed.values()))]


def _open(path: pathlib.Path) -> safetensors.safe_open:
  if not path.is_file():
    raise ValueError(f'expected a file {path}, got none')
  try:
    return safetensors.safe_open(path, 'numpy')
  except safetensors.SafetensorError as error:
    raise ValueError(f'expected safetensors in {path}, got: {error}') from error
