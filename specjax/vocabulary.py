"""Vocabularies as `tokenizers.Tokenizer`s: bytes, byte pairs, SentencePiece.

A GGUF file lists tokens, merges or scores, and names the rest (how text is
normalised and cut before merging); this module knows what those names mean.
"""

from collections.abc import Mapping, Sequence

import tokenizers
from tokenizers import (
  decoders,
  models,
  normalizers,
  pre_tokenizers,
  processors,
)

# Sources: the `tokenizer.json` files of Llama-3 and Qwen2.
_LLAMA3_WORDS = (
  r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
  r'| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+'
)
_QWEN2_WORDS = _LLAMA3_WORDS.replace(r'\p{N}{1,3}', r'\p{N}')

# GGUF token types; https://github.com/ggml-org/ggml/blob/master/docs/gguf.md
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED = 1, 2, 3, 4

_SPACE = '\u2581'  # SentencePiece writes a space as this character.


def byte_level() -> tokenizers.Tokenizer:
  """Builds the vocabulary whose ids 0..255 are the bytes of UTF-8 text.

  Returns:
    A vocabulary of 258 ids; 256 is `<|bos|>`, put in front of whole texts, and
    257 is `<|eos|>`.
  """
  vocab = {char: byte for byte, char in enumerate(_byte_chars())}
  backend = tokenizers.Tokenizer(models.BPE(vocab=vocab, merges=[]))
  backend.pre_tokenizer = _bytes_of_words(use_regex=False)
  backend.decoder = decoders.ByteLevel()
  backend.add_special_tokens(['<|bos|>', '<|eos|>'])
  _put_in_front(backend, 256)
  return backend


def from_gguf(metadata: Mapping[str, object]) -> tokenizers.Tokenizer:
  """Builds the vocabulary that a GGUF file describes.

  Args:
    metadata: the file's keys and values; those that begin with
      `tokenizer.ggml.` are read.

  Returns:
    The vocabulary, its special tokens recognised in text, and the begin token
    put in front of whole texts where the file says so.

  Raises:
    ValueError: for a kind of vocabulary or of word splitting that is not known
      here, for a missing key, and for merges that do not suit the tokens.
  """
  kind = _require(metadata, 'model')
  tokens = _require(metadata, 'tokens')
  types = _require(metadata, 'token_type')
  if kind == 'gpt2':
    words = metadata.get('tokenizer.ggml.pre', 'default')
    backend = _byte_pair(tokens, _require(metadata, 'merges'), words)
    adds_bos = words == 'llama-bpe'
  elif kind == 'llama':
    backend = _sentence_piece(
      tokens,
      _require(metadata, 'scores'),
      types,
      metadata.get('tokenizer.ggml.add_space_prefix', True),
    )
    adds_bos = True
  else:
    raise ValueError(
      f"expected a GGUF vocabulary of kind 'gpt2' or 'llama', got {kind!r}"
    )
  _add_special(backend, tokens, types)
  bos_id = metadata.get('tokenizer.ggml.bos_token_id')
  adds_bos = metadata.get('tokenizer.ggml.add_bos_token', adds_bos)
  if adds_bos and bos_id is not None:
    _put_in_front(backend, bos_id)
  return backend


def _byte_pair(
  tokens: Sequence[str], merges: Sequence[str], words: str
) -> tokenizers.Tokenizer:
  """Builds a byte-level BPE vocabulary; `words` names how text is cut."""
  # Llama-3 takes a whole word that is a token as it is, merges or not.
  model = _merger(
    vocab={token: i for i, token in enumerate(tokens)},
    merges=[tuple(merge.split(' ', 1)) for merge in merges],
    ignore_merges=words == 'llama-bpe',
  )
  backend = tokenizers.Tokenizer(model)
  backend.pre_tokenizer = _word_splitter(words)
  backend.decoder = decoders.ByteLevel()
  if words == 'qwen2':
    backend.normalizer = normalizers.NFC()
  return backend


def _word_splitter(words: str) -> pre_tokenizers.PreTokenizer:
  """Gives the pre-tokenizer behind a GGUF `tokenizer.ggml.pre` name."""
  match words:
    case 'gpt-2' | 'default':
      return _bytes_of_words(use_regex=True)
    case 'smollm':
      steps = [
        pre_tokenizers.Digits(individual_digits=True),
        _bytes_of_words(use_regex=True),
      ]
    case 'llama-bpe' | 'qwen2':
      pattern = _LLAMA3_WORDS if words == 'llama-bpe' else _QWEN2_WORDS
      steps = [
        pre_tokenizers.Split(tokenizers.Regex(pattern), 'isolated'),
        _bytes_of_words(use_regex=False),
      ]
    case _:
      raise ValueError(
        "expected a pre-tokenizer of kind 'gpt-2', 'default', 'smollm', "
        f"'llama-bpe' or 'qwen2', got {words!r}"
      )
  return pre_tokenizers.Sequence(steps)


def _bytes_of_words(use_regex: bool) -> pre_tokenizers.PreTokenizer:
  """Spells text as bytes, cut before by GPT-2's rule when `use_regex`."""
  return pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex)


def _sentence_piece(
  tokens: Sequence[str],
  scores: Sequence[float],
  types: Sequence[int],
  add_space_prefix: bool,
) -> tokenizers.Tokenizer:
  """Builds a SentencePiece BPE vocabulary with byte fallback.

  SentencePiece joins the two neighbours whose union scores best.  As merges:
  every split of a normal token into two tokens, the best scored token first.
  """
  ids = {token: i for i, token in enumerate(tokens)}
  unknown = [tokens[i] for i, kind in enumerate(types) if kind == _UNKNOWN]
  splits = sorted(
    (-scores[i], ids[token[:cut]], ids[token[cut:]])
    for i, token in enumerate(tokens)
    if types[i] == _NORMAL
    for cut in range(1, len(token))
    if token[:cut] in ids and token[cut:] in ids
  )
  model = _merger(
    vocab=ids,
    merges=[(tokens[left], tokens[right]) for _, left, right in splits],
    unk_token=unknown[0] if unknown else None,
    fuse_unk=True,
    byte_fallback=True,
  )
  backend = tokenizers.Tokenizer(model)
  rules = [normalizers.Replace(' ', _SPACE)]
  reverse = [
    decoders.Replace(_SPACE, ' '),
    decoders.ByteFallback(),
    decoders.Fuse(),
  ]
  if add_space_prefix:
    rules.insert(0, normalizers.Prepend(_SPACE))
    reverse.append(decoders.Strip(' ', 1, 0))
  backend.normalizer = normalizers.Sequence(rules)
  backend.decoder = decoders.Sequence(reverse)
  return backend


def _merger(**options) -> models.BPE:
  try:
    return models.BPE(**options)
  except Exception as error:  # The library raises nothing narrower.
    raise ValueError(
      f'expected merges of tokens in the vocabulary, got: {error}'
    ) from error


def _add_special(
  backend: tokenizers.Tokenizer, tokens: Sequence[str], types: Sequence[int]
) -> None:
  """Makes control and user-defined tokens be recognised in text."""
  special = [
    token
    for token, kind in zip(tokens, types, strict=True)
    if kind in (_UNKNOWN, _CONTROL)
  ]
  user_defined = [
    tokenizers.AddedToken(token, normalized=False)
    for token, kind in zip(tokens, types, strict=True)
    if kind == _USER_DEFINED
  ]
  backend.add_special_tokens(special)
  backend.add_tokens(user_defined)


def _put_in_front(backend: tokenizers.Tokenizer, token: int) -> None:
  """Makes `encode` with special tokens begin with `token`."""
  text = backend.id_to_token(token)
  backend.post_processor = processors.TemplateProcessing(
    single=f'{text}:0 $A:0',
    pair=f'{text}:0 $A:0 {text}:1 $B:1',
    special_tokens=[(text, token)],
  )


def _byte_chars() -> list[str]:
  """Lists the printable characters by which GPT-2 writes bytes 0..255."""
  printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
  stand_ins = iter(range(256, 512))
  return [
    chr(byte if byte in printable else next(stand_ins)) for byte in range(256)
  ]


def _require(metadata: Mapping[str, object], name: str) -> object:
  key = f'tokenizer.ggml.{name}'
  if key not in metadata:
    raise ValueError(f'expected the GGUF key {key}, got none')
  return metadata[key]
