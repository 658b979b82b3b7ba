"""What a run of decoding takes of memory, in a process of its own.

The most that a process ever held never falls, so each run is one:

  python -m experiments.footprint.memory '{"model": "smollm2-135m", ...}'
"""

import json
import os
import pathlib
import re
import subprocess
import sys
from collections.abc import Mapping

import jax
import jax.numpy as jnp

from experiments import common
from specjax.checkpoint import resolve
from specjax.decode import generate, prefill
from specjax.draft import lookup

# What the system says of this process.
_STATUS = pathlib.Path('/proc/self/status')

# Nodes of a tree.
_CAPACITY = 16


def measure(run: Mapping[str, object]) -> dict[str, int]:
  """Decodes in a process that compiles its programs, and tells what it took.

  Args:
    run: what `decode` takes, by name.

  Returns:
    Bytes: the `peak` that the process held at most; what it held at most when
    all was imported, `imports`; and what the `weights` and the `cache` are.

  Raises:
    ValueError: the process failed, and what it said; or a system that does not
      tell.
  """
  words = [sys.executable, '-P', '-m', __spec__.name, json.dumps(dict(run))]
  environment = os.environ | {'JAX_ENABLE_COMPILATION_CACHE': 'false'}
  child = subprocess.run(
    words, env=environment, capture_output=True, text=True, check=False
  )
  if child.returncode:
    raise ValueError(f'expected a run of {run}, got {child.stderr[-1000:]}')
  return json.loads(child.stdout.splitlines()[-1])


def decode(
  model: str,
  blocks: bool,
  order: str,
  prompts: str | None,
  prompts_per_kind: int | None,
  max_new_tokens: int,
  max_length: int,
  batch_size: int,
) -> dict[str, int]:
  """Decodes the longest prompts by lookup; what it took is as `measure` says.

  Args:
    model: what `resolve.load` takes, and
    blocks: alike, and
    order: alike.
    prompts: a prompt file, None for our own set.
    prompts_per_kind: how many of each kind, None for all.
    max_new_tokens: tokens of an answer.
    max_length: most tokens of prompt and answer.
    batch_size: how many prompts, decoded together.

  Raises:
    ValueError: a model that cannot be loaded so, or prompts that are too long.
  """
  imports = peak()
  loaded = resolve.load(model, jnp.float32, blocks=blocks, order=order)
  _, ids = common.load_prompts(
    loaded.tokenizer, prompts, prompts_per_kind, max_length
  )
  [batch] = prefill.read_prompts(
    loaded.params,
    sorted(ids, key=len)[-batch_size:],
    max_new_tokens=max_new_tokens,
    max_length=max_length,
    batch_size=batch_size,
  )
  generate.decode(
    loaded.params,
    batch,
    # No token ends a text, so that all are as long as they may be.
    eos_ids=(),
    drafter=lookup.make(),
    num_nodes=_CAPACITY,
  )
  return {
    'imports': imports,
    'weights': _bytes_of(loaded.params.weights),
    'cache': _bytes_of(batch.prefix.cache),
    'peak': peak(),
  }


def peak() -> int:
  """Returns the bytes that this process has held at most.

  Raises:
    ValueError: a system that does not tell.
  """
  if not _STATUS.exists():
    raise ValueError(f'expected a system with {_STATUS}, got {sys.platform}')
  # Not that of `getrusage`, which takes over what the parent process held.
  [kibibytes] = re.findall(r'VmHWM:\s+(\d+) kB', _STATUS.read_text())
  return 1024 * int(kibibytes)


def _bytes_of(arrays):
  return sum(leaf.nbytes for leaf in jax.tree.leaves(arrays))


if __name__ == '__main__':
  print(json.dumps(decode(**json.loads(sys.argv[1]))))
