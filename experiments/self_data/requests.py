"""Different prompts by the thousand, of the six kinds of our own set.

They are made of a grammar (`data/grammar.json`) and of texts and functions of
the standard library.  The same seed gives the same prompts on the same release
of Python.
"""

import functools
import json
import pathlib
import random
import re
from collections.abc import Callable, Iterator
from pydoc_data import topics

from experiments import prompts as prompts_lib
from experiments.self_data import grammar as grammar_lib
from specjax.train import stdlib

KINDS = ('chat', 'reasoning', 'code', 'summarise', 'translate', 'rewrite')

_RULES = pathlib.Path(__file__).parents[1] / 'data' / 'grammar.json'

# Of a given text, in words, and of a given function, in lines; and of both in
# characters, for a prompt has to be read before it is answered.
_MIN_WORDS = 30
_MIN_LINES, _MAX_LINES = 4, 20
_MAX_CHARS = 700

# Draws in a row that bring nothing new before the grammar counts as used up.
_PATIENCE = 1000

# One word in so many gets a typing error.
_WORDS_PER_TYPO = 8


def make(
  num_prompts: int, seed: int, is_excluded: Callable[[str], bool]
) -> list[prompts_lib.Prompt]:
  """Makes prompts that all differ, the kinds taking turns.

  Args:
    num_prompts: how many.
    seed: of the choices.
    is_excluded: says of a text whether it must not be a prompt.

  Returns:
    The prompts; fewer of them are the first of more.

  Raises:
    ValueError: the grammar has not as many.
  """
  streams = [_different(kind, seed, is_excluded) for kind in KINDS]
  return [next(streams[number % len(streams)]) for number in range(num_prompts)]


def _different(kind, seed, is_excluded) -> Iterator[prompts_lib.Prompt]:
  """Gives prompts of a kind, without end and each but once."""
  rng = random.Random(f'{kind} {seed}')
  seen = set()
  while True:
    for _ in range(_PATIENCE):
      text = _grammar().text(kind, rng)
      if text not in seen and not is_excluded(text):
        break
    else:
      raise ValueError(
        f'expected at most {len(seen)} prompts of the kind {kind}, got a wish '
        'for more'
      )
    seen.add(text)
    yield prompts_lib.Prompt(f'{kind}-{len(seen):05}', kind, text)


@functools.cache
def _grammar():
  """Returns the grammar of all kinds; reading the library takes seconds."""
  rules = json.loads(_RULES.read_text('utf-8'))
  sources = stdlib.sources()
  docstrings = [p.text for s in sources for p in stdlib.docstrings(s)]
  paragraphs = [
    paragraph
    for text in [*docstrings, *topics.topics.values()]
    for paragraph in _paragraphs(text)
  ]
  functions = [
    p.text for s in sources for p in stdlib.functions(s) if _is_short(p.text)
  ]
  grammar = grammar_lib.Grammar(
    rules,
    {
      'docstring': _one_of(filter(_is_readable, docstrings)),
      'function': _one_of(functions),
      'prose': _one_of(paragraphs),
      'typos': lambda rng: _spoil(grammar.text('report', rng), rng),
    },
  )
  return grammar


def _one_of(texts):
  """Returns what chooses one of the texts, each of which stands there once."""
  texts = list(dict.fromkeys(texts))
  return lambda rng: rng.choice(texts)


def _paragraphs(text):
  """Gives the paragraphs of prose in a text, each as one line."""
  for block in re.split(r'\n\s*\n', text):
    paragraph = ' '.join(block.split())
    if _is_readable(paragraph) and re.match(r'[A-Z].*[.!?]$', paragraph):
      yield paragraph


def _is_readable(text):
  """Whether a text is long enough, not too long, and mostly of words."""
  num_letters = sum(char.isalpha() or char.isspace() for char in text)
  return (
    len(text) <= _MAX_CHARS
    and len(text.split()) >= _MIN_WORDS
    and num_letters >= 0.9 * len(text)
  )


def _is_short(source):
  num_lines = source.count('\n') + 1
  return _MIN_LINES <= num_lines <= _MAX_LINES and len(source) <= _MAX_CHARS


def _spoil(text, rng):
  """Returns the text with typing errors: two letters of a word swapped."""
  found = text.split(' ')
  for place, word in enumerate(found):
    if len(word) > 4 and word.isalpha() and rng.randrange(_WORDS_PER_TYPO) == 0:
      cut = rng.randrange(1, len(word) - 2)
      swapped = word[cut + 1] + word[cut]
      found[place] = word[:cut] + swapped + word[cut + 2 :]
  return ' '.join(found)
