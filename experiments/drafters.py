"""The drafters that experiments know by name."""

from collections.abc import Sequence

import chex

from specjax.draft import base, bigram, lookup

NAMES = ('lookup', 'bigram')


def make(
  name: str, corpus: Sequence[Sequence[int]], vocab_size: int
) -> tuple[base.Drafter, chex.ArrayTree]:
  """Builds a drafter.

  Args:
    name: one of `NAMES`.
    corpus: texts as token ids, which drafters that count may count.
    vocab_size: `V` of the verifier.

  Returns:
    The drafter, and the parameters it takes.

  Raises:
    ValueError: an unknown name.
  """
  if name == 'lookup':
    return lookup.make(), ()
  if name == 'bigram':
    return bigram.make(), bigram.corpus_table(corpus, vocab_size)
  raise ValueError(f'expected a drafter of {", ".join(NAMES)}, got {name!r}')
