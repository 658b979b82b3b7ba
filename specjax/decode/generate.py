"""Generation as a library call: prompts in, texts and what happened out."""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from specjax import sampling as sampling_lib
from specjax.decode import baseline, loop
from specjax.draft import base
from specjax.llama import cache as llama_cache
from specjax.llama import model as llama_model

# Sizes come in multiples of these, so that near lengths share a program.
_SLOT_BUCKET = 128
_PREFILL_BUCKET = 32
_STEP_BUCKET = 32


@dataclasses.dataclass(frozen=True)
class Generation:
  """What came of one prompt.

  Attributes:
    tokens: output ids, the token that ended the text included.
    log_probs: `[len(tokens)]` log-probability of each under the verifier's
      sampled law, in nats (of temperature 1 where the temperature is 0).
    finish_reason: 'eos', or 'length' where a limit came first.
    steps: the iterations in their order, fields `[num_steps]`; None for plain
      decoding, where every iteration emits one token.
  """

  tokens: list[int]
  log_probs: np.ndarray
  finish_reason: str
  steps: loop.StepInfo | None


class Batch(NamedTuple):
  """Prompts that were read together, to be decoded as often as one likes.

  Attributes:
    prefix: the prompts; the last may be repeated to fill the batch.
    limits: `[B]` most tokens of prompt and output.
    seeds: `[B]` uint32.
    sampling: `[B]`.
    num_prompts: how many rows are prompts.
  """

  prefix: base.Prefix
  limits: jax.Array
  seeds: jax.Array
  sampling: sampling_lib.Sampling
  num_prompts: int


def generate(
  verifier: llama_model.Params,
  prompts: Sequence[Sequence[int]],
  *,
  eos_ids: tuple[int, ...],
  max_new_tokens: int,
  drafter: base.Drafter | None = None,
  drafter_params: chex.ArrayTree = (),
  num_nodes: int = 1,
  sampling: sampling_lib.Sampling | None = None,
  seeds: Sequence[int] | None = None,
  max_length: int = 2048,
  batch_size: int = 8,
) -> list[Generation]:
  """Decodes a list of prompts, by speculation if there is a drafter.

  Args:
    verifier: the model.
    prompts: token ids, at least one each.
    eos_ids: tokens that end a text.
    max_new_tokens: most tokens of an output.
    drafter: proposes the trees; None decodes plainly.
    drafter_params: what the drafter needs of its own.
    num_nodes: capacity `N`, nodes of a tree, the root included.
    sampling: a row for each prompt; temperature 1 by default.
    seeds: one for each prompt; its index by default. A prompt's text depends
      on its own seed alone.
    max_length: most tokens of prompt and output.
    batch_size: most rows decoded together; batches are made equally large.

  Returns:
    A generation for each prompt, in their order.

  Raises:
    ValueError: a prompt that is empty, has unknown tokens or leaves no room
      below `max_length`; a number below 1; lists of unequal length.
  """
  batches = read_prompts(
    verifier,
    prompts,
    max_new_tokens=max_new_tokens,
    sampling=sampling,
    seeds=seeds,
    max_length=max_length,
    batch_size=batch_size,
  )
  results = []
  for batch in batches:
    results += decode(
      verifier,
      batch,
      eos_ids=eos_ids,
      drafter=drafter,
      drafter_params=drafter_params,
      num_nodes=num_nodes,
    )
  return results


def read_prompts(
  verifier: llama_model.Params,
  prompts: Sequence[Sequence[int]],
  *,
  max_new_tokens: int,
  sampling: sampling_lib.Sampling | None = None,
  seeds: Sequence[int] | None = None,
  max_length: int = 2048,
  batch_size: int = 8,
) -> list[Batch]:
  """Reads prompts in batches of one shape; see `generate` for the arguments."""
  num_prompts = len(prompts)
  if sampling is None:
    sampling = sampling_lib.make(num_prompts)
  seeds = range(num_prompts) if seeds is None else seeds
  _check(verifier, prompts, max_new_tokens, sampling, seeds, max_length)
  lengths = np.array([len(p) for p in prompts])
  limits = np.minimum(lengths + max_new_tokens, max_length)
  num_slots = _round_up(limits.max(), _SLOT_BUCKET)
  width = min(_round_up(lengths.max(), _PREFILL_BUCKET), num_slots)
  tokens = np.zeros((num_prompts, num_slots), np.int32)
  for row, prompt in zip(tokens, prompts, strict=True):
    row[: len(prompt)] = prompt
  groups = batch_rows(num_prompts, batch_size)
  batches = []
  for group in groups:
    # The last batch is filled up with its last prompt; rows that fill up are
    # done before they start.
    order = np.arange(len(groups[0]))
    rows = group[np.minimum(order, len(group) - 1)]
    is_prompt = order < len(group)
    batches.append(
      Batch(
        prefix=_read(
          verifier, jnp.asarray(tokens[rows]), jnp.asarray(lengths[rows]), width
        ),
        limits=jnp.asarray(np.where(is_prompt, limits[rows], 0), jnp.int32),
        seeds=jnp.asarray(np.asarray(seeds, np.uint32)[rows]),
        sampling=jax.tree.map(lambda x, r=rows: x[r], sampling),
        num_prompts=len(group),
      )
    )
  return batches


def batch_rows(num_prompts: int, batch_size: int) -> list[np.ndarray]:
  """Returns the prompts of each batch, which are as equally large as can be.

  Args:
    num_prompts: how many there are.
    batch_size: most of them in one batch.

  Raises:
    ValueError: a batch size below 1.
  """
  if batch_size < 1:
    raise ValueError(f'expected batch_size >= 1, got {batch_size}')
  num_batches = -(-num_prompts // batch_size)
  size = -(-num_prompts // num_batches)
  return np.split(np.arange(num_prompts), range(size, num_prompts, size))


def decode(
  verifier: llama_model.Params,
  batch: Batch,
  *,
  eos_ids: tuple[int, ...],
  drafter: base.Drafter | None = None,
  drafter_params: chex.ArrayTree = (),
  num_nodes: int = 1,
  chunk: int = 2**30,
  progress_fn: Callable[[int], None] | None = None,
) -> list[Generation]:
  """Decodes a batch that was read; see `generate` for the arguments.

  Args:
    verifier: the model.
    batch: the prompts.
    eos_ids: tokens that end a text.
    drafter: proposes the trees; None decodes plainly.
    drafter_params: what the drafter needs of its own.
    num_nodes: capacity `N`.
    chunk: iterations between two calls of `progress_fn`; the texts do not
      depend on it.
    progress_fn: told how many tokens all rows have emitted since the last call.

  Returns:
    A generation for each prompt.
  """
  if num_nodes < 1:
    raise ValueError(f'expected a capacity of at least 1 node, got {num_nodes}')
  if chunk < 1:
    raise ValueError(f'expected a chunk of at least 1, got {chunk}')
  params = base.Params(verifier, drafter_params, batch.sampling)
  if drafter is None:
    drafter_state = ()
    run = functools.partial(baseline.run, eos_ids=eos_ids)
  else:
    drafter_state = drafter.init(params, batch.prefix)
    run = functools.partial(
      loop.run, drafter=drafter, num_nodes=num_nodes, eos_ids=eos_ids
    )
  lengths = np.asarray(batch.prefix.lengths)
  most_new = max(int((np.asarray(batch.limits) - lengths).max()), 1)
  state = loop.start(
    batch.prefix,
    batch.limits,
    batch.seeds,
    drafter_state,
    _round_up(most_new, _STEP_BUCKET),
  )
  # The batch is decoded again with other drafters; `run` takes what it is
  # given.
  state = jax.tree.map(jnp.copy, state)
  num_emitted = 0
  while not bool(jnp.all(state.is_done)):
    state = run(params, state, chunk)
    if progress_fn is not None:
      total = int(np.sum(np.asarray(state.lengths) - lengths))
      progress_fn(total - num_emitted)
      num_emitted = total
  with_steps = drafter is not None
  return _collect(state, lengths, batch.num_prompts, eos_ids, with_steps)


def _collect(state, prompt_lengths, num_prompts, eos_ids, with_steps):
  """Brings the first rows of a state to the host, one generation each."""
  fields = ('tokens', 'log_p', 'lengths', 'num_steps', 'steps')
  host = jax.device_get({name: getattr(state, name) for name in fields})
  results = []
  for row in range(num_prompts):
    output = slice(prompt_lengths[row], host['lengths'][row])
    tokens = host['tokens'][row, output].tolist()
    count = host['num_steps'][row]
    steps = jax.tree.map(lambda x, r=row, c=count: x[r, :c], host['steps'])
    results.append(
      Generation(
        tokens=tokens,
        log_probs=host['log_p'][row, output],
        finish_reason='eos' if tokens and tokens[-1] in eos_ids else 'length',
        steps=steps if with_steps else None,
      )
    )
  return results


@functools.partial(jax.jit, static_argnames='width')
def _read(verifier, tokens, lengths, width):
  """Reads all tokens of each prompt but the last, which is the first root."""
  batch, num_slots = tokens.shape
  dtype = llama_model.embed(verifier, tokens[:, :0]).dtype
  cache = llama_cache.init(verifier.config, batch, num_slots, dtype)
  _, cache = llama_model.prefill(
    verifier, tokens[:, :width], lengths - 1, cache
  )
  return base.Prefix(tokens=tokens, lengths=lengths, cache=cache)


def _check(verifier, prompts, max_new_tokens, sampling, seeds, max_length):
  if not prompts:
    raise ValueError('expected at least one prompt, got none')
  if max_new_tokens < 1:
    raise ValueError(f'expected max_new_tokens >= 1, got {max_new_tokens}')
  if not len(seeds) == len(sampling.temperature) == len(prompts):
    raise ValueError(
      'expected as many seeds and sampling rows as prompts, got '
      f'{len(seeds)}, {len(sampling.temperature)} and {len(prompts)}'
    )
  vocab_size = verifier.config.vocab_size
  for i, prompt in enumerate(prompts):
    if not len(prompt):
      raise ValueError(f'expected prompts of at least one token, got [] at {i}')
    if len(prompt) >= max_length:
      raise ValueError(
        f'expected prompts shorter than max_length {max_length}, got '
        f'{len(prompt)} tokens at {i}'
      )
    if min(prompt) < 0 or max(prompt) >= vocab_size:
      raise ValueError(
        f'expected tokens in [0, {vocab_size}), got {min(prompt)} to '
        f'{max(prompt)} in prompt {i}'
      )


def _round_up(number, multiple):
  return int(-(-number // multiple) * multiple)
