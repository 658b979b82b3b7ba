"""Verification of draft trees: one pass of the verifier, one walk."""

import jax
import jax.numpy as jnp

from specjax import edits as edits_lib
from specjax import sampling as sampling_lib
from specjax.decode import rules
from specjax.decode import trial as trial_lib
from specjax.draft import base
from specjax.llama import cache as llama_cache
from specjax.llama import mask
from specjax.llama import model as llama_model
from specjax.trees import tree as tree_lib

# The head runs at all nodes of a batch at once where there are no more: its
# matrix is then read once, not once for every token of an iteration.
_AT_ONCE = 4


def verify(
  params: base.Params,
  proposal: base.Proposal,
  cache: llama_cache.KVCache,
  seeds: jax.Array,
  active: jax.Array,
  rule: rules.Rule = rules.match,
  history: edits_lib.History | None = None,
  features: tuple[int, ...] = (),
) -> tuple[base.Verdict, llama_cache.NewKV]:
  """Runs a batch of trees through the verifier and follows a rule.

  Args:
    params: verifier and sampling parameters.
    proposal: trees whose roots stand at position `cache.length`.
    cache: the verifier's, of everything before the roots.
    seeds: `[B]` uint32 request seeds.
    active: `[B]` bool; other rows emit nothing.
    rule: which drafts are accepted, and the token after them.
    history: what the texts are up to the roots and with them; wanted where the
      sampling parameters have edits.
    features: layers whose inputs the drafter wants to know.

  Returns:
    The verdict, and keys and values of all nodes.

  Raises:
    ValueError: what the rule refuses, or edits without a history.
  """
  trees = proposal.tree
  hidden, taken, new_kv = tree_pass(params.verifier, trees, cache, features)

  logits_fn = _logits_fn(params.verifier, hidden)
  starts = cache.length + 1
  branch = lambda nodes: (
    None if history is None else _branch(history, trees, nodes)
  )
  laws_fn = lambda nodes: sampling_lib.laws(
    logits_fn(nodes), params.sampling, branch(nodes)
  )
  token_fn = lambda nodes, depth: sampling_lib.draw(
    logits_fn(nodes), params.sampling, seeds, starts + depth, branch(nodes)
  )
  path = rule(
    trial_lib.Trial(proposal, laws_fn, token_fn, seeds, starts, active)
  )
  on_path = lambda x: jnp.take_along_axis(
    x, path.nodes[:, :, None, None], axis=1
  )
  verdict = base.Verdict(
    path=path.nodes,
    tokens=path.tokens,
    log_p=path.extra,
    num_accepted=path.length,
    features=on_path(taken) if features else None,
  )
  return verdict, new_kv


def is_at_once(batch: int, num_nodes: int) -> bool:
  """Whether the head runs at all nodes at once, not at those of the path alone.

  Args:
    batch: `B` rows.
    num_nodes: `N` of each.
  """
  return batch * num_nodes <= _AT_ONCE


def tree_pass(
  verifier: llama_model.Params,
  trees: tree_lib.Tree,
  cache: llama_cache.KVCache,
  features: tuple[int, ...] = (),
) -> tuple[jax.Array, jax.Array, llama_cache.NewKV]:
  """Runs all nodes of a batch of trees at once.

  A node stands at its depth past the root and attends to the cache and to its
  own branch: its logits are those of the branch run as a chain.

  Args:
    verifier: the model.
    trees: trees with a leading axis `[B]`.
    cache: of everything before the roots.
    features: layers whose inputs are returned.

  Returns:
    Hidden states `[B, N, E]`, features `[B, N, len(features), E]`, and keys and
    values of all nodes.
  """
  depths = jax.vmap(tree_lib.depth)(trees.parents)
  return llama_model.forward(
    verifier,
    trees.tokens,
    cache.length[:, None] + depths,
    cache,
    mask.committed(cache.length, cache.num_slots),
    jax.vmap(tree_lib.ancestors)(trees.parents),
    features,
  )


def _logits_fn(verifier, hidden):
  """From one node of each row, `[B]`, to the logits after it, `[B, V]`."""
  at = lambda x, nodes: jnp.take_along_axis(x, nodes[:, None, None], axis=1)[
    :, 0
  ]
  if is_at_once(*hidden.shape[:2]):
    logits = llama_model.head(verifier, hidden)
    return lambda nodes: at(logits, nodes)
  return lambda nodes: llama_model.head(verifier, at(hidden, nodes))


def _branch(history, trees, nodes):
  """The histories after one node of each row: the nodes of its branch too."""
  above = jax.vmap(tree_lib.ancestors)(trees.parents)
  is_new = jnp.take_along_axis(above, nodes[:, None, None], axis=1)[:, 0]
  # The root is the last token of the text and has been counted.
  is_new = is_new.at[:, tree_lib.ROOT].set(False)
  return edits_lib.extend(history, trees.tokens, is_new)
