"""What a drafter's laws are along the verifier's own texts.

A model that drafts is led along a text a token at a time, as a decoder would
whose drafts are never accepted, and its law of the next token is held against
the verifier's.  That is the law which its trees have at their root; a head that
goes on from states of its own may err more below.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from experiments import drafters, measure
from specjax import sampling as sampling_lib
from specjax.decode import prefill
from specjax.draft import base, filled
from specjax.llama import model as llama_model
from specjax.theory import drafting
from specjax.trees import shapes

# The most probable tokens of each law, whose probabilities are kept.
NUM_SAID = 16

# The root, and a draft for which its law is wanted.
_NUM_NODES = 2


def along(
  verifier: llama_model.Params,
  model: drafters.DraftModel,
  batch: prefill.Batch,
  texts: measure.Arrays,
  num_places: int,
) -> measure.Arrays:
  """Compares the laws at every place of texts.

  Args:
    verifier: the model, whose law p is that of the texts' sampling parameters.
    model: the drafter, whose law q is the one that its trees are ranked by: at
      the same temperature, at 1 for greedy texts, and without filters.
    batch: the prompts, read with the features that the drafter wants.
    texts: what `measure.plain_texts` returned, `[R, >= T]`.
    num_places: places `T`.

  Returns:
    The fields of `drafting.CrossMoments` and `divergence`, in nats the sum of
    `p log(p / q)` over the tokens that q can draft, which is `KL(p||q)` if
    those are all; `[R, T]` each.  Of the `K` most probable tokens of q `said`,
    their probabilities, and `is_next`, whether the text goes on with one, `[R,
    T, K]`.  Of no meaning past the end of a text.
  """
  probe = filled.drawn(model.reader, shapes.chain, _NUM_NODES, False)
  lengths = batch.prefix.lengths
  temperature = batch.sampling.temperature
  sampling = sampling_lib.make(len(lengths)).replace(
    temperature=jnp.where(temperature == 0, 1.0, temperature)
  )
  params = base.Params(verifier, model.params, sampling)
  num_rows = len(texts['num_tokens'])
  num_tokens = jnp.zeros_like(lengths).at[:num_rows].set(texts['num_tokens'])
  found = _along(
    params,
    batch.sampling,
    probe.init(params, batch.prefix),
    jnp.asarray(measure.whole_texts(batch, texts)),
    lengths,
    num_tokens,
    probe=probe,
    num_places=num_places,
  )
  return {k: np.asarray(v)[:num_rows] for k, v in found.items()}


@functools.partial(jax.jit, static_argnames=('probe', 'num_places'))
def _along(
  params,
  verifier_sampling,
  state,
  tokens,
  prompt_lengths,
  num_tokens,
  *,
  probe,
  num_places,
):
  """Returns the arrays of `along` for all rows of a batch."""
  batch, size = tokens.shape
  hidden, features, _ = llama_model.read(
    params.verifier, tokens, jnp.full(batch, size), size, probe.features
  )
  at = jax.vmap(lambda row, i: row[jnp.minimum(i, size - 1)])

  def step(state, place):
    lengths = prompt_lengths + place
    proposal, state = probe.propose(params, state, tokens, lengths, _NUM_NODES)
    log_q = proposal.log_q_full[:, 0]
    logits = llama_model.head(params.verifier, at(hidden, lengths - 1))
    log_p = sampling_lib.log_law(logits, verifier_sampling)
    following = at(tokens, lengths)
    root = base.Verdict(
      path=jnp.zeros((batch, 1), jnp.int32),
      tokens=following[:, None],
      log_p=jnp.zeros((batch, 1)),
      num_accepted=(place < num_tokens).astype(jnp.int32),
      features=at(features, lengths - 1)[:, None] if probe.features else None,
    )
    state = probe.observe(params, state, root)
    return state, _compare(log_p, log_q, following)

  _, found = lax.scan(step, state, jnp.arange(num_places))
  return {k: jnp.moveaxis(v, 0, 1) for k, v in found.items()}


def _compare(log_p, log_q, following):
  """Returns what is kept of pairs of laws `[B, V]` and of the next tokens."""
  is_common = ~jnp.isneginf(log_p) & ~jnp.isneginf(log_q)
  gap = jnp.where(is_common, log_p - log_q, 0.0)
  said, best = lax.top_k(log_q, min(NUM_SAID, log_q.shape[-1]))
  return {
    **drafting.cross_moments(log_p, log_q)._asdict(),
    'divergence': jnp.sum(jnp.exp(log_p) * gap, axis=-1),
    'said': jnp.exp(said),
    'is_next': best == following[:, None],
  }
