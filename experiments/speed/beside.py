"""Other libraries as ways of decoding, on the same weights.

They are no part of what specjax needs: extras install them.
"""

import importlib
import pathlib
from collections.abc import Sequence
from types import ModuleType

from experiments import draft_models
from experiments.speed import engines, rounds
from specjax.checkpoint import resolve

TRANSFORMERS, LLAMA_CPP = 'transformers', 'llama.cpp'

# By name the file that knows the library, and the extra that installs it.
_LIBRARIES = {
  TRANSFORMERS: ('beside_transformers', 'parity'),
  LLAMA_CPP: ('beside_llamacpp', 'llamacpp'),
}
NAMES = tuple(_LIBRARIES)


def ways(
  names: Sequence[str],
  path: str,
  dtype: str,
  model: resolve.Checkpoint,
  ids: Sequence[Sequence[int]],
  *,
  skipped_layers: Sequence[int] | None,
  max_new_tokens: int,
  max_length: int,
) -> list[rounds.Way]:
  """Returns what some libraries can do at temperature 0, prompt by prompt.

  Args:
    names: some of `NAMES`.
    path: of the model, what `resolve.load` takes.
    dtype: name of the type of our arithmetic.
    model: the same, as we loaded it.
    ids: prompts as token ids.
    skipped_layers: what the assistant of `transformers` leaves out; see
      `draft_models.kept_layers`.
    max_new_tokens: most tokens of an output.
    max_length: most tokens of prompt and output.

  Raises:
    ValueError: a library that is not installed, or that cannot take part with
      this model or type.
  """
  modules = {name: _import(name) for name in names}
  file = _find(path)
  options = {
    TRANSFORMERS: {
      'dtype': dtype,
      'assistant_layers': draft_models.kept_layers(
        model.params.config.num_layers, skipped_layers
      ),
    },
    LLAMA_CPP: {
      'num_slots': min(max(map(len, ids)) + max_new_tokens, max_length)
    },
  }
  return [
    engines.way(engine, ids, max_new_tokens, max_length)
    for name, module in modules.items()
    for engine in module.load(file, model, **options[name])
  ]


def _import(name: str) -> ModuleType:
  module, extra = _LIBRARIES[name]
  try:
    return importlib.import_module(f'experiments.speed.{module}')
  except ImportError as error:
    raise ValueError(
      f'expected what --beside={name} needs, got {error}; '
      f'SPECJAX_EXTRAS={extra} launch/run.sh speedup installs it'
    ) from error


def _find(path: str) -> pathlib.Path:
  """Returns the file or the folder of a model."""
  if path == resolve.EMBEDDED:
    return resolve.embedded_file()
  return pathlib.Path(path).expanduser()
