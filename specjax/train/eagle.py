"""Training of an EAGLE-3 head: it drafts along texts, the verifier judges.

Step 1 reads a text as a drafter reads what was committed: every token with the
feature of the token before.  Step `k` drafts one token deeper, from all places
at once.  Its token `i` is a child of token `i - 1` of step `k - 1`: it is read
with the state that the head made of its parent, and sees what its parent saw,
and itself.  So the head learns from states of its own, the only ones that it
has when it drafts ("training-time test").

Source: Y. Li et al., "EAGLE-3", arXiv 2503.01840.
"""

from collections.abc import Sequence

import chex
import flax.struct
import jax
import jax.numpy as jnp

from specjax.llama import cache as llama_cache
from specjax.llama import eagle, layer, mask
from specjax.llama import model as llama_model
from specjax.train import judge, lessons
from specjax.train import step as step_lib


@flax.struct.dataclass
class Frozen:
  """What the head takes from the verifier and does not learn.

  Attributes:
    embed: `[V, E]` vectors of tokens.
    head: `[V_draft, E]` rows of the output matrix.
    token_ids: `[V_draft]` int32, the tokens that they stand for.
  """

  embed: jax.Array
  head: jax.Array
  token_ids: jax.Array


def freeze(verifier: llama_model.Params, token_ids: jax.Array) -> Frozen:
  """Takes from the verifier what the head does not learn.

  Args:
    verifier: the model.
    token_ids: `[V_draft]` what can be drafted.

  Returns:
    Its arrays.
  """
  token_ids = jnp.asarray(token_ids, jnp.int32)
  return Frozen(
    embed=verifier.weights['embed'],
    head=llama_model.head_matrix(verifier)[token_ids],
    token_ids=token_ids,
  )


def init(
  key: jax.Array,
  config: eagle.EagleConfig,
  verifier: llama_model.Params,
  token_ids: jax.Array,
  lesson: lessons.Lesson,
) -> eagle.Params:
  """A head to begin with, as much of it as can be from the verifier.

  Features grow from layer to layer, which would drown the early ones: each
  layer's rows of `fuse` are divided by the usual length of its features.  The
  feed-forward layer is the verifier's last, for the head speaks with the same
  output matrix, and so is the final norm, but at half its height: what the head
  guesses is wrong at first, and should not be said aloud.

  Args:
    key: PRNG key, consumed.
    config: of the head, tied to the verifier's output matrix, and with a
      feed-forward layer as wide.
    verifier: the model.
    token_ids: `[V_draft]` what can be drafted.
    lesson: texts, whose features are looked at.

  Returns:
    The head, in float32; its other matrices are random.
  """
  head = eagle.init_params(key, config, token_ids, jnp.float32)
  rows = jnp.repeat(_usual_lengths(config, lesson), config.layer.width)
  last = jax.tree.map(lambda stack: stack[-1], verifier.weights['layers'])
  taken = {name: last[name] for name in ('ffn_norm', 'gate', 'up', 'down')}
  taken['final_norm'] = verifier.weights['final_norm'] / 2
  taken = jax.tree.map(lambda x: x.astype(jnp.float32), taken)
  fuse = head.weights['fuse'] / rows[:, None]
  weights = {**head.weights, 'fuse': fuse, **taken}
  chex.assert_trees_all_equal_shapes(weights, head.weights)
  return head.replace(weights=weights)


def make_loss(
  config: eagle.EagleConfig, step_weights: Sequence[float]
) -> step_lib.LossFn:
  """Makes the loss of a head: cross-entropy against the verifier's laws.

  With `p` the verifier's law after a token, and `q_k` that of the head after
  the same token as the last of a draft of `k - 1` tokens behind a known one:

    loss = sum over targets and k of
           w_k (- sum of p(v) log q_k(v), v in V_draft)

  `p` is not renormalised in `V_draft`: this is the mean of what tokens drawn
  from `p` would cost if those that cannot be drafted cost nothing, so that a
  place counts by the mass that can be won there.  A draft counts if its tokens
  and the one that it foretells are targets.

  Args:
    config: of the head, tied to the verifier's output matrix.
    step_weights: `w_1 .. w_K`, at least 0; there are `K` steps.

  Returns:
    A loss of the head's weights, of `Frozen` and of a `Lesson`.  Its number of
    targets is weighted like the loss.  Metrics, for each `k`: `loss_k`, nats;
    `accepted_k`, the mean of `sum of min(p, q_k)`, the chance that a token
    drawn from `q_k` stands; `agreed_k`, how often the best tokens of both are
    the same.

  Raises:
    ValueError: a head that is not tied, or no weights that are of use.
  """
  if not config.layer.tie_embeddings:
    raise ValueError(
      'expected a head with tie_embeddings, whose output matrix is not trained'
    )
  if not step_weights or min(step_weights) < 0 or max(step_weights) == 0:
    raise ValueError(
      'expected weights of at least 0 for 1 step or more, not all 0, got '
      f'{tuple(step_weights)}'
    )
  num_steps = len(step_weights)
  w = jnp.asarray(step_weights, jnp.float32)

  def loss_fn(weights, frozen, lesson):
    head = eagle.Params(weights, frozen.token_ids, config)
    hidden = layer.rms_norm(
      unroll(head, frozen.embed, lesson, num_steps),
      weights['final_norm'],
      config.layer.norm_eps,
    )
    answers = judge.Answers(
      lesson.hidden, lesson.log_total, lesson.best, _counts(lesson, num_steps)
    )
    answers, hidden = jax.tree.map(
      lambda x: x.reshape(-1, *x.shape[2:]), (answers, hidden)
    )
    loss, sums = judge.judge(w, frozen.head, frozen.token_ids, answers, hidden)
    numbers = jnp.sum(answers.counts, axis=0, dtype=jnp.float32)
    metrics = {
      f'{name}_{k + 1}': (sums[i, k], numbers[k])
      for i, name in enumerate(('loss', 'accepted', 'agreed'))
      for k in range(num_steps)
    }
    return loss, jnp.sum(w * numbers), metrics

  return loss_fn


def unroll(
  head: eagle.Params, embed: jax.Array, lesson: lessons.Lesson, num_steps: int
) -> jax.Array:
  """Drafts along texts, as deep as asked from every place of them.

  Args:
    head: parameters; its output matrix is not looked at.
    embed: `[V, E]`, of the verifier.
    lesson: the texts.
    num_steps: `K`, how deep.

  Returns:
    `[B, T, K, E]` states after each token, the input of the head's final norm:
    in entry `k`, from 0, after a draft of `k` tokens whose last it is.
  """
  batch, num_tokens = lesson.tokens.shape
  embedded = embed[lesson.tokens]
  is_known = ~lessons.is_first(lesson.documents)
  # What a token sees: nothing yet in the cache, and in its own step the tokens
  # before; of these the first, before which nothing is known, stays closed.
  cache = eagle.empty_cache(head, batch, 1)
  above = jnp.zeros((batch, num_tokens, 1), bool)
  beside = mask.within(lesson.documents) & is_known[:, None]
  only_itself = jnp.broadcast_to(jnp.eye(num_tokens, dtype=bool), beside.shape)
  known = eagle.fuse(head, lessons.of_parents(lesson.features))
  found = []
  for _ in range(num_steps):
    states, new_kv = eagle.forward(
      head, embedded, known, lesson.positions, cache, above, beside
    )
    found.append(states)
    known = lessons.of_parents(states)
    above = lessons.of_parents(jnp.concatenate([above, beside], axis=2))
    beside = only_itself
    cache = llama_cache.KVCache(
      keys=jnp.concatenate([cache.keys, new_kv.keys], axis=-1),
      values=jnp.concatenate([cache.values, new_kv.values], axis=-2),
      length=cache.length,
    )
  return jnp.stack(found, axis=2)


def _counts(lesson, num_steps):
  """`[B, T, K]` bool: which drafts are judged."""
  foretells = jnp.pad(lesson.is_target[:, 1:], [(0, 0), (0, 1)])
  counts = [foretells & ~lessons.is_first(lesson.documents)]
  for _ in range(num_steps - 1):
    counts.append(foretells & lessons.of_parents(counts[-1]))
  return jnp.stack(counts, axis=2)


def _usual_lengths(config, lesson):
  """`[F]`: the median over tokens of each feature's root mean square."""
  by_layer = lesson.features.reshape(
    *lesson.features.shape[:2], len(config.features), -1
  ).astype(jnp.float32)
  lengths = jnp.sqrt(jnp.mean(by_layer**2, axis=-1))
  # First tokens have features of another size, which would spoil a mean.
  is_text = lesson.documents[..., None] > 0
  return jnp.nanmedian(jnp.where(is_text, lengths, jnp.nan), axis=(0, 1))
