"""Slow oracles of decoding: one whole pass for every token, Python loops."""

import heapq

import jax
import jax.numpy as jnp
import numpy as np

from specjax import sampling as sampling_lib
from specjax.llama import cache as llama_cache
from specjax.llama import mask
from specjax.llama import model as llama_model

_log_law = jax.jit(sampling_lib.log_law)
_draw = jax.jit(sampling_lib.draw)


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


def plain(params, prompt, eos_ids, max_new_tokens, max_length, seed, sampling):
  """Decodes one prompt token by token; output ids and log-probabilities."""
  tokens, log_probs = list(prompt), []
  while len(tokens) < min(len(prompt) + max_new_tokens, max_length):
    logits = logits_after(params, tokens)[-1]
    token, log_p = _draw(
      jnp.asarray(logits)[None],
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
