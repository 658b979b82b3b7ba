"""Speeds of ways of decoding, and by how much they exceed another's.

A ratio is taken pair by pair: of two ways in the same round on the same
prompts.  What is said of it is the median over rounds; its interval, from
rounds that are drawn again, tells what the noise of the machine leaves open for
these prompts.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np

from experiments.speed import rounds
from specjax.theory import resample

# Geometric means over all kinds, and over those with long prompts.
ALL, LONG = 'all kinds', 'long prompts'


class Speeds(NamedTuple):
  """Tokens a second, `[R, W, K]`: rounds, ways and groups of prompts.

  Attributes:
    decoding: from the read prompt to the end of the text; NaN for ways that
      read themselves.
    whole: the reading of the prompt in it.
  """

  decoding: np.ndarray
  whole: np.ndarray


def speeds(
  samples: rounds.Arrays,
  ways: Sequence[rounds.Way],
  tasks: Sequence[rounds.Task],
  groups: Sequence[Sequence[str]],
) -> Speeds:
  """Returns the speeds of all ways.

  The speed of a kind is a ratio of totals, tokens to seconds; that of a group
  is the geometric mean over its kinds.

  Args:
    samples: what `rounds.take` returned, `[R, ...]`: a round each.
    ways: `W` of them.
    tasks: what they decoded.
    groups: `K` groups of kinds.
  """
  kinds = list(dict.fromkeys(task.kind for task in tasks))
  is_of = np.array([[task.kind == kind for task in tasks] for kind in kinds])
  tokens = np.stack(
    [samples['num_tokens'][..., task.rows].sum(-1) for task in tasks], -1
  )
  total = lambda of_tasks: of_tasks @ is_of.T.astype(float)
  is_whole = np.array([way.is_whole for way in ways])[:, None]
  reading = samples['reading'][:, None]
  whole = samples['seconds'] + np.where(is_whole, 0.0, reading)
  decoding = np.where(is_whole, np.nan, samples['seconds'])

  def of_groups(seconds):
    logs = np.log(total(tokens) / total(seconds))
    means = [
      logs[..., [k in group for k in kinds]].mean(-1) for group in groups
    ]
    return np.exp(np.stack(means, -1))

  return Speeds(of_groups(decoding), of_groups(whole))


def medians(values: np.ndarray, seed: int) -> resample.Interval:
  """Returns medians over rounds, with their bootstrap intervals.

  Args:
    values: `[R, ...]`, a round each.
    seed: one seed, one set of resamples.

  Returns:
    `[...]` each.
  """
  num_rounds = len(values)
  order = np.argsort(values, axis=0)
  ordered = jnp.asarray(np.take_along_axis(values, order, axis=0))[..., None]

  def median(counts):
    reached = jnp.cumsum(counts[order], axis=0)
    # Of an even number of rounds both in the middle.
    middle = [
      jnp.argmax(reached >= rank, axis=0, keepdims=True)
      for rank in ((num_rounds + 1) // 2, num_rounds // 2 + 1)
    ]
    taken = [jnp.take_along_axis(ordered, place, axis=0)[0] for place in middle]
    return sum(taken) / 2

  return resample.bootstrap(median, num_rounds, seed)
