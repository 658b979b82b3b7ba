"""Our own model folder: Orbax parameters, configuration, tokenizer, card.

params/          parameters, by Orbax
config.json      as Hugging Face spells it
tokenizer.json   and what else `tokenizer.Tokenizer.save` writes
card.json        what the model is, free of form; marks the folder as ours
"""

import contextlib
import json
import os
import pathlib
import shutil
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from orbax.checkpoint import v1 as ocp

from specjax import parallel
from specjax import tokenizer as tokenizer_lib
from specjax.checkpoint import configs, hf, weights
from specjax.llama import model as llama_model

CARD = 'card.json'


def save(
  folder: pathlib.Path,
  params: llama_model.Params,
  tokenizer: tokenizer_lib.Tokenizer,
  card: Mapping[str, Any],
) -> None:
  """Writes a model folder, whole or not at all.

  Args:
    folder: a path where nothing is yet.
    params: of the model.
    tokenizer: of the model.
    card: JSON values that say what the model is.

  Raises:
    ValueError: something is at `folder`.
  """
  with new_folder(folder) as draft:
    tokenizer.save(draft)
    write_json(draft / 'config.json', configs.to_hf(params.config))
    write_json(draft / CARD, card)
    ocp.save(draft / 'params', params.weights)


@contextlib.contextmanager
def new_folder(folder: pathlib.Path) -> Iterator[pathlib.Path]:
  """Makes a folder, whole or not at all.

  Args:
    folder: a path where nothing is yet.

  Yields:
    A folder to be filled, which is renamed to `folder` at the end.

  Raises:
    ValueError: something is at `folder`.
  """
  folder = pathlib.Path(folder).absolute()
  if folder.exists():
    raise ValueError(f'expected a new folder, got {folder}, which exists')
  folder.parent.mkdir(parents=True, exist_ok=True)
  draft = folder.with_name(f'.{folder.name}-{os.getpid()}')
  draft.mkdir()
  try:
    yield draft
    os.rename(draft, folder)
  finally:
    shutil.rmtree(draft, ignore_errors=True)


def load(
  folder: pathlib.Path,
  dtype: jnp.dtype,
  layout: parallel.Layout | None = None,
) -> llama_model.Params:
  """Reads the parameters of a model folder.

  Args:
    folder: written by `save`.
    dtype: to which they are cast.
    layout: devices whose groups share out a copy each; None for one device.

  Returns:
    The parameters.

  Raises:
    ValueError: names what is missing or does not fit the configuration.
  """
  folder = pathlib.Path(folder).absolute()
  config = configs.from_hf(hf.read_json(folder / 'config.json'))
  shapes = weights.shapes(config, dtype)

  def describe(path, shape):
    # One device, whatever the devices were on which they were saved.
    here = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    where = weights.sharding(config, path[-1].key, layout) or here
    return jax.ShapeDtypeStruct(shape.shape, shape.dtype, sharding=where)

  expected = jax.tree.map_with_path(describe, shapes.weights)
  # The largest array, as it may be stored and as it is wanted.
  most_bytes = 8 * max(x.size for x in jax.tree.leaves(shapes)) + 1
  context = ocp.Context()
  context.memory.read_concurrent_bytes = most_bytes
  try:
    with context:
      values = ocp.load(folder / 'params', expected)
  except (OSError, KeyError, ValueError) as error:
    raise ValueError(
      f'expected the parameters of config.json in {folder}, got: {error}'
    ) from error
  return shapes.replace(weights=values)


def write_json(path: pathlib.Path, content: Mapping[str, Any]) -> None:
  """Writes JSON values to a file, to be read by people too.

  Args:
    path: of the file.
    content: what to write.
  """
  path.write_text(json.dumps(content, indent=2), 'utf-8')
