"""Trees that are really drawn, node by node, from given laws."""

import jax
import jax.numpy as jnp
import numpy as np

from specjax import noise as noise_lib
from specjax import sampling as sampling_lib
from specjax.draft import base
from specjax.trees import tree as tree_lib


def draw(log_q_fn, roots, seeds, starts, parents, replaced):
  """A proposal of one static shape.

  Args:
    log_q_fn: from tokens `[B]` to the laws `[B, V]` of what follows them.
    roots: `[B]` last tokens.
    seeds: `[B]`.
    starts: `[B]` position of the first draft.
    parents: of the shape, as a tuple.
    replaced: whether the children of a node are drawn with replacement.
  """
  batch, num_nodes = roots.shape[0], len(parents)
  vocab_size = jax.eval_shape(log_q_fn, roots).shape[1]
  depths = np.zeros(num_nodes, int)
  for node in range(1, num_nodes):
    depths[node] = depths[parents[node]] + 1
  # What is drawn with replacement has noise of its own, what is drawn without
  # has that of its parent.
  above = depths - 1 if replaced else depths
  noise_fn = lambda seed, start: jax.vmap(
    lambda node, depth: noise_lib.gumbel(
      seed, start + depth, noise_lib.draft_use(node), vocab_size
    )
  )(jnp.arange(num_nodes), jnp.asarray(above))
  noise = jax.vmap(noise_fn)(seeds, starts)
  tokens, log_q, laws = [roots] * num_nodes, [jnp.zeros(batch)] * num_nodes, []
  for node in range(num_nodes):
    law = log_q_fn(tokens[node])
    laws.append(law)
    children = [i for i in range(num_nodes) if parents[i] == node]
    if replaced:
      drawn = [jnp.argmax(law + noise[:, i], axis=1) for i in children]
    else:
      drawn = jax.lax.top_k(law + noise[:, node], len(children))[1].T
    for child, token in zip(children, drawn, strict=True):
      tokens[child] = token.astype(jnp.int32)
      log_q[child] = sampling_lib.at(law, token)
  columns = lambda x: jnp.stack(x, axis=1)
  return base.Proposal(
    tree=tree_lib.Tree(
      tokens=columns(tokens),
      parents=jnp.tile(jnp.asarray(parents, jnp.int32), (batch, 1)),
      log_q=columns(log_q),
      num_nodes=jnp.full(batch, num_nodes, jnp.int32),
    ),
    log_q_full=columns(laws),
  )


def make(parents, replaced):
  """A drafter whose laws, `params.drafter [V, V]`, depend on the last token."""

  def init(params, prefix):
    del params
    return prefix.seeds

  def propose(params, seeds, tokens, lengths, num_nodes):
    assert num_nodes == len(parents)
    log_q_fn = lambda last: params.drafter[last]
    roots = base.last_tokens(tokens, lengths)
    proposal = draw(log_q_fn, roots, seeds, lengths, parents, replaced)
    return proposal, seeds

  return base.Drafter(init, propose, lambda params, seeds, verdict: seeds)
