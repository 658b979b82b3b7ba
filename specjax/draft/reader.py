"""Models that draft: what a tree can be grown or filled with.

A reader is a model with a memory.  It reads nodes of trees, a pass at a time,
and keeps what it read until the verifier has spoken.  `grown` and `filled` make
a drafter of any reader.
"""

import functools
from collections.abc import Callable
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp

from specjax.draft import base, scratch
from specjax.llama import config as llama_config
from specjax.llama import model as llama_model


class Reader(NamedTuple):
  """The three functions of a model that drafts, and what it wants to know.

  Attributes:
    init: `(params, prefix, num_slots) -> memory`, with room for as many nodes.
    read: `(params, memory, nodes) -> (logits [B, W, V], memory)`.
    keep: `(params, memory, accepted, num_slots) -> memory`; told which of the
      nodes just read, with as many slots, were committed.
    features: layers of the verifier whose inputs it is told of.
  """

  init: Callable[[base.Params, base.Prefix, int], chex.ArrayTree]
  read: Callable[..., tuple[jax.Array, chex.ArrayTree]]
  keep: Callable[..., chex.ArrayTree]
  features: tuple[int, ...] = ()


@functools.cache
def verifier() -> Reader:
  """Returns the verifier itself; it has read the prompts already."""

  def init(params, prefix, num_slots):
    del params
    return scratch.extend(prefix.cache, num_slots)

  return _llama(lambda params: params.verifier)._replace(init=init)


@functools.cache
def small_llama(
  config: llama_config.LlamaConfig, verifier_config: llama_config.LlamaConfig
) -> Reader:
  """Returns another Llama; its weights are `params.drafter`.

  Args:
    config: of the model that drafts.
    verifier_config: of the model that decides.

  Raises:
    ValueError: vocabularies of unequal size; in `init`, texts that may grow
      longer than the drafter was made for.
  """
  base.check_vocabulary(config.vocab_size, verifier_config.vocab_size)
  return _llama(lambda params: params.drafter)


@functools.cache
def layer_skip(
  config: llama_config.LlamaConfig, layers: tuple[int, ...]
) -> Reader:
  """Returns the verifier without some of its layers (J. Zhang et al. 2023,
  "Draft & Verify", arXiv 2309.08168), which has a cache of its own.

  Args:
    config: of the verifier.
    layers: those that run, in their order.

  Raises:
    ValueError: no layers, layers out of order, or one that the model lacks.
  """
  every = range(config.num_layers)
  if not layers or list(layers) != [i for i in every if i in layers]:
    raise ValueError(
      f'expected rising layers of 0 to {config.num_layers - 1}, got {layers}'
    )
  return _llama(lambda params: params.verifier, layers)


def check_size(num_nodes: int, max_nodes: int):
  """Raises `ValueError` for a tree that a reader has no room for."""
  if num_nodes > max_nodes:
    raise ValueError(
      f'expected a tree of at most {max_nodes} nodes, got {num_nodes}'
    )


def keep_path(
  reader: Reader,
  params: base.Params,
  memory: chex.ArrayTree,
  nodes: tuple[jax.Array, jax.Array],
  verdict: base.Verdict,
  num_slots: int,
) -> chex.ArrayTree:
  """Tells a reader what became of the trees that it has read.

  Args:
    reader: the model.
    params: as for all its functions.
    memory: after the last pass.
    nodes: tokens and slots of all nodes of the trees, `[B, N]` each.
    verdict: of the verifier.
    num_slots: `P`, as the trees were read.

  Returns:
    The memory, of the accepted nodes alone.
  """
  on_path = lambda x: jnp.take_along_axis(x, verdict.path, axis=1)
  accepted = scratch.Accepted(
    *map(on_path, nodes), verdict.num_accepted, verdict.features
  )
  return reader.keep(params, memory, accepted, num_slots)


def _llama(
  llama_fn: Callable[[base.Params], llama_model.Params],
  layers: tuple[int, ...] | None = None,
) -> Reader:
  """A Llama that reads the prompts for itself; its memory is a cache."""

  # Drafters start outside of jit, where a loop would be compiled every time.
  @functools.partial(jax.jit, static_argnums=2)
  def init(params, prefix, num_slots):
    return scratch.read_prompts(llama_fn(params), prefix, num_slots, layers)

  def read(params, cache, nodes):
    llama = llama_fn(params)
    hidden, cache = scratch.read(llama, cache, nodes, layers)
    return llama_model.head(llama, hidden), cache

  def keep(params, cache, accepted, num_slots):
    return scratch.keep(llama_fn(params), cache, accepted, num_slots, layers)

  return Reader(init, read, keep)
