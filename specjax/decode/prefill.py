"""Prompts are read in batches, which can then be decoded in any way."""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import numpy as np

from specjax import parallel, programs
from specjax import sampling as sampling_lib
from specjax.decode import rows as rows_lib
from specjax.draft import base
from specjax.llama import config as llama_config
from specjax.llama import model as llama_model

# Sizes come in multiples of these, so that near lengths share a program.
_SLOT_BUCKET = 128
WIDTH_BUCKET = 32


class Batch(NamedTuple):
  """Prompts that were read together, to be decoded as often as one likes.

  Attributes:
    prefix: the prompts; the last may be repeated to fill the batch.
    limits: `[B]` most tokens of prompt and output.
    sampling: `[B]`.
    num_prompts: how many rows are prompts.
    layout: devices that share out the rows; None for one device.
  """

  prefix: base.Prefix
  limits: jax.Array
  sampling: sampling_lib.Sampling
  num_prompts: int
  layout: parallel.Layout | None = None


def read_prompts(
  verifier: llama_model.Params,
  prompts: Sequence[Sequence[int]],
  *,
  max_new_tokens: int,
  sampling: sampling_lib.Sampling | None = None,
  seeds: Sequence[int] | None = None,
  max_length: int = 2048,
  batch_size: int = 8,
  features: tuple[int, ...] = (),
  layout: parallel.Layout | None = None,
  numbers: Sequence[int] | None = None,
) -> list[Batch]:
  """Reads prompts in batches of one shape, all tokens but the last of each.

  Args:
    verifier: the model.
    prompts: token ids, at least one each.
    max_new_tokens: most tokens of an output.
    sampling: a row for each prompt; temperature 1 by default.
    seeds: one for each prompt; its index by default.
    max_length: most tokens of prompt and output.
    batch_size: most rows of a batch; batches are made equally large.
    features: layers whose inputs a drafter will want, `Drafter.features`.
    layout: devices that share out the rows of each batch, and on which the
      verifier is, as `parallel.spread` puts it; None for one device.
    numbers: of the batches that are read; all by default.

  Returns:
    The batches, prompts in their order.

  Raises:
    ValueError: a prompt that is empty, has unknown tokens, leaves no room below
      `max_length` or might grow longer than the model was made for; edits of
      unknown tokens; a number below 1; lists of unequal length.
  """
  num_prompts = len(prompts)
  if sampling is None:
    sampling = sampling_lib.make(num_prompts)
  seeds = range(num_prompts) if seeds is None else seeds
  check(prompts, verifier.config, max_new_tokens, sampling, seeds, max_length)
  tokens, lengths, limits = lay_out(prompts, max_new_tokens, max_length)
  width = min(round_up(lengths.max(), WIDTH_BUCKET), tokens.shape[1])
  groups = batch_rows(num_prompts, batch_size)
  num_rows = len(groups[0])
  if layout is not None:
    num_rows = round_up(num_rows, layout.num_groups)
  put = functools.partial(parallel.put_rows, layout=layout)
  batches = []
  for group in groups if numbers is None else [groups[n] for n in numbers]:
    # A batch is filled up with its last prompt; rows that fill up are done
    # before they start.
    order = np.arange(num_rows)
    rows = group[np.minimum(order, len(group) - 1)]
    is_prompt = order < len(group)
    batches.append(
      Batch(
        prefix=_read(
          verifier,
          put(tokens[rows]),
          put(lengths[rows]),
          put(np.asarray(seeds, np.uint32)[rows]),
          width,
          features,
          layout,
        ),
        limits=put(np.where(is_prompt, limits[rows], 0).astype(np.int32)),
        sampling=put(jax.tree.map(lambda x, r=rows: x[r], sampling)),
        num_prompts=len(group),
        layout=layout,
      )
    )
  return batches


def batch_rows(num_prompts: int, batch_size: int) -> list[np.ndarray]:
  """Returns the prompts of each batch; batches are as equally large as can be.

  Args:
    num_prompts: how many there are.
    batch_size: most of them in one batch.

  Returns:
    Indices of the prompts, an array a batch; the last may be shorter.

  Raises:
    ValueError: a batch size below 1.
  """
  if batch_size < 1:
    raise ValueError(f'expected batch_size >= 1, got {batch_size}')
  num_batches = -(-num_prompts // batch_size)
  size = -(-num_prompts // num_batches)
  return np.split(np.arange(num_prompts), range(size, num_prompts, size))


def lay_out(
  prompts: Sequence[Sequence[int]], max_new_tokens: int, max_length: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Puts prompts where their outputs will be appended.

  Args:
    prompts: R of them.
    max_new_tokens: most tokens of an output.
    max_length: most tokens of prompt and output.

  Returns:
    Tokens `[R, S]`, 0 past each prompt, with room for every output; `[R]`
    lengths of the prompts, and `[R]` most tokens of prompt and output.
  """
  lengths = np.array([len(p) for p in prompts], np.int32)
  limits = np.minimum(lengths + max_new_tokens, max_length)
  num_slots = round_up(limits.max(), _SLOT_BUCKET)
  tokens = np.zeros((len(prompts), num_slots), np.int32)
  for row, prompt in zip(tokens, prompts, strict=True):
    row[: len(prompt)] = prompt
  return tokens, lengths, limits


def round_up(number: int, multiple: int) -> int:
  """Returns the least multiple of `multiple` that is at least `number`."""
  return int(-(-number // multiple) * multiple)


@functools.partial(
  programs.jit, static_argnames=('width', 'features', 'layout')
)
def _read(verifier, tokens, lengths, seeds, width, features, layout):
  """Reads all tokens of each prompt but the last, which is the first root."""
  _, taken, cache = llama_model.read(
    verifier, tokens[:, :width], lengths - 1, tokens.shape[1], features
  )
  prefix = base.Prefix(
    tokens=tokens,
    lengths=lengths,
    seeds=seeds,
    cache=cache,
    features=taken if features else None,
    feature_layers=features,
  )
  return parallel.keep_rows(prefix, rows_lib.row_axes(prefix), layout)


def check(
  prompts: Sequence[Sequence[int]],
  config: llama_config.LlamaConfig,
  max_new_tokens: int,
  sampling: sampling_lib.Sampling,
  seeds: Sequence[int],
  max_length: int,
) -> None:
  """Refuses what `read_prompts` does, but for its batch size.

  Args:
    prompts: token ids.
    config: of the verifier.
    max_new_tokens: most tokens of an output.
    sampling: a row for each prompt.
    seeds: one for each prompt.
    max_length: most tokens of prompt and output.

  Raises:
    ValueError: as said there.
  """
  if not prompts:
    raise ValueError('expected at least one prompt, got none')
  if max_new_tokens < 1:
    raise ValueError(f'expected max_new_tokens >= 1, got {max_new_tokens}')
  if not len(seeds) == len(sampling.temperature) == len(prompts):
    raise ValueError(
      'expected as many seeds and sampling rows as prompts, got '
      f'{len(seeds)}, {len(sampling.temperature)} and {len(prompts)}'
    )
  _check_prompts(prompts, config, max_new_tokens, max_length)
  _check_edits(sampling.edits, len(prompts), config.vocab_size)


def _check_edits(edits, num_prompts, vocab_size):
  if edits is None:
    return
  if len(edits.repetition) != num_prompts:
    raise ValueError(
      f'expected edits for each of {num_prompts} prompts, got '
      f'{len(edits.repetition)}'
    )
  named = np.concatenate([np.ravel(edits.bias_ids), np.ravel(edits.eos_ids)])
  if named.max(initial=0) >= vocab_size or named.min(initial=0) < 0:
    raise ValueError(
      f'expected edits of tokens in [0, {vocab_size}), got {named.min()} to '
      f'{named.max()}'
    )


def _check_prompts(prompts, config, max_new_tokens, max_length):
  for i, prompt in enumerate(prompts):
    if not len(prompt):
      raise ValueError(f'expected prompts of at least one token, got [] at {i}')
    if len(prompt) >= max_length:
      raise ValueError(
        f'expected prompts shorter than max_length {max_length}, got '
        f'{len(prompt)} tokens at {i}'
      )
    if min(prompt) < 0 or max(prompt) >= config.vocab_size:
      raise ValueError(
        f'expected tokens in [0, {config.vocab_size}), got {min(prompt)} to '
        f'{max(prompt)} in prompt {i}'
      )
  longest = min(max(map(len, prompts)) + max_new_tokens, max_length)
  if longest > config.max_positions:
    raise ValueError(
      f'expected prompt and output of at most {config.max_positions} tokens, '
      f'for which the model was made, got {longest}'
    )
