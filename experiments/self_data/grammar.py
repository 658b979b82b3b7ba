"""Texts from a grammar: rules whose slots are filled at random.

A rule is a list of texts.  In them

  {town}       becomes a text of the rule `town`, chosen anew at each place;
  {town.1}     stays the same wherever it stands in one text, and differs from
               {town.2} and the like;
  {3-12}       becomes a whole number from 3 to 12.
"""

import random
import re
from collections.abc import Callable, Mapping, Sequence

_SLOT = re.compile(r'\{(?:(\d+)-(\d+)|(\w+)(?:\.(\d))?)\}')

# Gives the text of a slot that no rule describes; slots in it are not filled.
SourceFn = Callable[[random.Random], str]


class Grammar:
  """Rules and other sources of text, by the names that slots use."""

  def __init__(
    self,
    rules: Mapping[str, Sequence[str]],
    sources: Mapping[str, SourceFn],
  ):
    """Takes what slots may name.

    Args:
      rules: name -> texts with slots.
      sources: name -> what gives a finished text.

    Raises:
      ValueError: a slot that neither of them names, or a rule without texts.
    """
    self._rules = rules
    self._sources = sources
    for name, texts in rules.items():
      if not texts:
        raise ValueError(f'expected texts in the rule {name!r}, got none')
      for slot in _SLOT.finditer(' '.join(texts)):
        if slot[3] and slot[3] not in rules and slot[3] not in sources:
          raise ValueError(
            f'expected a rule for {slot[0]} in {name!r}, got none'
          )

  def text(self, name: str, rng: random.Random) -> str:
    """Returns a text of a rule, all of its slots filled.

    Args:
      name: of the rule.
      rng: chooses; the same state gives the same text.
    """
    return self._expand(name, rng, {})

  def _expand(self, name, rng, kept):
    """Returns a text of a rule or source; `kept` are the marked slots."""
    if name in self._sources:
      return self._sources[name](rng)
    return _SLOT.sub(
      lambda slot: self._fill(slot, rng, kept), rng.choice(self._rules[name])
    )

  def _fill(self, slot, rng, kept):
    low, high, name, mark = slot.groups()
    if low:
      return str(rng.randint(int(low), int(high)))
    if mark is None:
      return self._expand(name, rng, kept)
    if (name, mark) not in kept:
      others = {text for (other, _), text in kept.items() if other == name}
      text = self._expand(name, rng, kept)
      while text in others:
        text = self._expand(name, rng, kept)
      kept[name, mark] = text
    return kept[name, mark]
