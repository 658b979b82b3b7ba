"""The speculative loop: propose, verify, commit, for a batch of rows at once.

One `while_loop` decodes the batch; each row accepts its own number of tokens an
iteration.  Between iterations `cache.length` is the number of tokens less one:
the last token is the root of the next tree and not in the cache yet.
"""

import functools
from collections.abc import Callable

import chex
import jax
import jax.numpy as jnp
from jax import lax

from specjax import programs
from specjax.decode import rows as rows_lib
from specjax.decode import rules, verify
from specjax.draft import base
from specjax.llama import cache as llama_cache
from specjax.trees import tree as tree_lib


def start(
  prefix: base.Prefix,
  limits: jax.Array,
  drafter_state: chex.ArrayTree,
  max_steps: int,
) -> rows_lib.DecodeState:
  """Returns the state of rows that have read their prompts.

  Args:
    prefix: the prompts; its arrays are shared, not copied.
    limits: `[B]` most tokens of prompt and output; at most S.
    drafter_state: what the drafter's `init` returned.
    max_steps: iterations that can be recorded; a row takes no more than it may
      emit tokens.

  Returns:
    The rows before their first iteration; those without room are done.
  """
  batch, size = prefix.tokens.shape
  none = lambda: jnp.zeros((batch, max_steps), jnp.int32)
  return rows_lib.DecodeState(
    tokens=prefix.tokens,
    log_p=jnp.zeros((batch, size)),
    prompt_lengths=prefix.lengths,
    lengths=prefix.lengths,
    limits=limits,
    seeds=prefix.seeds,
    is_done=prefix.lengths >= limits,
    cache=prefix.cache,
    drafter=drafter_state,
    steps=rows_lib.StepInfo(none(), none(), none(), none(), none(), none()),
    num_steps=jnp.zeros(batch, jnp.int32),
  )


@functools.partial(
  programs.jit,
  static_argnames=('drafter', 'num_nodes', 'eos_ids', 'rule'),
  donate_argnames='state',
)
def run(
  params: base.Params,
  state: rows_lib.DecodeState,
  max_steps: int,
  *,
  drafter: base.Drafter,
  num_nodes: int,
  eos_ids: tuple[int, ...],
  rule: str = 'match',
) -> rows_lib.DecodeState:
  """Decodes by speculation until all rows are done or `max_steps` are taken.

  Args:
    params: verifier, drafter and sampling parameters.
    state: the rows; donated.
    max_steps: most iterations of this call.  Results do not depend on how a
      run is cut into calls.
    drafter: the drafter.
    num_nodes: capacity `N`, the nodes of a tree.
    eos_ids: tokens that end a text.
    rule: name of the verification rule, of `rules.named`.

  Returns:
    The rows after the last iteration.

  Raises:
    ValueError: what the drafter refuses, such as a tree that is too large; what
      the rule refuses, such as drafts without laws.
  """
  rule_fn = rules.named(rule)
  step = lambda state: _iterate(
    params, state, drafter, num_nodes, eos_ids, rule_fn
  )
  return repeat(step, state, max_steps)


def repeat(
  step_fn: Callable[[rows_lib.DecodeState], rows_lib.DecodeState],
  state: rows_lib.DecodeState,
  max_steps: int,
) -> rows_lib.DecodeState:
  """Takes steps until all rows are done or `max_steps` are taken.

  Args:
    step_fn: one step of all rows; those that are done stay as they are.
    state: the rows.
    max_steps: most steps.

  Returns:
    The rows after the last step.
  """

  def is_running(carry):
    state, num_taken = carry
    return ~jnp.all(state.is_done) & (num_taken < max_steps)

  step = lambda carry: (step_fn(carry[0]), carry[1] + 1)
  return lax.while_loop(is_running, step, (state, jnp.int32(0)))[0]


def judge(
  params: base.Params,
  state: rows_lib.DecodeState,
  proposal: base.Proposal,
  rule: rules.Rule,
  features: tuple[int, ...] = (),
) -> tuple[base.Verdict, llama_cache.NewKV]:
  """Verifies what was proposed for the rows; those that are done emit nothing.

  Args:
    params: verifier and sampling parameters.
    state: the rows.
    proposal: their trees.
    rule: which drafts are accepted.
    features: layers whose inputs the drafter wants to know.

  Returns:
    As `verify.verify`.

  Raises:
    ValueError: what the rule refuses.
  """
  return verify.verify(
    params,
    proposal,
    state.cache,
    state.seeds,
    ~state.is_done,
    rule,
    rows_lib.history(params, state),
    features,
  )


def settle(
  state: rows_lib.DecodeState,
  proposal: base.Proposal,
  verdict: base.Verdict,
  new_kv: llama_cache.NewKV,
  eos_ids: tuple[int, ...],
) -> tuple[rows_lib.DecodeState, base.Verdict]:
  """Appends, commits and records what the verifier accepted.

  Args:
    state: the rows; their drafter's state is left as it is.
    proposal: the trees.
    verdict: what the verifier made of them.
    new_kv: keys and values of all nodes.
    eos_ids: tokens that end a text.

  Returns:
    The rows, and the verdict cut where a text ends, for the drafter.
  """
  after, emitted = rows_lib.emit(
    state, verdict.tokens, verdict.log_p, verdict.num_accepted, eos_ids
  )
  after = after.replace(
    cache=llama_cache.commit(state.cache, new_kv, verdict.path, emitted),
    steps=_record(state, _step_info(state, proposal.tree, verdict, emitted)),
    num_steps=state.num_steps + ~state.is_done,
  )
  return after, verdict.replace(num_accepted=emitted)


def _iterate(params, state, drafter, num_nodes, eos_ids, rule):
  """One iteration: propose a tree, verify it, commit what was accepted."""
  proposal, drafter_state = drafter.propose(
    params, state.drafter, state.tokens, state.lengths, num_nodes
  )
  verdict, new_kv = judge(params, state, proposal, rule, drafter.features)
  after, committed = settle(state, proposal, verdict, new_kv, eos_ids)
  return after.replace(
    drafter=drafter.observe(params, drafter_state, committed)
  )


def _step_info(state, trees, verdict, emitted):
  """What happened to trees with a leading axis `[B]`."""
  is_present = jax.vmap(tree_lib.present)(trees)
  depths = jax.vmap(tree_lib.depth)(trees.parents)
  depth = verdict.num_accepted - 1
  last = jnp.take_along_axis(
    verdict.path, jnp.maximum(depth, 0)[:, None], axis=1
  )
  has_children = jnp.any((trees.parents == last) & is_present, axis=1)
  return rows_lib.StepInfo(
    start=state.lengths,
    num_nodes=trees.num_nodes,
    levels=jnp.max(jnp.where(is_present, depths, 0), axis=1),
    tried=depth + has_children,
    depth=depth,
    emitted=emitted,
  )


def _record(state, step):
  """Writes an iteration behind those of the rows that are not done."""
  rows = jnp.arange(state.num_steps.shape[0])
  places = jnp.where(state.is_done, state.steps.start.shape[1], state.num_steps)
  return jax.tree.map(
    lambda old, new: old.at[rows, places].set(new, mode='drop'),
    state.steps,
    step,
  )
