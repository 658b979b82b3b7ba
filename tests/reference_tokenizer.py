"""Slow tokenizers in plain Python: byte pairs and SentencePiece."""

import re
import unicodedata

GPT2_WORDS = (
  "'s|'t|'re|'ve|'m|'ll|'d| ?[{L}]+| ?[{N}]+"
  r'| ?[^\s{L}{N}]+|\s+(?!\S)|\s+'
)
LLAMA3_WORDS = (
  "'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD]"
  r'|[^\r\n{L}{N}]?[{L}]+|[{N}]{1,3}'
  r'| ?[^\s{L}{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+'
)
QWEN2_WORDS = LLAMA3_WORDS.replace('{1,3}', '')


def words(text, pattern):
  """Cuts `text`; `{L}` and `{N}` stand for its letters and its numbers."""
  for kind in 'LN':
    members = {c for c in text if unicodedata.category(c)[0] == kind}
    # U+E000 is private: a class may not be empty.
    members = re.escape(''.join(sorted(members | {'\ue000'})))
    pattern = pattern.replace('{' + kind + '}', members)
  return re.findall(pattern, text)


def single_digits(text):
  """Cuts every number sign off as a piece of its own."""
  pieces = ['']
  for c in text:
    if unicodedata.category(c)[0] == 'N':
      pieces += [c, '']
    else:
      pieces[-1] += c
  return [piece for piece in pieces if piece]


def byte_pairs(word, merges, spell):
  """Merges the byte pair of lowest rank until none is left.

  Args:
    word: a str.
    merges: dict from a pair of strings to its rank.
    spell: list of 256 strings, how a byte is written in the vocabulary.

  Returns:
    A list of strings.
  """
  parts = [spell[byte] for byte in word.encode()]
  while True:
    pairs = list(zip(parts, parts[1:], strict=False))
    best = min(pairs, key=lambda pair: merges.get(pair, 1e9), default=None)
    if best not in merges:
      return parts
    parts = _join(parts, pairs.index(best))


def sentence_piece(text, scores):
  """Joins the neighbours whose union scores best; unknown signs as bytes."""
  parts = list('\u2581' + text.replace(' ', '\u2581'))
  while True:
    unions = [a + b for a, b in zip(parts, parts[1:], strict=False)]
    best = max(unions, key=lambda union: scores.get(union, -1e9), default=None)
    if best not in scores:
      break
    parts = _join(parts, unions.index(best))
  pieces = []
  for part in parts:
    known = part in scores
    pieces += [part] if known else [f'<0x{b:02X}>' for b in part.encode()]
  return pieces


def _join(parts, at):
  return parts[:at] + [parts[at] + parts[at + 1]] + parts[at + 2 :]
