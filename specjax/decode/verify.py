"""Verification of draft trees: one pass of the verifier, one walk.

Sample and match: after each node of the way the verifier's own token is drawn,
under the noise of its position.  A child that carries that token is accepted
and the walk goes on there; if there is none, the token is the bonus token.
Whatever the tree, the tokens are those that plain decoding would draw.
"""

import jax
import jax.numpy as jnp

from specjax import sampling as sampling_lib
from specjax.draft import base
from specjax.llama import cache as llama_cache
from specjax.llama import mask
from specjax.llama import model as llama_model
from specjax.trees import tree as tree_lib


def verify(
  params: base.Params,
  trees: tree_lib.Tree,
  cache: llama_cache.KVCache,
  seeds: jax.Array,
  active: jax.Array,
) -> tuple[base.Verdict, llama_cache.NewKV]:
  """Runs a batch of trees through the verifier and follows its tokens.

  Args:
    params: verifier and sampling parameters.
    trees: trees with a leading axis `[B]`; their roots stand at position
      `cache.length`.
    cache: the verifier's, of everything before the roots.
    seeds: `[B]` uint32 request seeds.
    active: `[B]` bool; other rows emit nothing.

  Returns:
    The verdict, and keys and values of all nodes.
  """
  hidden, new_kv = tree_pass(params.verifier, trees, cache)

  def sample_fn(nodes, depth):
    rows = jnp.take_along_axis(hidden, nodes[:, None, None], axis=1)[:, 0]
    logits = llama_model.head(params.verifier, rows)
    return sampling_lib.draw(
      logits, params.sampling, seeds, cache.length + 1 + depth
    )

  path = tree_lib.walk(trees, sample_fn, active)
  verdict = base.Verdict(path.nodes, path.tokens, path.extra, path.length)
  return verdict, new_kv


def tree_pass(
  verifier: llama_model.Params,
  trees: tree_lib.Tree,
  cache: llama_cache.KVCache,
) -> tuple[jax.Array, llama_cache.NewKV]:
  """Runs all nodes of a batch of trees at once.

  A node stands at its depth past the root and attends to the cache and to its
  own branch: its logits are those of the branch run as a chain.

  Args:
    verifier: the model.
    trees: trees with a leading axis `[B]`.
    cache: of everything before the roots.

  Returns:
    Hidden states `[B, N, E]`, and keys and values of all nodes.
  """
  depths = jax.vmap(tree_lib.depth)(trees.parents)
  hidden, _, new_kv = llama_model.forward(
    verifier,
    trees.tokens,
    cache.length[:, None] + depths,
    cache,
    mask.committed(cache.length, cache.num_slots),
    jax.vmap(tree_lib.ancestors)(trees.parents),
  )
  return hidden, new_kv
