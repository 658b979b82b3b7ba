"""Bigram drafter: the tokens that most often followed a node's token.

Continuations are ranked by how often they followed in prompt and output (of
equals the latest first), then by how often they did in a corpus.  The r-th
ranked continuation fills the places of rank r in a static shape.
"""

import collections
import functools
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from specjax.draft import base
from specjax.trees import shapes
from specjax.trees import tree as tree_lib

# Rough acceptance rates of the ranks, for the default shape.
RATES = (0.3, 0.1, 0.06, 0.04, 0.03, 0.025, 0.02, 0.015)


# No token.
_NONE = -1


def default_shape(num_nodes: int) -> shapes.Shape:
  """Returns the best tree for `RATES`."""
  return shapes.best_first(num_nodes, RATES)


def corpus_table(
  corpus: Sequence[Sequence[int]], vocab_size: int, num_ranks: int = 16
) -> jax.Array:
  """Returns the most frequent continuations of every token in a corpus.

  Args:
    corpus: texts as token ids.
    vocab_size: `V`.
    num_ranks: how many continuations to keep, at most V.

  Returns:
    `[V, num_ranks]` int32, distinct in a row: continuations by falling count
    (of equals the smaller id first), then the corpus's most frequent tokens.

  Raises:
    ValueError: a token outside the vocabulary, or more ranks than tokens.
  """
  if not 1 <= num_ranks <= vocab_size:
    raise ValueError(
      f'expected num_ranks in [1, {vocab_size}], got {num_ranks}'
    )
  unigrams = collections.Counter()
  bigrams = collections.defaultdict(collections.Counter)
  for text in corpus:
    unigrams.update(text)
    for token, following in zip(text, text[1:], strict=False):
      bigrams[token][following] += 1
  outside = [t for t in unigrams if not 0 <= t < vocab_size]
  if outside:
    raise ValueError(f'expected tokens in [0, {vocab_size}), got {outside[0]}')
  ranked = lambda counts: sorted(counts, key=lambda t: (-counts[t], t))
  unseen = (t for t in range(vocab_size) if t not in unigrams)
  common = ranked(unigrams) + list(itertools.islice(unseen, num_ranks))
  common = common[:num_ranks]
  table = np.tile(np.asarray(common, np.int32), (vocab_size, 1))
  for token, counts in bigrams.items():
    row = ranked(counts)[:num_ranks]
    row += [t for t in common if t not in set(row)]
    table[token] = row[:num_ranks]
  return jnp.asarray(table)


@functools.cache
def make(shape_fn: shapes.ShapeFn = default_shape) -> base.Drafter:
  """Returns the bigram drafter; its `params.drafter` is a `corpus_table`.

  Args:
    shape_fn: from a number of nodes to the static shape that is filled.

  Returns:
    The drafter.

  Raises:
    ValueError: in `init`, the table of another vocabulary than the verifier's;
      in `propose`, a shape of more ranks than the table has.
  """

  def check(params):
    base.check_vocabulary(
      len(params.drafter), params.verifier.config.vocab_size
    )

  def propose(params, tokens, lengths, num_nodes):
    shape = shape_fn(num_nodes)
    num_ranks = params.drafter.shape[1]
    if shape.ranks.max() >= num_ranks:
      raise ValueError(
        f'expected a shape of ranks below {num_ranks}, '
        f'got rank {shape.ranks.max()}'
      )
    fill = functools.partial(_fill, shape, params.drafter)
    return base.Proposal(jax.vmap(fill)(tokens, lengths))

  return base.stateless(propose, check)


def num_unheard(
  tree: tree_lib.Tree, tokens: jax.Array, lengths: jax.Array
) -> jax.Array:
  """Returns `[B, N]` int32: edges to a node that the text does not know.

  An edge is known if the node's token has followed its parent's in the text;
  the corpus alone proposed the others.  Never falls along a path; 0 at roots.

  Args:
    tree: proposals for these rows, with a leading axis `[B]`.
    tokens: `[B, S]` int32.
    lengths: `[B]` int32 tokens of each row that count.
  """

  def of_row(tree, tokens, length):
    follows = jnp.arange(len(tokens)) < length - 1
    said = (tree.tokens[tree.parents][:, None] == tokens) & follows
    said &= tree.tokens[:, None] == jnp.roll(tokens, -1)
    is_new = ~jnp.any(said, axis=1) & (tree.parents != tree_lib.NO_PARENT)
    return tree_lib.path_sum(tree.parents, is_new.astype(jnp.int32))

  return jax.vmap(of_row)(tree, tokens, lengths)


def _fill(shape, table, tokens, length):
  """Fills a shape for one row, level by level; tokens `[S]`."""
  size = len(shape.parents)
  tree_tokens = jnp.zeros(size, jnp.int32).at[0].set(tokens[length - 1])
  log_q = jnp.zeros(size)
  history = _history(tokens, length)
  for level in range(1, shape.depths.max() + 1):
    nodes = np.flatnonzero(shape.depths == level)
    parents, place = np.unique(shape.parents[nodes], return_inverse=True)
    wanted = tree_tokens[parents]
    ranked, log_shares = _ranked(
      history, wanted, table[wanted], int(shape.ranks.max()) + 1
    )
    ranks = shape.ranks[nodes]
    tree_tokens = tree_tokens.at[nodes].set(ranked[place, ranks])
    log_q = log_q.at[nodes].set(log_shares[place, ranks])
  return tree_lib.Tree(
    tokens=tree_tokens,
    parents=jnp.asarray(shape.parents),
    log_q=log_q,
    num_nodes=jnp.int32(size),
  )


class _History(NamedTuple):
  """Who followed whom in one row, sorted by follower and then by place.

  Places with one follower are a run, from `starts` to before `ends`.
  """

  places: jax.Array  # [S] of the tokens in the row
  tokens: jax.Array  # [S]
  following: jax.Array  # [S] what follows the token, rising
  is_known: jax.Array  # [S] bool, the following token is part of the text
  starts: jax.Array  # [S] of the run that the entry belongs to
  ends: jax.Array  # [S]


def _history(tokens, length):
  following = jnp.roll(tokens, -1)
  places = jnp.argsort(following, stable=True)
  following = following[places]
  return _History(
    places=places,
    tokens=tokens[places],
    following=following,
    is_known=places < length - 1,
    starts=jnp.searchsorted(following, following, side='left'),
    ends=jnp.searchsorted(following, following, side='right'),
  )


def _ranked(history, wanted, table, num_ranks):
  """Ranks the continuations of the tokens `wanted` `[n]`.

  Args:
    history: of the row.
    wanted: `[n]` tokens.
    table: `[n, >= num_ranks]` their continuations in the corpus.
    num_ranks: how many to return.

  Returns:
    tokens: `[n, num_ranks]` distinct continuations.
    log_shares: `[n, num_ranks]` log-probabilities: the counts of the text, and
      one further count shared by what the corpus adds.
  """
  hits = (history.tokens == wanted[:, None]) & history.is_known
  size = hits.shape[1]
  before = jnp.pad(jnp.cumsum(hits, axis=1), [(0, 0), (1, 0)])  # [n, S + 1]
  before_end = before[:, history.ends]
  counts = before_end - before[:, history.starts]
  # Each continuation is stated by its latest hit, the last one of its run.
  is_stated = hits & (before[:, 1:] == before_end)
  order = jnp.where(is_stated, counts * size + history.places, -1)
  score, best = jax.lax.top_k(order, min(num_ranks, size))
  own = jnp.where(score >= 0, history.following[best], _NONE)
  is_new = jnp.all(table[:, :, None] != own[:, None], axis=2)
  both = jnp.concatenate([own, jnp.where(is_new, table, _NONE)], axis=1)
  total = jnp.sum(hits, axis=1, keepdims=True) + 1
  corpus_share = jnp.broadcast_to(1 / num_ranks, table.shape)
  shares = jnp.concatenate([score // size, corpus_share], axis=1) / total
  first = jnp.argsort(both == _NONE, axis=1, stable=True)[:, :num_ranks]
  take = lambda x: jnp.take_along_axis(x, first, axis=1)
  return take(both), jnp.log(take(shares))
