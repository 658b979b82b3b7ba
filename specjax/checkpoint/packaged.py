"""Heads that come with the package, by the name of their verifier.

heads/<verifier>/   a head as `eagle.save` writes it, in bfloat16 and without
                    the output matrix, which is rows of the verifier's
        card.json   how it was made, and the digest of its tensors
"""

import hashlib
import pathlib
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from specjax.checkpoint import eagle as eagle_files
from specjax.checkpoint import hf, orbax_store
from specjax.llama import eagle

_HEADS = pathlib.Path(__file__).parents[1] / 'heads'


def find(verifier: str) -> pathlib.Path | None:
  """Returns the folder of a verifier's head, for `eagle.load`; None without.

  Args:
    verifier: name of the model, as `resolve.load` gives it.
  """
  folder = _HEADS / verifier
  return folder if (folder / orbax_store.CARD).is_file() else None


def save(
  folder: pathlib.Path, params: eagle.Params, facts: Mapping[str, Any]
) -> None:
  """Writes a head compactly, whole or not at all.

  Args:
    folder: a path where nothing is yet.
    params: of a head that is tied to its verifier; rounded to bfloat16.
    facts: JSON values for the card: how the head was made, and what it wins.

  Raises:
    ValueError: something is at `folder`, or a head that is not tied.
  """
  if not params.config.layer.tie_embeddings:
    raise ValueError(
      "expected a head that is tied to its verifier's output matrix, got one "
      'with a matrix of its own'
    )
  weights = jax.tree.map(lambda x: x.astype(jnp.bfloat16), params.weights)
  with orbax_store.new_folder(folder) as draft:
    eagle_files.write(draft, params.replace(weights=weights))
    content = {**facts, 'sha256': digest(draft)}
    orbax_store.write_json(draft / orbax_store.CARD, content)


def card(folder: pathlib.Path) -> Mapping[str, Any]:
  """Reads how a head was made.

  Args:
    folder: that `save` wrote.

  Returns:
    The facts, and `sha256` of the tensors.

  Raises:
    ValueError: no card, or tensors that are not those of the card.
  """
  facts = hf.read_json(folder / orbax_store.CARD)
  if facts.get('sha256') != digest(folder):
    raise ValueError(
      f'expected the tensors of the card in {folder}, got others'
    )
  return facts


def digest(folder: pathlib.Path) -> str:
  """Returns the SHA-256 of a head's tensors, in hexadecimal digits.

  Args:
    folder: that `save` wrote.
  """
  return hashlib.sha256((folder / hf.WHOLE).read_bytes()).hexdigest()
