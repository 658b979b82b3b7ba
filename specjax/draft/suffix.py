"""Suffix drafter: every way in which the text so far went on, weighed.

Wherever prompt, output or a corpus said what the text says now, they tell how
it may go on.  A place that agrees on the last `m` tokens states what followed
it; the longest matches are merged into one tree, in which frequent
continuations gather the weight of all who state them:

    q(w) = sum over matches that go on with w of
           8^m / (sum of 8^m over all) * (m + 1) / (m + 1 + |w|)

The second factor is Laplace's rule of succession: of a match that has held for
`m` tokens the next one holds too with probability `(m + 1) / (m + 2)`, and so
on.  Suffix trees and automata serve the same end in SuffixDecoding (Oliaro et
al. 2024, arXiv 2411.04975) and SAM decoding (Hu et al. 2024, arXiv 2411.10666).
Here the text itself, which grows, is compared with its own end at every place;
the corpus, which does not, is sorted beforehand by what stands before a place,
so that a search ends among the longest matches.
"""

import functools
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax import lax

from specjax.draft import base, merge

# Weight of a match that is longer by one token.  For 8900 tokens of SmolLM2, at
# temperatures 0 and 1, 8 makes q most true: -log q of what came, or of what is
# left over, is least.  With 3, trees of two nodes state three quarters of what
# comes.  What trees win differs by less than 1 % between 3 and 100.
_WEIGHT_PER_TOKEN = 8.0
# What stands around the texts of a corpus, and before the first token of all;
# no match goes past either.
_END = -1
_NOTHING = -2
# Places that a round of search in the corpus looks at.
_TRIED = 32
# The size of what is no match.
_NO_MATCH = -1


@struct.dataclass
class Corpus:
  """Texts, sorted for search.

  Attributes:
    tokens: `[C]` int32 all texts; -1 before, between and after them.
    places: `[P]` int32 every token that is followed by another of its text, by
      the order of what it ends: of its token, then the one before it, and so
      on.
    vocab_size: `V` of the tokens, static to jit.
  """

  tokens: jax.Array
  places: jax.Array
  vocab_size: int = struct.field(pytree_node=False)


class _Matches(NamedTuple):
  """Places that agree with the end of a text.

  Attributes:
    sizes: `[M]` int32 tokens that agree; -1 for no match.
    drafts: `[M, depth]` int32 what followed; -1 past the end of a text.
  """

  sizes: jax.Array
  drafts: jax.Array


def corpus(texts: Sequence[Sequence[int]], vocab_size: int) -> Corpus:
  """Sorts texts for search, in a few seconds for a million tokens.

  Args:
    texts: as token ids.
    vocab_size: `V`.

  Returns:
    The corpus.

  Raises:
    ValueError: a token outside the vocabulary, or no text of two tokens.
  """
  joined = [_END]
  for index, text in enumerate(texts):
    outside = [t for t in text if not 0 <= t < vocab_size]
    if outside:
      raise ValueError(
        f'text {index}: expected tokens in [0, {vocab_size}), got {outside[0]}'
      )
    joined += [*text, _END]
  tokens = np.asarray(joined, np.int64)
  # Ranks by the last 1, 2, 4, ... tokens, until all differ.
  ranks = np.unique(tokens, return_inverse=True)[1]
  reach = 1
  while ranks.max() < len(ranks) - 1:
    before = np.concatenate([np.zeros(reach, int), 1 + ranks[:-reach]])
    pairs = ranks * (len(ranks) + 1) + before
    ranks = np.unique(pairs, return_inverse=True)[1]
    reach *= 2
  places = np.argsort(ranks)
  is_token = tokens != _END
  places = places[is_token[places] & np.roll(is_token, -1)[places]]
  if not len(places):
    raise ValueError('expected a text of at least 2 tokens, got none')
  as_int = lambda x: jnp.asarray(x, jnp.int32)
  return Corpus(as_int(tokens), as_int(places), vocab_size)


@functools.cache
def make(max_match: int = 8, num_matches: int = 64) -> base.Drafter:
  """Returns the suffix drafter; its `params.drafter` is a `Corpus` or `()`.

  Args:
    max_match: longest match that is told from shorter ones, in tokens.
    num_matches: how many matches state what followed: the longest, of equal
      ones those of the text itself first, from the latest on, which may be
      places that do not agree at all.

  Returns:
    The drafter.

  Raises:
    ValueError: an argument below 1; in `init`, a corpus of another vocabulary
      than the verifier's.
  """
  if max_match < 1 or num_matches < 1:
    raise ValueError(
      'expected max_match and num_matches >= 1, got '
      f'{max_match} and {num_matches}'
    )

  def check(params):
    if isinstance(params.drafter, Corpus):
      base.check_vocabulary(
        params.drafter.vocab_size, params.verifier.config.vocab_size
      )

  def propose(params, tokens, lengths, num_nodes):
    one_row = functools.partial(
      _propose_row, params.drafter, num_nodes, max_match, num_matches
    )
    return base.Proposal(jax.vmap(one_row)(tokens, lengths))

  return base.stateless(propose, check)


def _propose_row(texts, num_nodes, max_match, num_matches, tokens, length):
  """Returns the tree of one row; tokens `[S]`, texts a `Corpus` or `()`."""
  depth = num_nodes - 1
  end = _before(tokens, length - 1, max_match)
  matches = _own(tokens, length, end, num_matches, depth)
  if isinstance(texts, Corpus):
    others = _in_corpus(texts, end, num_matches, depth)
    matches = jax.tree.map(lambda *x: jnp.concatenate(x), matches, others)
    best = _longest(matches.sizes, num_matches)
    matches = jax.tree.map(lambda x: x[best], matches)
  return merge.merge(end[0], matches.drafts, _values(matches), num_nodes)


def _own(tokens, length, end, num_matches, depth):
  """The longest matches of the text with its own end, the latest first.

  Where the text ends it goes on as it did after the match: a text that repeats
  itself is continued for as long as the tree is deep.
  """
  places = length - 2 - jnp.arange(tokens.shape[0])
  sizes = jnp.where(places >= 0, _agreed(tokens, places, end), _NO_MATCH)
  best = _longest(sizes, num_matches)
  places = jnp.maximum(places[best], 0)
  period = jnp.maximum(length - 1 - places, 1)
  steps = jnp.arange(depth) % period[:, None]
  return _Matches(sizes[best], tokens[places[:, None] + 1 + steps])


def _in_corpus(texts, end, num_matches, depth):
  """Matches in the corpus, the `num_matches` longest among them.

  Away from where the text's end belongs in the order, matches become shorter on
  either side.
  """
  near = jnp.arange(-num_matches, num_matches)
  order = _rank(texts, end) + near
  num_places = texts.places.shape[0]
  places = texts.places[jnp.clip(order, 0, num_places - 1)]
  sizes = _agreed(texts.tokens, places, end)
  is_match = (order >= 0) & (order < num_places) & (sizes > 0)
  following = places[:, None] + 1 + jnp.arange(depth)
  # The corpus ends in -1, and so does what is read past it.
  drafts = texts.tokens.at[following].get(mode='clip')
  return _Matches(jnp.where(is_match, sizes, _NO_MATCH), drafts)


def _rank(texts, end):
  """The number of places in the corpus that belong before the text's end."""
  num_places = texts.places.shape[0]

  def narrow(_, bounds):
    low, size = bounds
    # It belongs behind some of them, and before all after those.
    tried = low + size * jnp.arange(_TRIED) // _TRIED
    places = texts.places[jnp.minimum(tried, num_places - 1)]
    others = _before(texts.tokens, places, len(end))
    first = jnp.argmax(others != end, axis=1)
    other = jnp.take_along_axis(others, first[:, None], axis=1)[:, 0]
    is_before = (other < end[first]) & (size > 0)
    count = jnp.sum(is_before)
    ends = jnp.append(tried, low + size)
    new_low = jnp.where(count > 0, ends[count - 1] + 1, low)
    return new_low, ends[count] - new_low

  rounds = 1
  while _TRIED**rounds <= num_places:
    rounds += 1
  bounds = (jnp.int32(0), jnp.int32(num_places))
  return lax.fori_loop(0, rounds, narrow, bounds)[0]


def _before(tokens, places, size):
  """Returns `[..., size]`: the tokens up to places, the last one first."""
  back = places[..., None] - jnp.arange(size)
  return jnp.where(back >= 0, tokens[back], _NOTHING)


def _agreed(tokens, places, end):
  """Returns `[n]`: how many tokens up to places agree with the text's end."""
  is_equal = _before(tokens, places, len(end)) == end
  return jnp.sum(jnp.cumprod(is_equal, axis=1), axis=1)


def _longest(sizes, num_matches):
  return lax.top_k(sizes, min(num_matches, len(sizes)))[1]


def _values(matches):
  """Returns `[M, depth]`: probability that each match goes on to hold."""
  sizes = matches.sizes
  weights = _WEIGHT_PER_TOKEN ** (sizes - jnp.max(sizes))
  weights = jnp.where(sizes == _NO_MATCH, 0.0, weights)
  weights /= jnp.maximum(jnp.sum(weights), 1.0)
  depths = 1 + jnp.arange(matches.drafts.shape[1])
  held = sizes[:, None] + 1
  values = weights[:, None] * held / (held + depths)
  return values * jnp.cumprod(matches.drafts != _END, axis=1)
