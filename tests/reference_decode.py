"""Slow oracles of decoding: one whole pass for every token, Python loops."""

import heapq

import jax
import jax.numpy as jnp
import numpy as np

from specjax import sampling as sampling_lib
from specjax.draft import base
from specjax.llama import cache as llama_cache
from specjax.llama import mask
from specjax.llama import model as llama_model
from specjax.trees import shapes
from specjax.trees import tree as tree_lib

_log_law = jax.jit(sampling_lib.log_law)
_draw = jax.jit(sampling_lib.draw)


def slow_law(logits, temperature, top_k, top_p, min_p):
  """One law in float64 by sorting, written to be read."""
  logits = np.asarray(logits, np.float64)
  if temperature == 0:
    law = np.zeros(len(logits))
    law[np.argmax(logits)] = 1
    return law
  p = np.exp((logits - logits.max()) / temperature)
  if top_k:
    p[p < np.sort(p)[::-1][min(top_k, len(p)) - 1]] = 0
  p /= p.sum()
  if top_p < 1:
    falling = np.sort(p)[::-1]
    last = np.searchsorted(np.cumsum(falling), top_p)
    p[p < falling[min(last, len(p) - 1)]] = 0
  p[p < min_p * p.max()] = 0
  return p / p.sum()


def logits_after(params, tokens):
  """Logits `[T, V]` after every token, in one causal pass and no cache.

  Tokens are padded to a multiple of 16, so that few shapes are compiled.
  """
  size = -(-len(tokens) // 16) * 16
  padded = np.zeros((1, size), np.int32)
  padded[0, : len(tokens)] = tokens
  return np.asarray(_all_logits(params, padded))[0, : len(tokens)]


@jax.jit
def _all_logits(params, tokens):
  cache = llama_cache.init(params.config, 1, 1, jnp.float32)
  positions = jnp.arange(tokens.shape[1])[None]
  hidden, _, _ = llama_model.forward(
    params,
    tokens,
    positions,
    cache,
    mask.committed(cache.length, 1),
    mask.causal(tokens.shape[1]),
  )
  return llama_model.head(params, hidden)


def plain(
  params,
  prompt,
  eos_ids,
  max_new_tokens,
  max_length,
  seed,
  sampling,
  edit_fn=lambda logits, output: logits,
):
  """Decodes one prompt token by token; output ids and log-probabilities."""
  tokens, log_probs = list(prompt), []
  while len(tokens) < min(len(prompt) + max_new_tokens, max_length):
    logits = logits_after(params, tokens)[-1]
    logits = edit_fn(logits, tokens[len(prompt) :])
    token, log_p = _draw(
      jnp.asarray(logits, jnp.float32)[None],
      sampling,
      jnp.uint32([seed]),
      jnp.int32([len(tokens)]),
    )
    tokens.append(int(token[0]))
    log_probs.append(float(log_p[0]))
    if tokens[-1] in eos_ids:
      break
  return tokens[len(prompt) :], log_probs


def best_continuations(params, context, sampling, num_nodes, eos_ids):
  """The most probable continuations, by a heap and whole passes.

  Returns:
    A list of (log-probability, continuation as a tuple), the empty one first.
  """
  queue, found = [(0.0, ())], []
  while queue and len(found) < num_nodes:
    cost, words = heapq.heappop(queue)
    found.append((-cost, words))
    logits = logits_after(params, [*context, *words])[-1]
    law = np.asarray(_log_law(jnp.asarray(logits)[None], sampling))[0]
    for token, log_p in enumerate(law):
      if token not in eos_ids and np.isfinite(log_p):
        heapq.heappush(queue, (cost - float(log_p), (*words, token)))
  return found


def words_of(tree, row=0):
  """The continuation that each present node of a tree stands for."""
  tokens, parents = np.asarray(tree.tokens), np.asarray(tree.parents)
  words = []
  for node in range(int(np.asarray(tree.num_nodes)[row])):
    if node == 0:
      words.append(())
    else:
      assert parents[row, node] < node
      words.append((*words[parents[row, node]], int(tokens[row, node])))
  return words


def longest(words, text):
  """The longest of a tree's words that a text goes on with."""
  fits = [w for w in words if tuple(text[: len(w)]) == w]
  return max(fits, key=len)


def cut(text, eos_ids, num_tokens):
  """A text up to its first end or to its limit, whichever comes first."""
  for place, token in enumerate(text[:num_tokens]):
    if token in eos_ids:
      return text[: place + 1]
  return text[:num_tokens]


def comb(num_nodes):
  """The shape 0, (1, 2), 2's children (3, 4), 4's children (5, 6), ...

  Its longest path takes every other node.
  """
  nodes = np.arange(num_nodes)
  parents = (nodes - 1) // 2 * 2
  parents[0] = tree_lib.NO_PARENT
  ranks = (nodes - 1) % 2
  ranks[0] = 0
  return shapes.Shape(parents.astype(np.int32), ranks.astype(np.int32))


# Which child of a comb is right, by position; -1 for none.
_RIGHT = np.array([1, 1, 1, 0, -1])


def planted(vocab_size):
  """A drafter that has read the texts, and errs at fixed positions.

  Its `params.drafter` are the texts `[V, S]` by their first token.
  """

  def propose(params, tokens, lengths, num_nodes):
    shape = comb(num_nodes)
    places = lengths[:, None] - 1 + shape.depths
    truth = jnp.take_along_axis(
      params.drafter[tokens[:, 0]], places, axis=1, mode='clip'
    )
    right = jnp.asarray(_RIGHT)[places % len(_RIGHT)]
    wrong_by = jnp.where(shape.depths > 0, shape.ranks - right, 0)
    batch = (tokens.shape[0], num_nodes)
    return base.Proposal(
      tree_lib.Tree(
        tokens=(truth + wrong_by) % vocab_size,
        parents=jnp.broadcast_to(shape.parents, batch),
        log_q=jnp.zeros(batch),
        num_nodes=jnp.full(batch[0], num_nodes),
      )
    )

  return base.stateless(propose)


def spy(drafter, num_nodes):
  """The same drafter, whose state is (its own, last trees, last verdict)."""

  def init(params, prefix):
    batch = prefix.lengths.shape[0]
    ints = jnp.zeros((batch, num_nodes), jnp.int32)
    floats, count = jnp.zeros((batch, num_nodes)), jnp.zeros(batch, jnp.int32)
    tree = tree_lib.Tree(ints, ints, floats, count)
    verdict = base.Verdict(ints, ints, floats, count)
    return drafter.init(params, prefix), tree, verdict

  def propose(params, state, *context):
    proposal, own = drafter.propose(params, state[0], *context)
    return proposal, (own, proposal.tree)

  def observe(params, state, verdict):
    own, tree = state
    return drafter.observe(params, own, verdict), tree, verdict

  return base.Drafter(init, propose, observe)
