"""How much of a draft tree is worth reading, from what was seen so far.

Reading the first `n` nodes of the trees of a batch takes `tau(n)` seconds, and

  tokens a second = sum over rows of D(n) / tau(n),
  D(n) = 1 + sum over the first n nodes i of min(1, q_i r^depth(i)).

`q_i` is the probability that the drafter states for the path to node `i`, and
`r` how far its statements are to be trusted: at every node that the text has
passed the drafter has stated the chance that one of the node's children comes
next, and `r` is how often one came over how often it should have.  Nodes that
were not read count too, as far as the text says what became of them, so that
nothing has to be tried out.  And no tree wins more than the text's entropy
`mu` leaves open: `D(n) <= 1 + log(n) / mu`, as for the best tree of a branching
random walk, with the running mean of `-log p` for `mu`.

A model that drafts takes time before it states anything.  Where it has won less
than plain decoding of late, it is not asked, for so long as that is not
forgotten.

All estimates are of the rows that are decoded together, and old iterations
count for less and less.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from specjax.draft import base
from specjax.trees import tree as tree_lib

# By what factor an iteration counts for less than the next one: of those that
# tell how far to trust the drafter, and of those that tell whether to ask it.
_KEEP_TRUST = 0.95
_KEEP_GAIN = 0.97

# Before it was heard, a drafter is trusted as after this many statements of
# which so many were right, and has won so many tokens in one iteration.
_PRIOR_STATED = 4.0
_PRIOR_CAME = 2.0
_PRIOR_WON = 1.1

# What another capacity has to promise more than that of the last iteration.
_MARGIN = 0.02


@struct.dataclass
class Menu:
  """The capacities to choose from, and what they cost.

  Attributes:
    seconds: `[M]` float32 of an iteration; but for plain decoding with a
      drafter that runs a model, drafting is in it.
    capacities: `M` nodes of a tree, rising, the first of them 1; static to jit.
  """

  seconds: jax.Array
  capacities: tuple[int, ...] = struct.field(pytree_node=False)


@struct.dataclass
class Estimates:
  """Running sums, `[B]` each; an iteration further back counts for less.

  Attributes:
    came: how often a child of a node came next.
    stated: how often one should have, as the drafter stated.
    won: tokens of iterations in which it was asked, and
    spent: what they took, in iterations of plain decoding.
    surprise: `-log p` of tokens in nats, and
    tokens: their number.
    choice: int32 capacity of the last iteration, as an index.
  """

  came: jax.Array
  stated: jax.Array
  won: jax.Array
  spent: jax.Array
  surprise: jax.Array
  tokens: jax.Array
  choice: jax.Array


def make_menu(capacities: tuple[int, ...], seconds: jax.Array) -> Menu:
  """Makes a menu.

  Args:
    capacities: `M` nodes of a tree, rising, the first of them 1.
    seconds: `[M]` of an iteration with each.

  Raises:
    ValueError: capacities that do not rise from 1, or not as many seconds.
  """
  rises = all(a < b for a, b in zip(capacities, capacities[1:], strict=False))
  if len(capacities) < 2 or capacities[0] != 1 or not rises:
    raise ValueError(
      f'expected capacities that rise from 1, got {tuple(capacities)}'
    )
  seconds = jnp.asarray(seconds, jnp.float32)
  if seconds.shape != (len(capacities),):
    raise ValueError(
      f'expected seconds of {len(capacities)} capacities, got {seconds.shape}'
    )
  return Menu(seconds, tuple(capacities))


def start(batch: int) -> Estimates:
  """Returns the estimates of `B` rows before their first iteration."""
  # Arrays of their own, since the loop takes each of them.
  sums = [jnp.zeros(batch) for _ in range(6)]
  return Estimates(*sums, choice=jnp.zeros(batch, jnp.int32))


def only(capacities: tuple[int, ...], index: int) -> Menu:
  """Returns a menu whose other capacities take for ever."""
  is_other = np.arange(len(capacities)) != index
  return make_menu(capacities, np.where(is_other, np.inf, 1.0))


def sure(batch: int, has_won: bool) -> Estimates:
  """Returns estimates of `B` rows in which the drafter has won all or nothing.

  Both for long: they do not change soon.
  """
  much = jnp.full(batch, 1e9)
  return start(batch).replace(**{'won' if has_won else 'spent': much})


def choose(
  menu: Menu,
  estimates: Estimates,
  trees: tree_lib.Tree,
  is_active: jax.Array,
  first: int = 0,
) -> jax.Array:
  """Chooses how much of the trees is read.

  Args:
    menu: `M` capacities, the largest of them that of the trees.
    estimates: of the rows.
    trees: with a leading axis `[B]`.
    is_active: `[B]` bool; other rows do not count.
    first: index of the least capacity that may be chosen.

  Returns:
    `[]` int32 index of a capacity: that of the last iteration, unless another
    promises more by a margin.
  """
  chances = jax.vmap(functools.partial(_chances, _trust(estimates)))(trees)
  chances = jnp.where(is_active[:, None], chances, 0.0)
  won = jnp.cumsum(chances.sum(0) / jnp.maximum(is_active.sum(), 1))
  sizes = jnp.asarray(menu.capacities)
  won = jnp.minimum(won[sizes - 1], _ceilings(estimates, sizes))
  promised = jnp.where(jnp.arange(len(sizes)) >= first, won, 0.0)
  promised = promised / menu.seconds
  last, best = estimates.choice[0], jnp.argmax(promised)
  is_better = promised[best] > (1 + _MARGIN) * promised[last]
  return jnp.where(is_better, best, last).astype(jnp.int32)


def learn(
  menu: Menu,
  estimates: Estimates,
  trees: tree_lib.Tree,
  verdict: base.Verdict,
  choice: jax.Array,
  is_active: jax.Array,
) -> Estimates:
  """Compares what was stated with what came.

  Args:
    menu: the capacities.
    estimates: before the iteration.
    trees: as they were proposed, `[B]`.
    verdict: on as much of them as was read, padded to their size.
    choice: `[]` what was read, an index of a capacity.
    is_active: `[B]` bool; of other rows nothing is learnt.

  Returns:
    The estimates after the iteration.
  """
  came, stated = jax.vmap(_compare)(trees, verdict)
  # What says nothing does not make older statements count for less.
  keep = jnp.where(stated > 0, _KEEP_TRUST, 1.0)
  cost = menu.seconds[choice] / menu.seconds[0]
  older = forget(estimates, verdict)
  return older.replace(
    came=keep * older.came + came,
    stated=keep * older.stated + stated,
    won=older.won + verdict.num_accepted,
    spent=older.spent + jnp.where(is_active, cost, 0.0),
    choice=jnp.full_like(older.choice, choice),
  )


def forget(estimates: Estimates, verdict: base.Verdict) -> Estimates:
  """Returns the estimates after an iteration without the drafter.

  Args:
    estimates: before the iteration.
    verdict: on the roots alone.
  """
  is_token = jnp.arange(verdict.tokens.shape[1]) < verdict.num_accepted[:, None]
  surprise = -jnp.sum(jnp.where(is_token, verdict.log_p, 0.0), axis=1)
  return estimates.replace(
    won=_KEEP_GAIN * estimates.won,
    spent=_KEEP_GAIN * estimates.spent,
    surprise=_KEEP_TRUST * estimates.surprise + surprise,
    tokens=_KEEP_TRUST * estimates.tokens + verdict.num_accepted,
    choice=jnp.zeros_like(estimates.choice),
  )


def has_paid(estimates: Estimates) -> jax.Array:
  """Returns `[]` bool: whether speculation has won more than it has taken."""
  won = estimates.won.sum() + _PRIOR_WON
  return won >= estimates.spent.sum() + 1


def _trust(estimates):
  """How far to trust what the drafter states."""
  came = estimates.came.sum() + _PRIOR_CAME
  return came / (estimates.stated.sum() + _PRIOR_STATED)


def _ceilings(estimates, sizes):
  """What trees of these sizes can win from text of such entropy."""
  entropy = estimates.surprise.sum() / jnp.maximum(estimates.tokens.sum(), 1)
  return 1 + jnp.log(sizes) / jnp.maximum(entropy, 1e-6)


def _stated(tree):
  """`[N]` log of the chance of each node after its parent, 0 at the root.

  What a drafter states of the children of a node may sum to more than 1.
  """
  is_child = tree_lib.present(tree) & (tree.parents != tree_lib.NO_PARENT)
  chances = jnp.where(is_child, jnp.exp(tree.log_q), 0.0)
  totals = _over_children(tree, chances)
  log_q = tree.log_q - jnp.log(jnp.maximum(totals, 1.0))[tree.parents]
  return jnp.where(is_child, log_q, jnp.where(_is_root(tree), 0.0, -jnp.inf))


def _is_root(tree):
  return jnp.arange(len(tree.parents)) == tree_lib.ROOT


def _over_children(tree, values):
  """`[N]` sums over the children of each node."""
  # A CPU scatters one number after the other.
  is_child = tree.parents == jnp.arange(len(tree.parents))[:, None]
  return jnp.sum(jnp.where(is_child, values, 0.0), axis=1)


def _chances(trust, tree):
  """`[N]` chance that the text passes each node."""
  log_q = _stated(tree)
  log_chances = tree_lib.path_sum(tree.parents, log_q + jnp.log(trust))
  # The root is sure.
  log_chances -= jnp.log(trust)
  return jnp.exp(jnp.minimum(log_chances, 0.0))


def _compare(tree, verdict):
  """How often children came after nodes that were passed, and should have."""
  is_passed = jnp.arange(len(verdict.path)) < verdict.num_accepted
  chances = jnp.where(_is_root(tree), 0.0, jnp.exp(_stated(tree)))
  stated = _over_children(tree, chances)[verdict.path]
  next_nodes = jax.vmap(functools.partial(tree_lib.child, tree))(
    verdict.path, verdict.tokens
  )
  of_passed = lambda x: jnp.sum(jnp.where(is_passed, x, 0.0))
  return of_passed(next_nodes != tree_lib.NO_CHILD), of_passed(stated)
