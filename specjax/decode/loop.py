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
from flax import struct
from jax import lax

from specjax import edits
from specjax.decode import rules, verify
from specjax.draft import base
from specjax.llama import cache as llama_cache


@struct.dataclass
class StepInfo:
  """What happened in each iteration of each row; diagnostics, never fed back.

  Attributes:
    start: `[B, I]` int32 tokens before the iteration.
    num_nodes: `[B, I]` int32 nodes that took part.
    depth: `[B, I]` int32 drafted tokens that the verifier accepted.
    emitted: `[B, I]` int32 tokens emitted, `D`; less than `depth + 1` where the
      text ends inside the accepted path.
  """

  start: jax.Array
  num_nodes: jax.Array
  depth: jax.Array
  emitted: jax.Array


@struct.dataclass
class DecodeState:
  """Everything about rows that are being decoded.

  Attributes:
    tokens: `[B, S]` int32 prompt and output, 0 past the end.
    log_p: `[B, S]` float32 log-probabilities of the output's tokens in nats.
    prompt_lengths: `[B]` int32 tokens of the prompt.
    lengths: `[B]` int32 tokens so far.
    limits: `[B]` int32 most tokens allowed.
    seeds: `[B]` uint32 request seeds.
    is_done: `[B]` bool.
    cache: the verifier's.
    drafter: the drafter's state.
    steps: the iterations so far.
    num_steps: `[B]` int32 their number.
  """

  tokens: jax.Array
  log_p: jax.Array
  prompt_lengths: jax.Array
  lengths: jax.Array
  limits: jax.Array
  seeds: jax.Array
  is_done: jax.Array
  cache: llama_cache.KVCache
  drafter: chex.ArrayTree
  steps: StepInfo
  num_steps: jax.Array


def start(
  prefix: base.Prefix,
  limits: jax.Array,
  drafter_state: chex.ArrayTree,
  max_steps: int,
) -> DecodeState:
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
  return DecodeState(
    tokens=prefix.tokens,
    log_p=jnp.zeros((batch, size)),
    prompt_lengths=prefix.lengths,
    lengths=prefix.lengths,
    limits=limits,
    seeds=prefix.seeds,
    is_done=prefix.lengths >= limits,
    cache=prefix.cache,
    drafter=drafter_state,
    steps=StepInfo(none(), none(), none(), none()),
    num_steps=jnp.zeros(batch, jnp.int32),
  )


@functools.partial(
  jax.jit,
  static_argnames=('drafter', 'num_nodes', 'eos_ids', 'rule'),
  donate_argnames='state',
)
def run(
  params: base.Params,
  state: DecodeState,
  max_steps: int,
  *,
  drafter: base.Drafter,
  num_nodes: int,
  eos_ids: tuple[int, ...],
  rule: str = 'match',
) -> DecodeState:
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
  step_fn: Callable[[DecodeState], DecodeState],
  state: DecodeState,
  max_steps: int,
) -> DecodeState:
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


def emit(
  state: DecodeState,
  tokens: jax.Array,
  log_p: jax.Array,
  num_tokens: jax.Array,
  eos_ids: tuple[int, ...],
) -> tuple[DecodeState, jax.Array]:
  """Appends tokens up to the first that ends the text, or to the limit.

  Args:
    state: the rows.
    tokens: `[B, A]` int32 tokens of one iteration.
    log_p: `[B, A]` their log-probabilities in nats.
    num_tokens: `[B]` int32 how many of them there are; 0 for done rows.
    eos_ids: tokens that end a text; they are appended too.

  Returns:
    The rows with tokens, lengths and `is_done` brought up to date, and the
    number `[B]` of tokens appended.
  """
  order = jnp.arange(tokens.shape[1])
  is_eos = jnp.isin(tokens, jnp.asarray(eos_ids, jnp.int32))
  is_eos &= order < num_tokens[:, None]
  until_eos = jnp.where(
    jnp.any(is_eos, axis=1), jnp.argmax(is_eos, axis=1) + 1, num_tokens
  )
  room = jnp.maximum(state.limits - state.lengths, 0)
  num_tokens = jnp.minimum(until_eos, room)
  is_new = order < num_tokens[:, None]
  rows = jnp.arange(tokens.shape[0])[:, None]
  places = jnp.where(
    is_new, state.lengths[:, None] + order, state.tokens.shape[1]
  )
  put = lambda old, new: old.at[rows, places].set(new, mode='drop')
  lengths = state.lengths + num_tokens
  is_done = jnp.any(is_eos & is_new, axis=1) | (lengths >= state.limits)
  state = state.replace(
    tokens=put(state.tokens, tokens),
    log_p=put(state.log_p, log_p),
    lengths=lengths,
    is_done=state.is_done | is_done,
  )
  return state, num_tokens


def history(params: base.Params, state: DecodeState) -> edits.History | None:
  """Returns what the texts so far are to edits of logits, None without edits.

  Args:
    params: verifier and sampling parameters.
    state: the rows.
  """
  if params.sampling.edits is None:
    return None
  return edits.history(
    state.tokens,
    state.prompt_lengths,
    state.lengths,
    params.verifier.config.vocab_size,
  )


def _iterate(params, state, drafter, num_nodes, eos_ids, rule_fn):
  """One iteration: propose a tree, verify it, commit what was accepted."""
  proposal, drafter_state = drafter.propose(
    params, state.drafter, state.tokens, state.lengths, num_nodes
  )
  verdict, new_kv = verify.verify(
    params,
    proposal,
    state.cache,
    state.seeds,
    ~state.is_done,
    rule_fn,
    history(params, state),
    drafter.features,
  )
  after, emitted = emit(
    state, verdict.tokens, verdict.log_p, verdict.num_accepted, eos_ids
  )
  step = StepInfo(
    start=state.lengths,
    num_nodes=proposal.tree.num_nodes,
    depth=verdict.num_accepted - 1,
    emitted=emitted,
  )
  committed = verdict.replace(num_accepted=emitted)
  return after.replace(
    cache=llama_cache.commit(state.cache, new_kv, verdict.path, emitted),
    drafter=drafter.observe(params, drafter_state, committed),
    steps=_record(state, step),
    num_steps=state.num_steps + ~state.is_done,
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
