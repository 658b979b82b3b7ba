"""Drafts judged by the verifier's laws: cross-entropy, and what would stand.

Laws are wide.  They are made for a few places at a time, where a draft counts,
and the gradient is found with the loss, so that they are neither kept nor made
a second time.
"""

import functools

import chex
import flax.struct
import jax
import jax.numpy as jnp
from jax import lax

from specjax.llama import linear

# Places whose laws are there at a time.
_CHUNK = 64


@flax.struct.dataclass
class Answers:
  """What the verifier says at places, and which of `K` drafts count there.

  Attributes:
    hidden: `[..., E]`, the input of its head.
    log_total: `[...]` float32, log of the sum of `e^logits` over all tokens.
    best: `[...]` int32, its most probable token.
    counts: `[..., K]` bool.
  """

  hidden: jax.Array
  log_total: jax.Array
  best: jax.Array
  counts: jax.Array


def judge(
  w: jax.Array,
  head: jax.Array,
  token_ids: jax.Array,
  answers: Answers,
  hidden: jax.Array,
) -> tuple[jax.Array, jax.Array]:
  """The loss of drafts, with its gradient with respect to `hidden` alone.

  With `p` the verifier's law at a place and `q_k` that of its `k`-th draft:

    loss = sum over what counts of w_k (- sum of p(v) log q_k(v), v in V_draft)

  Args:
    w: `[K]` float32, weights.
    head: `[V_draft, E]` rows of the output matrix.
    token_ids: `[V_draft]` int32, the tokens that they stand for.
    answers: of the verifier, at `M` places.
    hidden: `[M, K, E]` of the drafts, normalised.

  Returns:
    loss: `[]` in nats.
    sums: `[3, K]` over what counts: unweighted losses; `sum of min(p, q_k)`,
      the chance that a token drawn from `q_k` stands; whether the best tokens
      of both are the same.
  """
  chex.assert_shape(hidden, (*answers.counts.shape, head.shape[1]))
  order = _busy_first(answers.counts)
  chunks = jax.tree.map(lambda x: _take(x, order), answers)
  return _judge(w, head, token_ids, chunks, _take(hidden, order))


@jax.custom_vjp
def _judge(w, head, token_ids, chunks, hidden):
  fn = functools.partial(_judge_chunk, w, head, token_ids)
  losses, sums = _map_busy(fn, chunks, hidden)
  return jnp.sum(losses), jnp.sum(sums, axis=0)


def _forward(w, head, token_ids, chunks, hidden):
  fn = functools.partial(_judge_chunk, w, head, token_ids)
  fn = jax.value_and_grad(fn, argnums=1, has_aux=True)
  (losses, sums), gradient = _map_busy(fn, chunks, hidden)
  return (jnp.sum(losses), jnp.sum(sums, axis=0)), gradient


def _backward(gradient, cotangents):
  return None, None, None, None, cotangents[0] * gradient


_judge.defvjp(_forward, _backward)


def _judge_chunk(w, head, token_ids, answers, hidden):
  """Loss and sums of the places of one chunk."""
  p = jnp.exp(
    linear.matmul_rows(answers.hidden.astype(hidden.dtype), head)
    - answers.log_total[:, None]
  )
  log_q = jax.nn.log_softmax(linear.matmul_rows(hidden, head))
  losses = -jnp.einsum('cv,ckv->ck', p, log_q)
  stands = jnp.sum(jnp.minimum(p[:, None], jnp.exp(log_q)), axis=2)
  agrees = token_ids[jnp.argmax(log_q, axis=2)] == answers.best[:, None]
  found = jnp.stack([losses, stands, agrees.astype(jnp.float32)])
  sums = jnp.sum(jnp.where(answers.counts, found, 0), axis=1)
  return jnp.sum(w * sums[0]), sums


def _map_busy(fn, chunks, hidden):
  """Maps over chunks; one where nothing counts gives zeros unseen."""
  shapes = jax.eval_shape(fn, *jax.tree.map(lambda x: x[0], (chunks, hidden)))
  zeros = lambda *_: jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), shapes)
  return lax.map(
    lambda chunk: lax.cond(jnp.any(chunk[0].counts), fn, zeros, *chunk),
    (chunks, hidden),
  )


def _busy_first(counts):
  """`[chunks, _CHUNK]` numbers of places, past the last for none."""
  is_idle = ~jnp.any(counts, axis=1)
  padding = (0, -len(is_idle) % _CHUNK)
  order = jnp.pad(jnp.argsort(is_idle), padding, constant_values=len(is_idle))
  return order.reshape(-1, _CHUNK)


def _take(x, order):
  """Rows of `x` by number, 0 where there is none."""
  fill = False if x.dtype == bool else 0
  return jnp.take(x, order, axis=0, mode='fill', fill_value=fill)
