"""Prompt lookup: what followed where the text so far said the same.

The last few tokens are searched in everything before them.  Each of the best
matches (longest, then latest) proposes the tokens that followed it, and the
continuations are merged into one tree: those that agree share their nodes, and
the tree branches where they part.
"""

import functools

import jax
import jax.numpy as jnp

from specjax.draft import base
from specjax.trees import grow

# Weight of a match that is longer by one token, and what a further level of
# depth costs (nats).  They decide between a deep tree and a wide one.
_WEIGHT_PER_TOKEN = 3.0
_COST_PER_LEVEL = 0.2


@functools.cache
def make(max_match: int = 4, num_matches: int = 8) -> base.Drafter:
  """Returns the prompt-lookup drafter.

  Args:
    max_match: longest match that is told from shorter ones, in tokens.
    num_matches: how many matches may propose.

  Raises:
    ValueError: an argument below 1.
  """
  if max_match < 1 or num_matches < 1:
    raise ValueError(
      'expected max_match and num_matches >= 1, got '
      f'{max_match} and {num_matches}'
    )

  def propose(params, tokens, lengths, num_nodes):
    del params
    grow_fn = _row_fn(tokens, num_nodes, max_match, num_matches)
    return base.Proposal(jax.vmap(grow_fn)(tokens, lengths)[0])

  return base.stateless(propose)


def match_lengths(
  tokens: jax.Array,
  lengths: jax.Array,
  num_nodes: int,
  max_match: int = 4,
  num_matches: int = 8,
) -> jax.Array:
  """Returns `[B, N]` int32: how many tokens matched behind each drafted node.

  The longest of the matches that go on as the node's path does, so it never
  rises along a path; 0 at the root and at absent nodes.

  Args:
    tokens: `[B, S]` int32.
    lengths: `[B]` int32 tokens of each row that count.
    num_nodes: `N` of the trees that `make(max_match, num_matches)` proposes
      for these rows.
    max_match: as for `make`.
    num_matches: as for `make`.
  """
  grow_fn = _row_fn(tokens, num_nodes, max_match, num_matches)
  return jax.vmap(grow_fn)(tokens, lengths)[1]


def _row_fn(tokens, num_nodes, max_match, num_matches):
  """Returns `_propose_row` for rows of these tokens."""
  return functools.partial(
    _propose_row,
    num_nodes=num_nodes,
    max_match=max_match,
    num_matches=min(num_matches, tokens.shape[1]),
  )


def _propose_row(tokens, length, *, num_nodes, max_match, num_matches):
  """Returns the tree of one row, tokens `[S]`, and its match lengths `[N]`."""
  root = tokens[length - 1]
  if num_nodes == 1:
    tree = grow.best_tree(root[None], jnp.array([-1]), jnp.zeros(1), num_nodes)
    return tree, jnp.zeros(1, jnp.int32)
  ends, sizes = _matches(tokens, length, max_match, num_matches)
  drafts = _continuations(tokens, length, ends, num_nodes - 1)
  parents, costs = _merge(drafts, sizes)
  # A tree of the same candidates that holds the sizes of their matches tells
  # which of them were taken.
  tree_of = lambda first, rest: grow.best_tree(
    _flat(first, rest), parents, costs, num_nodes
  )
  sizes = jnp.broadcast_to(sizes[:, None], drafts.shape)
  return tree_of(root, drafts), tree_of(0, sizes).tokens


def _matches(tokens, length, max_match, num_matches):
  """Finds where the text before said what its last tokens say.

  Returns:
    ends: `[M]` positions of the last token of each match, before the text's
      own last token.
    sizes: `[M]` matched tokens, at most `max_match`; 0 for no match.
  """
  positions = jnp.arange(tokens.shape[0])
  size = jnp.zeros_like(positions)
  equal = positions < length - 1
  for back in range(max_match):
    here = tokens[jnp.maximum(positions - back, 0)]
    equal &= (here == tokens[length - 1 - back]) & (back <= positions)
    size += equal
  # Longest first, of equally long ones the latest.
  order = size * tokens.shape[0] + positions
  _, ends = jax.lax.top_k(jnp.where(size > 0, order, -1), num_matches)
  return ends, size[ends]


def _continuations(tokens, length, ends, depth):
  """Returns `[M, depth]` tokens after each match.

  Where the text ends it goes on as it did after the match: a text that repeats
  itself is continued for as long as the tree is deep.
  """
  period = jnp.maximum(length - 1 - ends, 1)[:, None]
  return tokens[ends[:, None] + 1 + jnp.arange(depth) % period]


def _merge(drafts, sizes):
  """Merges drafts `[M, depth]` of matches of sizes `[M]` into one tree.

  A node's path has the share of the weight that agrees on it.

  Returns:
    parents: `[1 + M depth]`, of candidates in the order of `_flat`.
    costs: `[1 + M depth]` nats, inf where there is no node.
  """
  num_drafts, depth = drafts.shape
  is_draft = sizes > 0
  weights = jnp.where(is_draft, _WEIGHT_PER_TOKEN**sizes, 0.0)
  agree = drafts[:, None] == drafts[None]  # [M, M, depth]
  agree = jnp.cumprod(agree, axis=2).astype(bool) & is_draft[:, None]
  share = jnp.einsum('rsd,s->rd', agree, weights) / jnp.maximum(
    weights.sum(), 1e-30
  )
  # A node is stated once, by the first draft that has it, the longest match.
  owner = jnp.argmax(agree, axis=1)  # [M, depth]
  is_owner = (owner == jnp.arange(num_drafts)[:, None]) & is_draft[:, None]
  levels = jnp.arange(depth)
  costs = -jnp.log(share) + _COST_PER_LEVEL * (levels + 1)
  costs = jnp.where(is_owner, costs, jnp.inf)
  # Candidate 0 is the root; draft r at level d is 1 + d M + r.
  above = 1 + (levels - 1) * num_drafts + owner[:, jnp.maximum(levels - 1, 0)]
  parents = jnp.where(levels == 0, 0, above)
  return _flat(-1, parents), _flat(0.0, costs)


def _flat(first, rest):
  """Puts `rest [M, depth]` behind `first`, level by level."""
  first = jnp.asarray(first, rest.dtype)
  return jnp.concatenate([first[None], rest.T.reshape(-1)])
