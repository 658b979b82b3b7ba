"""Prompts with their plain texts, and the ways to decode them."""

import functools
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import reference_decode
import reference_drafts
import reference_edits

from specjax import sampling as sampling_lib
from specjax.decode import prefill
from specjax.draft import bigram, lookup, oracle
from specjax.trees import shapes

VOCAB = 23
EOS = (4, 22)
MAX_LENGTH = 128
MAX_NEW = 12
SETTINGS = [
  reference_edits.Setting(*numbers)
  for numbers in (
    (0.0, 0, 1.0, 0.0),
    (1.0, 0, 1.0, 0.0),
    (0.7, 3, 1.0, 0.0),
    (1.0, 0, 0.6, 0.0),
    (0.0, 0, 1.0, 0.0),
    (1.0, 0, 1.0, 0.0),
    (1.0, 0, 1.0, 0.2),
    (0.5, 5, 0.9, 0.05),
  )
]
EDITS = [
  reference_edits.Setting(**edits, eos_ids=EOS)
  for edits in (
    {'temperature': 0.0, 'repetition': 1.4},
    {'repetition': 1.4},
    {'temperature': 0.0, 'presence': 1.0, 'frequency': 0.5},
    {'bias': ((7, 4.0), (11, -5.0)), 'temperature': 0.7},
    {'frequency': 0.7, 'top_k': 8},
    {},
    {'bias': tuple((token, 3.0) for token in EOS), 'min_new_tokens': 5},
    {'presence': 0.6},
  )
]


# Shape of the trees that are drawn.
DRAWN = (-1, 0, 0, 1, 1, 2)


class Case(NamedTuple):
  """Prompts with distinct first tokens, and what plain decoding makes of them.

  `texts` and `log_probs` go on to the limit, whatever ends them.
  """

  prompts: list
  seeds: list
  sampling: sampling_lib.Sampling
  texts: list
  log_probs: list

  def outputs(self, max_new_tokens=MAX_NEW):
    """Tokens, log-probabilities and finish reason of each prompt."""
    for text, log_probs in zip(self.texts, self.log_probs, strict=True):
      tokens = reference_decode.cut(text, EOS, max_new_tokens)
      reason = 'eos' if tokens[-1] in EOS else 'length'
      yield tokens, log_probs[: len(tokens)], reason

  def batches(self, params, max_new_tokens=MAX_NEW):
    """The prompts in batches of eight, read."""
    return prefill.read_prompts(
      params,
      self.prompts,
      max_new_tokens=max_new_tokens,
      sampling=self.sampling,
      seeds=self.seeds,
      max_length=MAX_LENGTH,
      batch_size=8,
    )

  def truth(self):
    """`[V, S]`: prompt and text by first token, for the planted drafter."""
    table = np.zeros((VOCAB, MAX_LENGTH), np.int32)
    for prompt, text in zip(self.prompts, self.texts, strict=True):
      whole = [*prompt, *text]
      table[prompt[0], : len(whole)] = whole
    return jnp.asarray(table)


def make_case(params, prompts, settings):
  sampling = reference_edits.sampling_of(settings)
  seeds = [100 + i for i in range(len(prompts))]
  outputs = []
  for row, (prompt, setting) in enumerate(zip(prompts, settings, strict=True)):
    one = jax.tree.map(lambda x, row=row: x[row : row + 1], sampling)
    edit_fn = functools.partial(slow_edit, setting, prompt)
    outputs.append(
      reference_decode.plain(
        params,
        prompt,
        (),
        MAX_NEW,
        MAX_LENGTH,
        seeds[row],
        one.replace(edits=None),
        edit_fn,
      )
    )
  texts, log_probs = map(list, zip(*outputs, strict=True))
  return Case(list(prompts), seeds, sampling, texts, log_probs)


def slow_edit(setting, prompt, logits, output):
  return reference_edits.slow_edit(logits, setting, prompt, output)


def setups(mixed):
  """Arguments of `decode` by name."""
  texts = [[*p, *t] for p, t in zip(mixed.prompts, mixed.texts, strict=True)]
  table = bigram.corpus_table(texts, VOCAB)
  laws = jax.random.normal(jax.random.key(0), (VOCAB, VOCAB))
  laws = jax.nn.log_softmax(laws)
  binary = lambda n: shapes.k_ary(n, 2)
  kinds = {
    'planted': (reference_decode.planted(VOCAB), mixed.truth(), 7),
    'lookup': (lookup.make(max_match=2), (), 5),
    'bigram': (bigram.make(binary), table, 7),
    'oracle': (oracle.make(4, EOS), (), 4),
    'drawn': (reference_drafts.make(DRAWN, False), laws, len(DRAWN)),
  }
  speculative = {
    name: {
      'drafter': reference_decode.spy(drafter, num_nodes),
      'drafter_params': params,
      'num_nodes': num_nodes,
      'eos_ids': EOS,
    }
    for name, (drafter, params, num_nodes) in kinds.items()
  }
  speculative['drawn']['rule'] = 'without_replacement'
  return speculative | {'plain': {'eos_ids': EOS}}
