"""The speculative loop phase by phase, to see where its time goes.

The same iterations as those of `loop.run`, each in programs that are compiled
apart and waited for: the drafter proposes and is told what was accepted, the
verifier runs the tree and follows its rule, the rest appends and commits.  The
split is that of a run that was made in this way, not of one that was not: the
waiting is part of the overhead.
"""

import functools
import time
from typing import NamedTuple

import jax
import jax.numpy as jnp

from specjax import programs
from specjax.decode import loop, rules
from specjax.decode import rows as rows_lib
from specjax.draft import base


class Times(NamedTuple):
  """Wall time of a batch's decoding in seconds; reading prompts is not in it.

  Attributes:
    draft: spent by the drafter.
    verify: spent by the verifier, its rule included.
    overhead: all else: appending, committing, recording, waiting, text and
      callbacks.
    num_iterations: of the batch.
  """

  draft: float
  verify: float
  overhead: float
  num_iterations: int


class Timer:
  """Runs the loop phase by phase and adds up what each of them took."""

  def __init__(
    self,
    drafter: base.Drafter,
    num_nodes: int,
    eos_ids: tuple[int, ...],
    rule: str,
  ):
    """Begins with no time spent.

    Args:
      drafter: the drafter.
      num_nodes: capacity `N`.
      eos_ids: tokens that end a text.
      rule: name of the verification rule.
    """
    self._drafter = drafter
    self._num_nodes = num_nodes
    self._eos_ids = eos_ids
    self._rule = rule
    self._restart()

  def warm_up(self, params: base.Params, state: rows_lib.DecodeState) -> None:
    """Takes an iteration that does not count, so that all is compiled.

    Args:
      params: verifier, drafter and sampling parameters.
      state: the rows; they stay as they are.
    """
    cache = jax.tree.map(jnp.copy, state.cache)
    jax.block_until_ready(self._iterate(params, state.replace(cache=cache)))
    self._restart()

  def run(
    self, params: base.Params, state: rows_lib.DecodeState, max_steps: int
  ) -> rows_lib.DecodeState:
    """Decodes until all rows are done or `max_steps` are taken.

    Args:
      params: verifier, drafter and sampling parameters.
      state: the rows; their cache is donated.
      max_steps: most iterations of this call.

    Returns:
      The rows after the last iteration.
    """
    for _ in range(max_steps):
      if bool(jnp.all(state.is_done)):
        break
      state = self._iterate(params, state)
    return state

  def times(self) -> Times:
    """Returns what was spent since the timer began or was warmed up."""
    total = time.perf_counter() - self._begin
    return Times(
      draft=self._draft,
      verify=self._verify,
      overhead=total - self._draft - self._verify,
      num_iterations=self._num_iterations,
    )

  def _restart(self):
    self._begin = time.perf_counter()
    self._draft = self._verify = 0.0
    self._num_iterations = 0

  def _iterate(self, params, state):
    drafter = self._drafter
    (proposal, drafter_state), proposing = _timed(
      _propose,
      params,
      (state.drafter, state.tokens, state.lengths),
      drafter,
      self._num_nodes,
    )
    # The drafter's state may share arrays with what the others are given; only
    # the cache is donated.
    state = state.replace(drafter=())
    (verdict, new_kv), judging = _timed(
      _judge, params, state, proposal, drafter.features, self._rule
    )
    after, committed = _settle(
      state.cache,
      state.replace(cache=None),
      proposal,
      verdict,
      new_kv,
      self._eos_ids,
    )
    jax.block_until_ready(after)
    observed, observing = _timed(
      _observe, params, drafter_state, committed, drafter
    )
    self._draft += proposing + observing
    self._verify += judging
    self._num_iterations += 1
    return after.replace(drafter=observed)


def _timed(program, *args):
  """Returns what a program gives, and the seconds until it was there."""
  begin = time.perf_counter()
  result = jax.block_until_ready(program(*args))
  return result, time.perf_counter() - begin


@functools.partial(programs.jit, static_argnums=(2, 3))
def _propose(params, context, drafter, num_nodes):
  return drafter.propose(params, *context, num_nodes)


@functools.partial(programs.jit, static_argnums=(3, 4))
def _judge(params, state, proposal, features, rule):
  return loop.judge(params, state, proposal, rules.named(rule), features)


@functools.partial(programs.jit, static_argnums=5, donate_argnums=0)
def _settle(cache, state, proposal, verdict, new_kv, eos_ids):
  state = state.replace(cache=cache)
  return loop.settle(state, proposal, verdict, new_kv, eos_ids)


@functools.partial(programs.jit, static_argnums=3)
def _observe(params, drafter_state, verdict, drafter):
  return drafter.observe(params, drafter_state, verdict)
