"""Verification rules: which drafts are accepted, and the token after them.

Every rule is lossless: its tokens follow the verifier's sampled law, and at
temperature 0 they are the argmax.

`match` draws the verifier's own token after each node, under the noise of its
position, and goes on where a child carries it: the tokens are those of plain
decoding, whatever the tree.  The other rules weigh drafts against the law q
that they were drawn from.  Theirs is the law of plain decoding, not its text.

Recursive rejection (X. Miao et al., "SpecInfer", arXiv 2305.09781; Z. Chen et
al., "Sequoia", arXiv 2402.12374) tries the children x of a node one after the
other, starting from r = p:

  accept x with chance min(1, r(x) / q(x)), else r <- norm(max(r - q, 0)).

If none is accepted the token is drawn from r.  Where drafts are drawn without
replacement, q becomes what is left of it after each.
"""

import functools
from collections.abc import Callable

import jax
import jax.numpy as jnp

from specjax import noise as noise_lib
from specjax import sampling as sampling_lib
from specjax.decode import block, chances
from specjax.decode import trial as trial_lib
from specjax.trees import tree as tree_lib

# The path's `extra` are the log-probabilities that are reported.
Rule = Callable[[trial_lib.Trial], tree_lib.Path]


def match(trial: trial_lib.Trial) -> tree_lib.Path:
  """Follows the tokens of plain decoding through any tree.

  Args:
    trial: the drafts; their laws do not matter.

  Returns:
    The path.
  """
  return tree_lib.walk(trial.proposal.tree, trial.token_fn, trial.active)


def rejection(trial: trial_lib.Trial, *, replaced: bool) -> tree_lib.Path:
  """Goes through any tree by recursive rejection.

  Args:
    trial: the drafts.
    replaced: whether the children of a node were drawn with replacement.

  Returns:
    The path.

  Raises:
    ValueError: drafts without laws, or laws of another vocabulary.
  """
  trees, coins = trial.proposal.tree, trial.coins()
  chances_fn = jax.vmap(
    functools.partial(chances.rejection_chances, replaced=replaced)
  )

  def sample_fn(nodes, depth):
    laws = trial.laws_fn(nodes)
    is_child = trial.children(nodes)
    log_q = trial.log_q(nodes, laws.sampled.shape[1])
    acceptance, log_residual = chances_fn(
      laws.sampled, log_q, trees.tokens, is_child
    )
    wins = is_child & (coins < acceptance)
    accepted = sampling_lib.at(trees.tokens, jnp.argmax(wins, axis=1))
    # A rejected token has no probability left: what is drawn leaves the tree.
    drawn = trial.draw(log_residual, depth, noise_lib.USE_RESIDUAL)
    tokens = jnp.where(jnp.any(wins, axis=1), accepted, drawn)
    return tokens, sampling_lib.at(laws.reported, tokens)

  return tree_lib.walk(trees, sample_fn, trial.active)


RULES: dict[str, Rule] = {
  'match': match,
  'with_replacement': functools.partial(rejection, replaced=True),
  'without_replacement': functools.partial(rejection, replaced=False),
  'block': block.block,
}


def named(name: str) -> Rule:
  """Returns the rule of a name.

  Args:
    name: 'match', 'with_replacement', 'without_replacement' or 'block'.

  Raises:
    ValueError: there is no such rule.
  """
  if name not in RULES:
    raise ValueError(f'expected a rule of {", ".join(RULES)}, got {name!r}')
  return RULES[name]
