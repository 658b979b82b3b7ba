"""Static shapes that a model fills: with its best tokens, or with drawn ones.

Which nodes there are does not depend on the laws, as verification rules ask
that accept drafts by chance.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from specjax import noise as noise_lib
from specjax import sampling as sampling_lib
from specjax.draft import base, grown
from specjax.draft import reader as reader_lib
from specjax.trees import fill, shapes


@functools.cache
def best(
  reader: reader_lib.Reader,
  shape_fn: shapes.ShapeFn,
  max_nodes: int,
  eos_ids: tuple[int, ...],
) -> base.Drafter:
  """Returns a drafter that fills a shape with the most probable tokens.

  Args:
    reader: the model that drafts.
    shape_fn: from a number of nodes to the shape.
    max_nodes: largest tree that will be asked for.
    eos_ids: tokens that end a text; they come last, since no token follows.

  Returns:
    The drafter; its `params.drafter` is what the reader wants.

  Raises:
    ValueError: in `propose`, a tree larger than `max_nodes`, or ranks past the
      end of the vocabulary.
  """

  def init(params, prefix):
    return reader.init(params, prefix, max_nodes)

  def propose(params, memory, tokens, lengths, num_nodes):
    reader_lib.check_size(num_nodes, max_nodes)

    def read(memory, nodes):
      logits, memory = reader.read(params, memory, nodes)
      log_q = grown.tempered(logits, params.sampling)
      return grown.without(log_q, eos_ids), memory

    def take_best(log_q, places):
      return lax.top_k(log_q, _num_children(places, log_q))[1]

    tree, slots, memory = fill.fill(
      shape_fn(num_nodes),
      base.last_tokens(tokens, lengths),
      read,
      take_best,
      memory,
    )
    return base.Proposal(tree), (memory, (tree.tokens, slots))

  return base.Drafter(init, propose, _observe(reader), reader.features)


@functools.cache
def drawn(
  reader: reader_lib.Reader,
  shape_fn: shapes.ShapeFn,
  max_nodes: int,
  replace: bool,
) -> base.Drafter:
  """Returns a drafter that fills a shape with tokens drawn from its laws.

  A child is drawn by the Gumbel-max trick, `argmax_y log q(y) + g(y)`, each
  with noise of its own: with replacement.  Or the children of a node are the
  best of one such sum, in its order, which draws them without replacement
  (W. Kool et al., "Stochastic Beams and Where to Find Them", arXiv 1903.06059).
  The law is that of the row's sampling parameters, but for edits of logits.

  Args:
    reader: the model that drafts.
    shape_fn: from a number of nodes to the shape, which uses the ranks from 0
      on in the order of nodes.
    max_nodes: largest tree that will be asked for.
    replace: whether the children of a node are drawn with replacement, so that
      they may be equal.  Without, a child that was drawn when the law was
      used up has a `log_q` of `-inf`.

  Returns:
    The drafter, whose proposals carry the laws; its `params.drafter` is what
    the reader wants.

  Raises:
    ValueError: in `propose`, a tree larger than `max_nodes`, ranks past the end
      of the vocabulary, or ranks that are left out or out of order.
  """

  def init(params, prefix):
    return reader.init(params, prefix, max_nodes), prefix.seeds

  def propose(params, state, tokens, lengths, num_nodes):
    reader_lib.check_size(num_nodes, max_nodes)
    shape = shape_fn(num_nodes)
    _check_order(shape)
    memory, seeds = state
    vocab_size = params.verifier.config.vocab_size
    sampling = params.sampling.replace(edits=None)
    batch = tokens.shape[0]

    def read(carry, nodes):
      memory, laws = carry
      logits, memory = reader.read(params, memory, nodes)
      log_q = sampling_lib.log_law(logits, sampling)
      rows = jnp.arange(batch)[:, None]
      laws = laws.at[rows, nodes.slots].set(log_q, mode='drop')
      return log_q, (memory, laws)

    def draw(log_q, places):
      draw_fn = _with_replacement if replace else _without_replacement
      return draw_fn(log_q, places, seeds, lengths + places.depth)

    laws = jnp.zeros((batch, num_nodes, vocab_size), jnp.float32)
    tree, slots, (memory, laws) = fill.fill(
      shape, base.last_tokens(tokens, lengths), read, draw, (memory, laws)
    )
    nodes = (tree.tokens, slots)
    return base.Proposal(tree, laws), ((memory, seeds), nodes)

  observe_memory = _observe(reader)

  def observe(params, state, verdict):
    (memory, seeds), nodes = state
    return observe_memory(params, (memory, nodes), verdict), seeds

  return base.Drafter(init, propose, observe, reader.features)


def _observe(reader):
  """The third function of a drafter with the state (memory, nodes)."""

  def observe(params, state, verdict):
    memory, nodes = state
    # A shape has a slot for every node.
    num_slots = nodes[0].shape[1]
    return reader_lib.keep_path(
      reader, params, memory, nodes, verdict, num_slots
    )

  return observe


def _without_replacement(log_q, places, seeds, positions):
  """Children `[B, W, K]`: the best of each law with its node's noise."""
  noise = _noise(seeds, positions, places.nodes, log_q.shape[-1])
  return lax.top_k(log_q + noise, _num_children(places, log_q))[1]


def _with_replacement(log_q, places, seeds, positions):
  """Children `[B, W, K]`, each the best of its law with noise of its own."""

  def draw(children):
    noise = _noise(seeds, positions, children, log_q.shape[-1])
    return jnp.argmax(log_q + noise, axis=-1).astype(jnp.int32)

  # One rank after the other: the noise of all would be large.
  return jnp.moveaxis(lax.map(draw, places.children.T), 0, 2)


def _noise(seeds, positions, nodes, vocab_size):
  """`[B, W, V]` noise to draw the tokens at `positions [B]` with.

  A node stands at the same depth in every tree of the shape, so no two trees of
  a text use a node's noise at one position.
  """
  one = lambda seed, position, node: noise_lib.gumbel(
    seed, position, noise_lib.draft_use(node), vocab_size
  )
  over_nodes = jax.vmap(one, in_axes=(None, None, 0))
  return jax.vmap(over_nodes, in_axes=(0, 0, None))(seeds, positions, nodes)


def _num_children(places, log_q):
  """`K`, if the vocabulary has as many tokens."""
  num_ranks, vocab_size = places.children.shape[1], log_q.shape[-1]
  if num_ranks > vocab_size:
    raise ValueError(
      f'expected at most {vocab_size} children a node, which are as many as '
      f'there are tokens, got {num_ranks}'
    )
  return num_ranks


def _check_order(shape):
  """Refuses a shape whose children are not all draws, in their order."""
  for parent in np.unique(shape.parents[1:]):
    ranks = shape.ranks[1:][shape.parents[1:] == parent].tolist()
    if ranks != list(range(len(ranks))):
      raise ValueError(
        f'expected children of ranks 0, 1, ... in the order of nodes, got '
        f'{ranks} at node {parent}'
      )
