"""Texts by speculation on small laws of a real model, and a test of their law.

A context is restricted to its most probable tokens.  After it, and after each
of them, verifier and drafter have a law over them.  With these laws texts are
made by the drafters and rules of the library, iteration by iteration: a token
is followed by what the model says after context and token, wherever it stands.
"""

import functools
import types
from collections.abc import Sequence
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
from scipy import stats

from specjax import sampling as sampling_lib
from specjax.decode import prefill, rules
from specjax.decode import trial as trial_lib
from specjax.draft import base, filled
from specjax.draft import reader as reader_lib
from specjax.llama import model as llama_model
from specjax.trees import grow, shapes

# Tokens of a text that are counted.
LENGTH = 2

# Cells of fewer expected texts are joined: many small ones would hide what a
# few large ones show.
_LEAST_EXPECTED = 200

_NUM_NODES = 7


class Laws(NamedTuple):
  """A context's laws over `V` tokens, in nats.

  Attributes:
    log_p: `[V + 1, V]` the verifier's after each token, the last one after the
      context itself.
    log_q: `[V + 1, V]` the drafter's.
  """

  log_p: jax.Array
  log_q: jax.Array


def read(
  verifier: llama_model.Params,
  reader: reader_lib.Reader,
  drafter_params: chex.ArrayTree,
  ids: Sequence[Sequence[int]],
  num_tokens: int,
) -> dict[str, np.ndarray]:
  """Reads the laws of contexts, restricted to their most probable tokens.

  Args:
    verifier: the model.
    reader: the model that drafts.
    drafter_params: what it takes.
    ids: `C` contexts as token ids.
    num_tokens: `V` tokens that are kept of each.

  Returns:
    `log_p [C, V + 1, V]` and `log_q [C, V + 1, V]`, as in `Laws`, and `tokens
    [C, V]`, by falling probability after the context.
  """
  [batch] = prefill.read_prompts(
    verifier, ids, max_new_tokens=1, batch_size=len(ids)
  )
  params = base.Params(verifier, drafter_params, batch.sampling)
  log_p, tokens = _read_two_levels(
    reader_lib.verifier(), params, batch.prefix, num_tokens
  )
  log_q, _ = _read_two_levels(reader, params, batch.prefix, num_tokens, tokens)
  return {
    'log_p': np.asarray(log_p),
    'log_q': np.asarray(log_q),
    'tokens': np.asarray(tokens),
  }


@functools.partial(jax.jit, static_argnames=('reader', 'num_tokens'))
def _read_two_levels(reader, params, prefix, num_tokens, tokens=None):
  """Reads a context's last token, then tokens that may follow it.

  Returns:
    Laws `[C, V + 1, V]` over the tokens, and the tokens, by default the most
    probable ones.
  """
  rows = prefix.lengths.shape[0]
  num_slots = 1 + num_tokens
  full = lambda width, value: jnp.full((rows, width), value, jnp.int32)
  memory = reader.init(params, prefix, num_slots)
  root = grow.Nodes(
    tokens=base.last_tokens(prefix.tokens, prefix.lengths)[:, None],
    depths=full(1, 0),
    slots=full(1, 0),
    parent_slots=full(1, grow.NO_SLOT),
    above=jnp.zeros((rows, 1, num_slots), bool),
  )
  at_root, memory = reader.read(params, memory, root)
  if tokens is None:
    tokens = jax.lax.top_k(at_root[:, 0], num_tokens)[1]
  is_root = jnp.arange(num_slots) == 0
  children = grow.Nodes(
    tokens=tokens,
    depths=full(num_tokens, 1),
    slots=jnp.broadcast_to(1 + jnp.arange(num_tokens), tokens.shape),
    parent_slots=full(num_tokens, 0),
    above=jnp.broadcast_to(is_root, (rows, num_tokens, num_slots)),
  )
  below, _ = reader.read(params, memory, children)
  logits = jnp.concatenate([below, at_root], axis=1)
  kept = jnp.take_along_axis(logits, tokens[:, None], axis=2)
  return jax.nn.log_softmax(kept), tokens


def told_off(log_q: jax.Array, error: float) -> jax.Array:
  """Returns laws of which a part went to their most probable token.

  `(1 - error) q + error [most probable]`, so that every other token's
  probability is too small by that share.

  Args:
    log_q: `[..., V]`.
    error: the part, in [0, 1).
  """
  best = jax.nn.one_hot(jnp.argmax(log_q, axis=-1), log_q.shape[-1])
  return jnp.log((1 - error) * jnp.exp(log_q) + error * best)


@functools.partial(jax.jit, static_argnames=('rule', 'num_texts'))
def sample(
  laws: Laws, told: jax.Array, rule: str, num_texts: int, seed: int
) -> jax.Array:
  """Makes texts by speculation, all of them together.

  Args:
    laws: of the context.
    told: `[V + 1, V]` what the rule takes for the laws that drafts were drawn
      from; `laws.log_q` if nobody lies.
    rule: name of the verification rule.
    num_texts: how many.
    seed: of the first text; the others' follow.

  Returns:
    `[num_texts, LENGTH]` int32 tokens.
  """
  seeds = jnp.uint32(seed) + jnp.arange(num_texts, dtype=jnp.uint32)
  vocab_size = laws.log_p.shape[1]

  def iterate(carry):
    tokens, lengths = carry
    proposal = _propose(laws.log_q, rule, tokens, lengths, seeds)
    at = proposal.tree.tokens
    laws_fn = lambda nodes: sampling_lib.Laws(
      *[laws.log_p[sampling_lib.at(at, nodes)]] * 2
    )
    proposal = proposal.replace(log_q_full=told[at])
    everywhere = jnp.ones(num_texts, bool)
    path = rules.named(rule)(
      trial_lib.Trial(
        proposal,
        laws_fn,
        lambda nodes, depth: sampling_lib.draw_from(
          laws_fn(nodes), seeds, lengths + depth
        ),
        seeds,
        lengths,
        everywhere,
      )
    )
    order = jnp.arange(_NUM_NODES)
    places = jnp.where(
      order < path.length[:, None], lengths[:, None] + order, tokens.shape[1]
    )
    rows = jnp.arange(num_texts)[:, None]
    tokens = tokens.at[rows, places].set(path.tokens, mode='drop')
    return tokens, lengths + path.length

  # The context stands as one token, whose number is past the vocabulary.
  tokens = jnp.zeros((num_texts, 1 + LENGTH + _NUM_NODES), jnp.int32)
  tokens, _ = jax.lax.while_loop(
    lambda carry: jnp.any(carry[1] <= LENGTH),
    iterate,
    (tokens.at[:, 0].set(vocab_size), jnp.ones(num_texts, jnp.int32)),
  )
  return tokens[:, 1 : 1 + LENGTH]


def chi_square(laws: Laws, texts: np.ndarray) -> tuple[float, int]:
  """Compares texts with the verifier's law.

  `sum of (found - expected)^2 / expected` over cells of texts, which in their
  order are joined until each expects 200 texts.

  Args:
    laws: of the context.
    texts: `[num_texts, LENGTH]`.

  Returns:
    The statistic and its degrees of freedom.
  """
  p = np.exp(np.asarray(laws.log_p, float))
  expected = p[-1][:, None] * p[:-1]
  expected *= len(texts) / expected.sum()
  found = np.zeros_like(expected)
  np.add.at(found, tuple(texts.T), 1)
  cells = _joined(expected.ravel())
  expected = np.bincount(cells, expected.ravel())
  found = np.bincount(cells, found.ravel())
  statistic = np.sum((found - expected) ** 2 / expected)
  return float(statistic), len(expected) - 1


def p_value(parts: Sequence[tuple[float, int]]) -> float:
  """Returns the probability of so large a sum of statistics by chance.

  Args:
    parts: statistic and degrees of freedom of independent comparisons.
  """
  return float(stats.chi2.sf(*np.sum(parts, axis=0)))


def _propose(log_q, rule, tokens, lengths, seeds):
  """Draws the drafts of all texts from a table of laws."""
  shape_fn = shapes.chain if rule == 'block' else _binary
  replace = rule == 'with_replacement'
  drafter = filled.drawn(_table_reader(), shape_fn, _NUM_NODES, replace)
  # Of the verifier a drafter wants to know the vocabulary alone.
  config = types.SimpleNamespace(vocab_size=log_q.shape[1])
  verifier = types.SimpleNamespace(config=config)
  params = base.Params(verifier, log_q, sampling_lib.make(len(seeds)))
  state = drafter.init(params, base.Prefix(tokens, lengths, seeds, None))
  return drafter.propose(params, state, tokens, lengths, _NUM_NODES)[0]


def _binary(num_nodes):
  return shapes.k_ary(num_nodes, 2)


@functools.cache
def _table_reader():
  """A model whose law depends on the last token; `params.drafter` has it."""
  return reader_lib.Reader(
    init=lambda params, prefix, num_slots: (),
    read=lambda params, memory, nodes: (params.drafter[nodes.tokens], memory),
    keep=lambda params, memory, accepted, num_slots: memory,
  )


def _joined(expected):
  """Returns `[n]` rising numbers of cells that expect enough each."""
  cells, cell, total = np.zeros(len(expected), int), 0, 0.0
  for place, part in enumerate(expected):
    if total >= _LEAST_EXPECTED:
      cell, total = cell + 1, 0.0
    cells[place] = cell
    total += part
  # What is left at the end joins the last cell that has enough.
  return np.minimum(cells, max(cell - (total < _LEAST_EXPECTED), 0))
