"""Speculation that chooses, iteration by iteration, how much of a tree to read.

A light drafter proposes its largest tree, and as many of its nodes are verified
as promise most tokens a second (see `capacity`), in a pass that was compiled
for that number, one for the batch.  A drafter that runs a model is asked only
while that pays.

The verification rule is `match`, under which the text is that of plain decoding
whatever is read; other rules ask for trees that do not depend on what was
drawn.
"""

import functools
import time
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from specjax import programs
from specjax.decode import capacity as capacity_lib
from specjax.decode import loop, rules
from specjax.decode import rows as rows_lib
from specjax.draft import base
from specjax.llama import cache as llama_cache
from specjax.trees import tree as tree_lib


class Extra(NamedTuple):
  """What adaptive decoding has in the place of a drafter's parameters.

  Attributes:
    drafter: its parameters.
    menu: the capacities and what they cost.
  """

  drafter: chex.ArrayTree
  menu: capacity_lib.Menu


class Memory(NamedTuple):
  """What adaptive decoding has in the place of a drafter's state.

  Attributes:
    drafter: its state.
    estimates: of what it is worth.
  """

  drafter: chex.ArrayTree
  estimates: capacity_lib.Estimates


@functools.partial(
  programs.jit, static_argnames=('drafter', 'eos_ids'), donate_argnames='state'
)
def run(
  params: base.Params,
  state: rows_lib.DecodeState,
  max_steps: int,
  *,
  drafter: base.Drafter,
  eos_ids: tuple[int, ...],
) -> rows_lib.DecodeState:
  """Decodes until all rows are done or `max_steps` are taken.

  Args:
    params: verifier, `Extra` for the drafter's, and sampling parameters.
    state: the rows, `Memory` for the drafter's state; donated.
    max_steps: most iterations of this call.
    drafter: the drafter; its trees are cut behind their first nodes.
    eos_ids: tokens that end a text.

  Returns:
    The rows after the last iteration.

  Raises:
    ValueError: what the drafter refuses, such as a tree that is too large.
  """
  step = lambda state: _iterate(params, state, drafter, eos_ids)
  return loop.repeat(step, state, max_steps)


def equip(
  params: base.Params, state: rows_lib.DecodeState, menu: capacity_lib.Menu
) -> tuple[base.Params, rows_lib.DecodeState]:
  """Returns parameters and rows for `run`, of those for `loop.run`.

  Args:
    params: verifier, the drafter's own and sampling parameters.
    state: the rows, before their first iteration.
    menu: what to choose from.
  """
  estimates = capacity_lib.start(state.lengths.shape[0])
  return (
    params.replace(drafter=Extra(params.drafter, menu)),
    state.replace(drafter=Memory(state.drafter, estimates)),
  )


def measure(
  params: base.Params,
  batch_state: rows_lib.DecodeState,
  capacities: tuple[int, ...],
  *,
  drafter: base.Drafter,
  eos_ids: tuple[int, ...],
  num_steps: int = 4,
  repeats: int = 5,
) -> capacity_lib.Menu:
  """Times iterations at each capacity, in turns, after all were compiled.

  It is the program of `run` that is timed, kept to one capacity by estimates
  and a menu that leave it no choice.

  Args:
    params: verifier, the drafter's own and sampling parameters.
    batch_state: rows with some tokens to go; they stay as they are.
    capacities: rising from 1.
    drafter: the drafter.
    eos_ids: tokens that end a text.
    num_steps: iterations of a timed call; fewer where all rows end.
    repeats: calls of each.

  Returns:
    The menu, of medians.

  Raises:
    ValueError: what `capacity.make_menu` or the drafter refuses.
  """

  def seconds(index):
    kept = kept_to(index, capacities, params, batch_state)
    kept_params, state = kept[0], jax.tree.map(jnp.copy, kept[1])
    jax.block_until_ready(state)
    begin = time.perf_counter()
    after = run(kept_params, state, num_steps, drafter=drafter, eos_ids=eos_ids)
    taken = int(jnp.max(after.num_steps - batch_state.num_steps))
    return (time.perf_counter() - begin) / max(taken, 1)

  indices = range(len(capacities))
  samples = [[seconds(i) for i in indices] for _ in range(1 + repeats)]
  return capacity_lib.make_menu(capacities, np.median(samples[1:], axis=0))


def kept_to(
  index: int,
  capacities: tuple[int, ...],
  params: base.Params,
  state: rows_lib.DecodeState,
) -> tuple[base.Params, rows_lib.DecodeState]:
  """Returns what `equip` does, with no choice left.

  Args:
    index: of the capacity that is taken.
    capacities: rising from 1.
    params: verifier, the drafter's own and sampling parameters.
    state: the rows, before their first iteration.
  """
  menu = capacity_lib.only(capacities, index)
  params, state = equip(params, state, menu)
  estimates = capacity_lib.sure(state.lengths.shape[0], index > 0)
  memory = state.drafter._replace(estimates=estimates)
  return params, state.replace(drafter=memory)


class _Round(NamedTuple):
  """What an iteration works with, the drafter's part unwrapped."""

  params: base.Params
  state: rows_lib.DecodeState
  drafter: base.Drafter
  menu: capacity_lib.Menu
  eos_ids: tuple[int, ...]


class _Outcome(NamedTuple):
  """What an iteration comes to, padded to the largest capacity."""

  tree: tree_lib.Tree
  verdict: base.Verdict
  new_kv: llama_cache.NewKV
  memory: Memory


def _iterate(params, state, drafter, eos_ids):
  """One iteration: choose, propose, verify, commit, learn."""
  extra, memory = params.drafter, state.drafter
  this = _Round(
    params.replace(drafter=extra.drafter),
    state.replace(drafter=memory.drafter),
    drafter,
    extra.menu,
    eos_ids,
  )
  if drafter.is_light:
    outcome = _speculate(this, memory.estimates, first=0)
  else:
    outcome = lax.cond(
      capacity_lib.has_paid(memory.estimates),
      lambda: _speculate(this, memory.estimates, first=1),
      lambda: _go_without(this, memory.estimates),
    )
  # The cache is written outside of what is chosen, where that takes no copy.
  after, _ = loop.settle(
    this.state,
    base.Proposal(outcome.tree),
    outcome.verdict,
    outcome.new_kv,
    eos_ids,
  )
  return after.replace(drafter=outcome.memory)


def _speculate(this, estimates, first):
  """Proposes trees and reads as much of them as pays."""
  menu, is_active = this.menu, ~this.state.is_done
  tree, drafter_state = _propose(this, menu.capacities[-1])
  choice = capacity_lib.choose(menu, estimates, tree, is_active, first)
  reads = [
    functools.partial(_read, this, tree, capacity)
    for capacity in menu.capacities[first:]
  ]
  verdict, new_kv = lax.switch(choice - first, reads)
  estimates = capacity_lib.learn(
    menu, estimates, tree, verdict, choice, is_active
  )
  capacity = jnp.asarray(menu.capacities)[choice]
  tree = tree.replace(num_nodes=jnp.minimum(tree.num_nodes, capacity))
  memory = _observe(this, drafter_state, verdict, estimates)
  return _Outcome(tree, verdict, new_kv, memory)


def _go_without(this, estimates):
  """Takes a step of plain decoding, of which the drafter is told."""
  tree, drafter_state = _propose(this, 1)
  verdict, new_kv = _judge(this, tree)
  memory = _observe(
    this, drafter_state, verdict, capacity_lib.forget(estimates, verdict)
  )
  missing = this.menu.capacities[-1] - 1
  # What is added is absent, and after the root as nodes have to be.
  widen = lambda x: jnp.pad(x, [(0, 0), (0, missing)])
  tree = tree.replace(
    tokens=widen(tree.tokens),
    parents=widen(tree.parents),
    log_q=widen(tree.log_q),
  )
  return _Outcome(tree, *_padded(verdict, new_kv, missing), memory)


def _propose(this, num_nodes):
  proposal, drafter_state = this.drafter.propose(
    this.params,
    this.state.drafter,
    this.state.tokens,
    this.state.lengths,
    num_nodes,
  )
  return proposal.tree, drafter_state


def _read(this, tree, capacity):
  """Verifies the first nodes; the outcome has room for the largest capacity."""
  cut = lambda x: x[:, :capacity]
  part = tree_lib.Tree(
    cut(tree.tokens),
    cut(tree.parents),
    cut(tree.log_q),
    jnp.minimum(tree.num_nodes, capacity),
  )
  missing = this.menu.capacities[-1] - capacity
  return _padded(*_judge(this, part), missing)


def _judge(this, tree):
  return loop.judge(
    this.params,
    this.state,
    base.Proposal(tree),
    rules.match,
    this.drafter.features,
  )


def _padded(verdict, new_kv, missing):
  """Makes room for so many more nodes."""

  def pad(x, axis):
    return jnp.pad(x, [(0, missing * (i == axis)) for i in range(x.ndim)])

  of_nodes = (verdict.path, verdict.tokens, verdict.log_p, verdict.features)
  path, tokens, log_p, features = jax.tree.map(lambda x: pad(x, 1), of_nodes)
  return (
    base.Verdict(path, tokens, log_p, verdict.num_accepted, features),
    llama_cache.NewKV(pad(new_kv.keys, 4), pad(new_kv.values, 3)),
  )


def _observe(this, drafter_state, verdict, estimates):
  """Tells the drafter what is committed."""
  _, emitted = rows_lib.emit(
    this.state,
    verdict.tokens,
    verdict.log_p,
    verdict.num_accepted,
    this.eos_ids,
  )
  committed = verdict.replace(num_accepted=emitted)
  observed = this.drafter.observe(this.params, drafter_state, committed)
  return Memory(observed, estimates)
