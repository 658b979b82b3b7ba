"""Texts of bytes: prompts with what plain decoding says, and slow searches."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import reference_decode
import reference_edits

from specjax import sampling as sampling_lib
from specjax import tokenizer as tokenizer_lib
from specjax.decode import generate, results
from specjax.llama import model as llama_model

VOCAB = 258
EOS = (257,)
MAX_NEW = 24
MAX_LENGTH = 128
NUM_NODES = 7

_PROMPTS = ('a', 'b€ ba', 'c is the third letter', 'd is no')
_BIAS = (
  *((byte, 6.0) for byte in b'abc '),
  *((byte, 4.0) for byte in '€'.encode()),
  (257, 4.5),
)
_SETTINGS = [
  reference_edits.Setting(**numbers, bias=_BIAS, eos_ids=EOS)
  for numbers in (
    {'temperature': 0.0, 'repetition': 1.2},
    {'min_new_tokens': 6},
    {'temperature': 0.8, 'top_k': 6},
    {'frequency': 0.2, 'top_p': 0.9},
  )
]
TOKENIZER = tokenizer_lib.byte_level()


class Talk(NamedTuple):
  """Prompts, how they are to be decoded, and what plain decoding says.

  Attributes:
    prompts: token ids.
    sampling: a row for each.
    seeds: one for each.
    plain: of each prompt, decoded on its own.
  """

  prompts: list
  sampling: sampling_lib.Sampling
  seeds: list
  plain: list

  def request(self):
    """Arguments of `generate` that say what is wanted."""
    return {
      'sampling': self.sampling,
      'seeds': self.seeds,
      'eos_ids': EOS,
      'max_new_tokens': MAX_NEW,
      'max_length': MAX_LENGTH,
      'tokenizer': TOKENIZER,
    }

  def drafting(self):
    """Arguments of `generate` for drafts that are often right."""
    return {
      'drafter': PLANTED,
      'drafter_params': truth(self.prompts, self.plain),
      'num_nodes': NUM_NODES,
    }


# One object, so that what was compiled with it is found again.
PLANTED = reference_decode.planted(VOCAB)


def make_talk(params: llama_model.Params) -> Talk:
  prompts = [TOKENIZER.encode(text) for text in _PROMPTS]
  sampling = reference_edits.sampling_of(_SETTINGS)
  talk = Talk(prompts, sampling, [20, 21, 22, 23], [])
  return talk._replace(plain=plain(params, talk, prompts))


def plain(params, talk, prompts, **wanted) -> list[results.Generation]:
  """Decodes prompts of a talk plainly, each on its own."""
  found = []
  for row, prompt in enumerate(prompts):
    one = jax.tree.map(lambda x, row=row: x[row : row + 1], talk.sampling)
    own = {'sampling': one, 'seeds': talk.seeds[row : row + 1]}
    lists = {k: v[row : row + 1] for k, v in wanted.items()}
    found += generate.generate(params, [prompt], **talk.request() | own | lists)
  return found


def truth(prompts, outputs):
  """`[V, S]`: prompt and output by first token, for the planted drafter."""
  table = np.zeros((VOCAB, MAX_LENGTH), np.int32)
  for prompt, output in zip(prompts, outputs, strict=True):
    whole = [*prompt, *output.tokens]
    table[prompt[0], : len(whole)] = whole
  return jnp.asarray(table)


def stop(tokens, stops, min_tokens=0):
  """Cuts tokens of the byte-level tokenizer at the first stop string.

  Returns:
    The text, the number of tokens that belong to it, and whether it was cut.
  """
  for count in range(1, len(tokens) + 1):
    said = bytes(tokens[:count])
    ends = [s.encode() for s in stops if said.endswith(s.encode())]
    if count >= min_tokens and ends:
      longest = max(map(len, ends))
      return said[:-longest].decode(errors='replace'), count, True
  return bytes(tokens).decode(errors='replace'), len(tokens), False
