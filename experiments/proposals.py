"""What drafters propose everywhere along texts, and what the texts take of it.

Decoding is lossless, and some drafters need nothing but the tokens so far: what
they propose at a place of a text can be told afterwards, without a model.  A
*place* is the index of a token in the output of a prompt, as in `measure`.
"""

import functools
from collections.abc import Callable, Mapping, Sequence

import chex
import jax
import jax.numpy as jnp
import numpy as np

from experiments import measure
from specjax.draft import base, bigram, lookup
from specjax.trees import tree as tree_lib

# What a drafter knows of each node beside the probability that it gives it:
# `(trees, tokens [B, S], lengths [B]) -> [B, P]`, small integers.
ORIGINS: Mapping[str, Callable[..., jax.Array]] = {
  'lookup': lambda trees, tokens, lengths: lookup.match_lengths(
    tokens, lengths, trees.tokens.shape[1]
  ),
  'bigram': bigram.num_unheard,
}

# Nodes that are proposed for each node of the largest tree, to choose from.
_POOL = 4


def everywhere(
  name: str,
  drafter: tuple[base.Drafter, chex.ArrayTree],
  batch_tokens: np.ndarray,
  prompt_lengths: np.ndarray,
  num_tokens: np.ndarray,
  capacities: Sequence[int],
  max_new_tokens: int,
  progress_fn: Callable[[int], None],
) -> measure.Arrays:
  """Proposes at every place, four times as many nodes as the largest tree has.

  Nodes deeper than any such tree count as refused: of the last places the text
  tells no more.

  Args:
    name: of the drafter, one of `ORIGINS`.
    drafter: the drafter, and the parameters it takes.
    batch_tokens: `[B, S]` prompts and outputs; the first `R` rows are prompts.
    prompt_lengths: `[B]`.
    num_tokens: `[R]` tokens of each output.
    capacities: sizes of trees; the largest counts.
    max_new_tokens: places `T`.
    progress_fn: told how many trees were proposed since the last call.

  Returns:
    For the `P` nodes of each tree the fields of `posterior.Proposals` but
    `rows`: `parents`, `scores`, the log-probability that the drafter gives a
    node's path, `groups`, what `ORIGINS` tells, and `is_accepted`, all `[R, T,
    P]`; and `num_nodes [R, T]`.  Places past the end of a text mean nothing.
  """
  num_rows = len(num_tokens)
  ends = np.array(prompt_lengths)
  ends[:num_rows] += num_tokens
  found = []
  for place in range(max_new_tokens):
    trees = _propose(
      base.Params(None, drafter[1], None),
      jnp.asarray(batch_tokens),
      jnp.asarray(prompt_lengths) + place,
      jnp.asarray(ends),
      max(capacities) - 1,
      propose_fn=drafter[0].propose,
      origin_fn=ORIGINS[name],
      num_nodes=_POOL * max(capacities),
    )
    found.append({k: np.asarray(v)[:num_rows] for k, v in trees.items()})
    progress_fn(num_rows)
  return {k: np.stack([at[k] for at in found], axis=1) for k in found[0]}


@functools.partial(
  jax.jit, static_argnames=('propose_fn', 'origin_fn', 'num_nodes')
)
def _propose(
  params, tokens, lengths, ends, max_depth, *, propose_fn, origin_fn, num_nodes
):
  """Returns the arrays of `everywhere` at one place, without the axis `T`."""
  proposal, _ = propose_fn(params, (), tokens, lengths, num_nodes)
  trees = proposal.tree
  depths = jax.vmap(tree_lib.depth)(trees.parents)
  where = lengths[:, None] - 1 + depths  # in the text; the root is its last
  last = tokens.shape[1] - 1
  said = jnp.take_along_axis(tokens, jnp.minimum(where, last), axis=1)
  # The token that follows a node is part of the text too, so that what ends a
  # text is never accepted as a node.
  is_refused = (trees.tokens != said) | (where + 1 >= ends[:, None])
  is_refused |= (depths > max_depth) | ~jax.vmap(tree_lib.present)(trees)
  path_sum = jax.vmap(tree_lib.path_sum)
  return {
    'parents': trees.parents,
    'num_nodes': trees.num_nodes,
    'scores': path_sum(trees.parents, trees.log_q),
    'groups': origin_fn(trees, tokens, lengths),
    'is_accepted': path_sum(trees.parents, is_refused.astype(jnp.int32)) == 0,
  }
