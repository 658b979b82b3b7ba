"""Noise: a function of (request seed, absolute position, use), and of no more.

So the token that is drawn at a position does not depend on what else is drawn,
or where, or by whom; and every use has noise that is independent of all others.
"""

import jax

# The uses of noise at one position: the verifier's own token, the coins that
# decide which drafts are accepted, the token after drafts were rejected, and
# from `_FIRST_DRAFT` on the drafts, a number for every node.
USE_TOKEN = 0
USE_COIN = 1
USE_RESIDUAL = 2
_FIRST_DRAFT = 3


def draft_use(node: int) -> int:
  """Returns the use of the noise that belongs to one node of a draft tree.

  What is drawn without replacement takes the noise of the node it follows, what
  is drawn with replacement each its own.  Where the depth of a node number is
  the same in every tree, as it is in a static shape, no two trees of a text
  draw with the same noise.

  Args:
    node: index of the node in its tree.
  """
  return _FIRST_DRAFT + node


def coins(seeds: jax.Array, positions: jax.Array, num_coins: int) -> jax.Array:
  """Returns the coins that decide which drafts of a tree are accepted.

  A chance c wins if its coin lies strictly below it: one of 0 never wins, one
  of 1 always.

  Args:
    seeds: `[B]` uint32 request seeds.
    positions: `[B]` absolute positions of the first token that the trees might
      add, which no two trees of a text share.
    num_coins: how many, one for each node of the tree.

  Returns:
    `[B, num_coins]` float32, uniform in [0, 1).
  """
  toss = lambda seed, position: jax.random.uniform(
    _key(seed, position, USE_COIN), (num_coins,)
  )
  return jax.vmap(toss)(seeds, positions)


def gumbel(
  seed: jax.Array, position: jax.Array, use: int, vocab_size: int
) -> jax.Array:
  """Returns the standard Gumbel noise of one (seed, position, use).

  Drawn in `high` mode: with the default 23 random bits the tails of a
  vocabulary of 10^5 tokens would be visibly coarse.

  Args:
    seed: `[]` uint32 request seed.
    position: `[]` int32 absolute position of the token to draw.
    use: what the draw is for, one number a use.
    vocab_size: `V`.

  Returns:
    `[V]` float32.
  """
  key = _key(seed, position, use)
  return jax.random.gumbel(key, (vocab_size,), mode='high')


def _key(seed, position, use):
  key = jax.random.fold_in(jax.random.key(seed), position)
  return jax.random.fold_in(key, use)
