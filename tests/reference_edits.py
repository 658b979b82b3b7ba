"""Edits of logits as loops over tokens, written to be read."""

import collections
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
import reference_decode

from specjax import edits as edits_lib
from specjax import sampling as sampling_lib


class Setting(NamedTuple):
  """Everything that one request may ask for."""

  temperature: float = 1.0
  top_k: int = 0
  top_p: float = 1.0
  min_p: float = 0.0
  repetition: float = 1.0
  presence: float = 0.0
  frequency: float = 0.0
  bias: tuple = ()
  min_new_tokens: int = 0
  eos_ids: tuple = (2,)


def slow_edit(logits, setting, prompt, output):
  """Edited logits `[V]` of the token that follows."""
  logits = np.array(logits, np.float64)
  counts = collections.Counter(output)
  for token in {*prompt, *output}:
    factor = setting.repetition
    logits[token] *= 1 / factor if logits[token] > 0 else factor
  for token, count in counts.items():
    logits[token] -= setting.presence + setting.frequency * count
  for token, value in setting.bias:
    logits[token] += value
  if len(output) < setting.min_new_tokens:
    logits[list(setting.eos_ids)] = -np.inf
  return logits


def slow_law(logits, setting, prompt, output):
  """Sampled law `[V]` of the token that follows."""
  return reference_decode.slow_law(
    slow_edit(logits, setting, prompt, output), *setting[:4]
  )


def sampling_of(settings):
  """Sampling parameters with a row for each setting; all name the same ends."""
  column = lambda name: [getattr(setting, name) for setting in settings]
  sampling = sampling_lib.Sampling(
    temperature=jnp.asarray(column('temperature'), jnp.float32),
    top_k=jnp.asarray(column('top_k'), jnp.int32),
    top_p=jnp.asarray(column('top_p'), jnp.float32),
    min_p=jnp.asarray(column('min_p'), jnp.float32),
  )
  if all(setting[4:] == Setting()[4:] for setting in settings):
    return sampling
  return sampling.replace(
    edits=edits_lib.make(
      len(settings),
      repetition=column('repetition'),
      presence=column('presence'),
      frequency=column('frequency'),
      bias=[dict(pairs) for pairs in column('bias')],
      min_new_tokens=column('min_new_tokens'),
      eos_ids=settings[0].eos_ids,
    )
  )
