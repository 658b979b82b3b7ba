"""What llama.cpp does; the extra `llamacpp` builds it with its Python binding.

It multiplies the very blocks of a GGUF file, as ours does with
--weights=blocks, but rounds what they are multiplied with to 8 bits, keys and
values to 16, so that its texts may part from ours anywhere.
"""

import itertools
import os
import pathlib

import llama_cpp

from experiments.speed import engines
from specjax.checkpoint import resolve

NAME = 'llama.cpp'


def load(
  file: pathlib.Path, model: resolve.Checkpoint, *, num_slots: int
) -> list[engines.Engine]:
  """Loads the file as it is.

  Args:
    file: ends in .gguf.
    model: the same model, as we loaded it.
    num_slots: most tokens of prompt and output.

  Returns:
    Its plain decoding.

  Raises:
    ValueError: another file.
  """
  if file.suffix != '.gguf':
    raise ValueError(
      f'expected a .gguf file with --beside=llama.cpp, got {file}'
    )
  # As many threads as this process may have, which ours takes too.
  num_threads = len(os.sched_getaffinity(0))
  llama = llama_cpp.Llama(
    str(file),
    n_ctx=num_slots,
    n_threads=num_threads,
    n_threads_batch=num_threads,
    flash_attn=True,  # Its commands' default, and faster.
    verbose=False,
  )
  eos_ids = model.tokenizer.eos_ids

  def generate(prompt, max_new_tokens):
    llama.reset()  # Or it would not read what it has read before.
    tokens = []
    emitted = llama.generate(prompt, temp=0.0)
    for token in itertools.islice(emitted, max_new_tokens):
      tokens.append(token)
      if token in eos_ids:
        break
    return tokens

  return [engines.Engine(NAME, 1, generate, is_exact=False)]
