"""Models that draft, and prompts for them.

The verifier is planted behind them, so that full, partial and no acceptance all
happen: as it is, made dull, or nearly as it is.
"""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import reference_decode

from specjax import sampling as sampling_lib
from specjax.decode import prefill
from specjax.draft import base, dulled, filled, grown
from specjax.draft import reader as reader_lib
from specjax.llama import model as llama_model
from specjax.trees import rules, shapes

VOCAB = 23
EOS = (3,)
# With their outputs of at most 16 tokens, or of more than 64 and at most 80.
PROMPTS = [[4], [1, 2, 3], [7, 7, 9], list(range(11)) * 6]
SEEDS = [5, 6, 7, 8]
TEMPERATURES = (0.0, 1.0, 0.0, 0.7)
MAX_NEW = 13
SKIPPED_TO = (1,)
SIGMA = 0.8
DEEPEST = 3  # as far as the trees go


class Case(NamedTuple):
  """A drafter, what its model says after a text, and what is to happen."""

  reader: reader_lib.Reader
  drafter: base.Drafter
  drafter_params: Any
  num_nodes: int
  logits_fn: Callable[[list], np.ndarray]
  kinds: set
  rule: str = 'match'

  def memory(self, state):
    """What the reader knows."""
    return state[0] if self.rule != 'match' else state


def without_layers(params, layers):
  """The model that has these layers alone."""
  stacks = jax.tree.map(lambda x: x[jnp.asarray(layers)], params.weights)
  config = dataclasses.replace(params.config, num_layers=len(layers))
  return llama_model.Params(
    params.weights | {'layers': stacks['layers']}, config
  )


def dull_logits(verifier, text):
  """By the definition, with a context's number summed in Python."""
  number = 0
  for token in text:
    number = (number * 0x9E3779B1 + token + 1) % 2**32
  key = jax.random.fold_in(jax.random.key(0), jnp.uint32(number))
  logits = reference_decode.logits_after(verifier, text)[-1]
  noise = np.asarray(jax.random.normal(key, (VOCAB,)))
  return np.asarray(jax.nn.log_softmax(logits)) + SIGMA * noise


def perturbed(verifier):
  """A model that is near the verifier."""
  noise = lambda x: x + 0.03 * jax.random.normal(jax.random.key(1), x.shape)
  return verifier.replace(weights=jax.tree.map(noise, verifier.weights))


# The same objects for all tests, so compiled once.
RULES = {
  'beam': lambda n: rules.beam(n, 3, DEEPEST),
  'few layers': lambda n: rules.best_first(n, 3),
  'dulled': lambda n: rules.opt_tree(n, 3, DEEPEST, 0.05),
}
DRAWN = lambda n: shapes.best_first(n, [0.5, 0.3])  # of 7 nodes, 3 deep
CASES = (*RULES, 'chain', 'drawn')


def make_case(name, verifier):
  near = perturbed(verifier)
  small = reader_lib.small_llama(near.config, verifier.config)
  of_near = lambda text: reference_decode.logits_after(near, text)[-1]
  every = {'none', 'partial', 'full'}
  if name == 'beam':
    drafter = grown.make(small, RULES[name], 16, EOS)
    return Case(small, drafter, near, 16, of_near, every)
  if name == 'few layers':
    reader = reader_lib.layer_skip(verifier.config, SKIPPED_TO)
    drafter = grown.make(reader, RULES[name], 6, EOS)
    sliced = without_layers(verifier, SKIPPED_TO)
    logits_fn = lambda text: reference_decode.logits_after(sliced, text)[-1]
    return Case(reader, drafter, (), 6, logits_fn, {'none', 'partial'})
  if name == 'dulled':
    drafter = grown.make(dulled.reader(), RULES[name], 6, EOS)
    dull = functools.partial(dull_logits, verifier)
    return Case(dulled.reader(), drafter, jnp.float32(SIGMA), 6, dull, every)
  if name == 'chain':
    drafter = filled.best(small, shapes.chain, 1 + DEEPEST, EOS)
    return Case(small, drafter, near, 1 + DEEPEST, of_near, every)
  drafter = filled.drawn(small, DRAWN, 7, False)
  return Case(small, drafter, near, 7, of_near, every, 'without_replacement')


def mixed_sampling():
  made = sampling_lib.make(len(PROMPTS))
  return made.replace(temperature=jnp.asarray(TEMPERATURES))


def read_prompts(
  verifier,
  prompts=PROMPTS,
  seeds=SEEDS,
  sampling=None,
  max_new_tokens=MAX_NEW,
):
  [batch] = prefill.read_prompts(
    verifier,
    prompts,
    max_new_tokens=max_new_tokens,
    sampling=sampling or mixed_sampling(),
    seeds=seeds,
    batch_size=len(prompts),
  )
  return batch
