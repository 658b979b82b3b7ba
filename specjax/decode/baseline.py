"""Plain decoding, one token a pass: what every other way has to equal."""

import functools

import jax.numpy as jnp

from specjax import programs
from specjax import sampling as sampling_lib
from specjax.decode import loop
from specjax.decode import rows as rows_lib
from specjax.draft import base
from specjax.llama import cache as llama_cache
from specjax.llama import mask
from specjax.llama import model as llama_model


@functools.partial(
  programs.jit, static_argnames='eos_ids', donate_argnames='state'
)
def run(
  params: base.Params,
  state: rows_lib.DecodeState,
  max_steps: int,
  *,
  eos_ids: tuple[int, ...],
) -> rows_lib.DecodeState:
  """Decodes token by token until all rows are done or `max_steps` are taken.

  Args:
    params: verifier and sampling parameters; the drafter's are not looked at.
    state: the rows; donated.
    max_steps: most tokens of a row in this call.  Results do not depend on how
      a run is cut into calls.
    eos_ids: tokens that end a text.

  Returns:
    The rows after the last token.
  """
  return loop.repeat(
    lambda state: _step(params, state, eos_ids), state, max_steps
  )


def _step(params, state, eos_ids):
  """Reads the last token of each row and draws the next."""
  hidden, _, new_kv = llama_model.forward(
    params.verifier,
    base.last_tokens(state.tokens, state.lengths)[:, None],
    state.cache.length[:, None],
    state.cache,
    mask.committed(state.cache.length, state.cache.num_slots),
    jnp.ones((1, 1, 1), bool),
  )
  tokens, log_p = sampling_lib.draw(
    llama_model.head(params.verifier, hidden[:, 0]),
    params.sampling,
    state.seeds,
    state.lengths,
    rows_lib.history(params, state),
  )
  is_running = (~state.is_done).astype(jnp.int32)
  after, emitted = rows_lib.emit(
    state, tokens[:, None], log_p[:, None], is_running, eos_ids
  )
  path = jnp.zeros((tokens.shape[0], 1), jnp.int32)
  return after.replace(
    cache=llama_cache.commit(state.cache, new_kv, path, emitted),
    num_steps=state.num_steps + is_running,
  )
