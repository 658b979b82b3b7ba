"""What lists of the most probable tokens say of whole laws, row by row.

Engines list the K most probable tokens; some put the sampled one in the place
of the last, others beside them.  The *head* of a law is therefore what is more
probable than the token of rank K - 1, K being the shortest list of a batch: it
can be told from every such list, and is the same whatever was sampled.  Where
the first K of a list hold all mass, so does the head.

What is not in the head, the tail, is replaced by its sample,

  E[f(s)] = sum of p f(-log p) over the head + E[f(s); token not in the head],

which has the right mean and less noise than samples of everything.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from experiments.logprobs import files as logprob_files
from experiments.logprobs import totals as logprob_totals
from specjax.theory import entropy, heads

# Values of B that are tried for `run_bounds.run_context`.
SURPLUSES = np.geomspace(1e-2, 256.0, 96)

# A list holds all mass but for rounding, and filtered tokens are listed so low.
_WHOLE, _LOWEST = 1.0 - 1e-5, -1000.0


class Sums(NamedTuple):
  """Of every token of a batch, or their sums over rows.

  Attributes:
    limits: `entropy.MomentLimits`, each of its fields `[...]`.
    progress: `[G, ...]` nats, of `run_context` for each of `SURPLUSES`.
  """

  limits: entropy.MomentLimits
  progress: np.ndarray


class Heads:
  """Totals over the tokens of each row of prompts, if all texts have lists.

  Attributes:
    num_lacking: texts without lists long enough for heads.
    first_lacking: file and line of the first of them, None without any.
  """

  def __init__(self, vocab_size: int):
    """Begins without tokens.

    Args:
      vocab_size: of the engine; a larger number is valid too.
    """
    self._vocab_size = vocab_size
    self._sums = None
    self.num_lacking, self.first_lacking = 0, None

  @property
  def are_known(self) -> bool:
    """Whether every token had a list long enough for a head."""
    return not self.num_lacking and self._sums is not None

  def add(
    self,
    texts: Sequence[logprob_files.Text],
    tokens: logprob_totals.Tokens,
  ) -> None:
    """Adds the laws of texts to the totals of their tokens' rows.

    Args:
      texts: a batch.
      tokens: of these texts.
    """
    lacking = [text.source for text in texts if not has_lists(text)]
    if lacking and not self.num_lacking:
      self.first_lacking = lacking[0]
    self.num_lacking += len(lacking)
    if self.num_lacking or not len(tokens.rows):
      return
    head = cut(tokens.tops, tokens.surprisals)
    sums = _by_row(_values(*head, self._vocab_size), tokens.rows)
    if self._sums is not None:
      sums = jax.tree.map(np.add, self._sums, sums)
    self._sums = sums

  def sums(self, num_rows: int) -> Sums:
    """Returns the totals of the first rows, fields `[..., R]`."""
    return jax.tree.map(lambda total: total[..., :num_rows], self._sums)


def has_lists(text: logprob_files.Text) -> bool:
  """Whether every token's list has 2 tokens or more, or one of all mass."""
  top = text.top_log_probs
  if top is None:
    return not len(text.log_probs)
  is_long = np.sum(top >= _LOWEST, axis=1) >= 2
  is_sure = np.exp(np.max(top, axis=1)) >= _WHOLE
  return bool(np.all(is_long | is_sure))


def cut(
  tops: np.ndarray, surprisals: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
  """Cuts lists to heads that do not depend on what was sampled.

  Args:
    tops: `[M, K]` nats, listed log-probs in any order, padded with -inf, of
      texts that have lists.
    surprisals: `[M]` nats, of the sampled tokens.

  Returns:
    The heads' log-probs `[M, K]`, falling and padded with -inf; the surprisals;
    and `[M]` bool, whether the sampled token is in the head.
  """
  falling = -np.sort(-tops, axis=1)
  falling[falling < _LOWEST] = -np.inf
  mass = np.cumsum(np.exp(falling), axis=1)
  lengths = np.sum(falling > -np.inf, axis=1)
  shortest = np.min(lengths, initial=tops.shape[1], where=mass[:, -1] < _WHOLE)
  # A list with the sampled token beside the others may be whole by that alone.
  is_whole = mass[:, shortest - 1] >= _WHOLE
  # Beyond whole lists, what has the last one's probability may go on unlisted.
  last = np.where(is_whole, -np.inf, falling[:, shortest - 2])
  head = np.where(falling > last[:, None], falling, -np.inf)
  return head, surprisals, -surprisals > last


def _values(log_p, surprisals, is_listed, vocab_size):
  """Returns `Sums` of every token, computed in arrays of few shapes."""
  num_tokens, width = log_p.shape
  after = (0, _round_up(num_tokens) - num_tokens)
  wider = (0, _round_up(width) - width)
  values = _of_tokens(
    np.pad(log_p, [after, wider], constant_values=-np.inf),
    np.pad(surprisals, after),
    np.pad(is_listed, after),
    vocab_size,
  )
  return jax.tree.map(lambda x: np.asarray(x)[..., :num_tokens], values)


@functools.partial(jax.jit, static_argnames='vocab_size')
def _of_tokens(log_p, surprisals, is_listed, vocab_size):
  """Returns `Sums` of every token."""
  limits = entropy.moment_limits(log_p, surprisals, is_listed, vocab_size)
  p = jnp.exp(log_p)
  head = heads.Head(log_p=log_p, p=p, tail_mass=limits.missing)
  # The tail is sampled, not limited from below.
  alone = head.replace(tail_mass=jnp.zeros_like(limits.missing))

  def at_surplus(surplus):
    caps = heads.saturating_cap(head, surplus)
    of_tail = jnp.where(is_listed, 0.0, jnp.minimum(surprisals, caps))
    return heads.capped_surprisal(alone, caps) + of_tail

  return Sums(limits, jax.lax.map(at_surplus, jnp.asarray(SURPLUSES)))


def _by_row(values, rows):
  """Returns the sums `[..., NUM_ROWS]` of values `[..., M]` in float64."""

  def total(values):
    flat = values.reshape(-1, len(rows))
    sums = [np.bincount(rows, x, logprob_totals.NUM_ROWS) for x in flat]
    return np.stack(sums).reshape(*values.shape[:-1], -1)

  return jax.tree.map(total, values)


def _round_up(size):
  """Returns the power of two that is at least `size`."""
  return 1 << (size - 1).bit_length()
