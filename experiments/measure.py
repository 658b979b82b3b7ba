"""Measurements on one batch of prompts: texts, laws, runs and the oracle.

Every function returns arrays of its batch's prompts alone, ready to be kept on
disk.  A *place* is the index of a token in the output of a prompt, counted from
0; a start at a place drafts that token and those after it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np

from experiments import drafters
from specjax import parallel
from specjax import sampling as sampling_lib
from specjax.decode import generate, prefill, score
from specjax.llama import cache as llama_cache
from specjax.llama import model as llama_model
from specjax.theory import entropy

Arrays = Mapping[str, np.ndarray]

# From `log_p [..., V]` and `tokens [...]` to a pytree `[..., *]`.
SummaryFn = Callable[[jax.Array, jax.Array], chex.ArrayTree]

# Most probable tokens kept of every law.  The bounds on starts are exact for
# thresholds up to log of it, 5.5 nats.
NUM_TOP = 256


class Text(NamedTuple):
  """The texts of a batch as the verifier has read them.

  Attributes:
    tokens: `[B, S]` prompt and output.
    prompt_lengths: `[B]`.
    hidden: `[B, S, E]` after every token.
    cache: of all tokens, with scratch slots at its end.
    sampling: `[B]`.
  """

  tokens: jax.Array
  prompt_lengths: jax.Array
  hidden: jax.Array
  cache: llama_cache.KVCache
  sampling: sampling_lib.Sampling


def plain_texts(
  verifier: llama_model.Params,
  batch: prefill.Batch,
  eos_ids: tuple[int, ...],
  max_new_tokens: int,
  progress_fn: Callable[[int], None],
) -> Arrays:
  """Decodes plainly.

  Returns:
    `tokens [R, T]` outputs, padded with 0, and `num_tokens [R]`.
  """
  results = generate.decode(
    verifier, batch, eos_ids=eos_ids, chunk=8, progress_fn=progress_fn
  )
  return {
    'tokens': pad([r.tokens for r in results], max_new_tokens),
    'num_tokens': np.array([len(r.tokens) for r in results], np.int32),
  }


def drafter_run(
  verifier: llama_model.Params,
  batch: prefill.Batch,
  eos_ids: tuple[int, ...],
  drafting: drafters.Drafting,
  num_nodes: int,
  max_new_tokens: int,
  progress_fn: Callable[[int], None],
) -> Arrays:
  """Decodes by speculation.

  Returns:
    `tokens [R, T]`, `num_tokens [R]`, `num_steps [R]`, and of each iteration
    `place`, `num_nodes`, `depth` and `emitted`, all `[R, T]` and padded with 0.
  """
  limits = jnp.minimum(batch.prefix.lengths + max_new_tokens, batch.limits)
  results = generate.decode(
    verifier,
    batch._replace(limits=limits),
    eos_ids=eos_ids,
    drafter=drafting.drafter,
    drafter_params=drafting.params,
    num_nodes=num_nodes,
    rule=drafting.rule,
    chunk=8,
    progress_fn=progress_fn,
  )
  prompt_lengths = np.asarray(batch.prefix.lengths)
  starts = [
    r.steps.start - length
    for r, length in zip(results, prompt_lengths, strict=False)
  ]
  steps = [r.steps for r in results]
  return {
    'tokens': pad([r.tokens for r in results], max_new_tokens),
    'num_tokens': np.array([len(r.tokens) for r in results], np.int32),
    'num_steps': np.array([len(s.start) for s in steps], np.int32),
    'place': pad(starts, max_new_tokens),
    'num_nodes': pad([s.num_nodes for s in steps], max_new_tokens),
    'depth': pad([s.depth for s in steps], max_new_tokens),
    'emitted': pad([s.emitted for s in steps], max_new_tokens),
  }


def plain_run(texts: Arrays, max_new_tokens: int) -> Arrays:
  """The run of a tree of one node: every token is an iteration.

  Args:
    texts: what `plain_texts` returned.
    max_new_tokens: tokens of the run.

  Returns:
    The arrays of `drafter_run`.
  """
  num_tokens = np.minimum(texts['num_tokens'], max_new_tokens)
  places = np.arange(max_new_tokens, dtype=np.int32)
  is_step = (places < num_tokens[:, None]).astype(np.int32)
  return {
    'tokens': texts['tokens'][:, :max_new_tokens] * is_step,
    'num_tokens': num_tokens,
    'num_steps': num_tokens,
    'place': places * is_step,
    'num_nodes': is_step,
    'depth': 0 * is_step,
    'emitted': is_step,
  }


def whole_texts(batch: prefill.Batch, texts: Arrays) -> np.ndarray:
  """Returns `[B, S]` the prompts of a batch, each with its output behind it.

  Args:
    batch: the prompts.
    texts: what `plain_texts` returned.
  """
  tokens = np.array(batch.prefix.tokens)
  lengths = np.asarray(batch.prefix.lengths)
  for row in range(batch.num_prompts):
    output = texts['tokens'][row, : texts['num_tokens'][row]]
    tokens[row, lengths[row] : lengths[row] + len(output)] = output
  return tokens


def read_texts(
  verifier: llama_model.Params,
  batch: prefill.Batch,
  texts: Arrays,
  num_scratch: int,
) -> Text:
  """Runs prompts and outputs through the verifier once.

  Args:
    verifier: the model.
    batch: the prompts.
    texts: what `plain_texts` returned.
    num_scratch: scratch slots of the cache, for the oracle's trees.
  """
  tokens = parallel.put_rows(whole_texts(batch, texts), batch.layout)
  hidden, cache = score.read(verifier, tokens, tokens.shape[1] + num_scratch)
  return Text(tokens, batch.prefix.lengths, hidden, cache, batch.sampling)


def laws(verifier: llama_model.Params, text: Text, texts: Arrays) -> Arrays:
  """Summarises the law at every place of the outputs.

  Args:
    verifier: the model.
    text: the texts as read.
    texts: what `plain_texts` returned.

  Returns:
    The fields of `entropy.LawSummary`, `[R, T, ...]`.
  """
  summary = at_places(verifier, text, texts, text.sampling, _summarise)
  return vars(summary)


def moments_fn(settings: sampling_lib.Sampling) -> SummaryFn:
  """Returns what `moments_under` takes, one for all batches: one program.

  Args:
    settings: `[P]`.
  """

  def under_settings(log_p, tokens):
    del tokens
    moments = entropy.moments_under(log_p, settings)
    return {k: jnp.moveaxis(v, 0, -1) for k, v in moments._asdict().items()}

  return under_settings


def moments_under(
  verifier: llama_model.Params, text: Text, texts: Arrays, fn: SummaryFn
) -> Arrays:
  """Finds the moments that other settings' laws have where the outputs are.

  Args:
    verifier: the model.
    text: the texts as read.
    texts: what `plain_texts` returned.
    fn: of P settings, by `moments_fn`.

  Returns:
    `mu [R, T, P]` in nats and `mu2 [R, T, P]`.
  """
  # The law without temperature and filters stands for its logits.
  neutral = sampling_lib.make(len(text.tokens))
  return at_places(verifier, text, texts, neutral, fn)


def at_places(
  verifier: llama_model.Params,
  text: Text,
  texts: Arrays,
  sampling: sampling_lib.Sampling,
  summary_fn: SummaryFn,
) -> chex.ArrayTree:
  """Summarises laws where the outputs are.

  Args:
    verifier: the model.
    text: the texts as read.
    texts: what `plain_texts` returned.
    sampling: of the laws, `[B]`.
    summary_fn: what is kept of them, the same for all batches: one program.

  Returns:
    What it returned, `[R, T, ...]`; of no meaning past the end of an output.
  """
  num_rows, width = texts['tokens'].shape
  last = text.tokens.shape[1] - 1
  before = text.prompt_lengths[:, None] - 1 + jnp.arange(width)
  hidden = jax.vmap(lambda h, i: h[i])(text.hidden, jnp.minimum(before, last))
  tokens = jnp.zeros((len(hidden), width), jnp.int32)
  summary = score.laws(
    verifier,
    hidden,
    tokens.at[:num_rows].set(texts['tokens']),
    sampling,
    summary_fn,
  )
  return jax.tree.map(lambda x: np.asarray(x)[:num_rows], summary)


def _summarise(log_p, tokens):
  return entropy.summarise(log_p, tokens, NUM_TOP)


def pad(rows: Sequence[Sequence[int]], width: int) -> np.ndarray:
  """Returns rows of unequal length as `[R, width]` int32, 0 past their ends."""
  padded = np.zeros((len(rows), width), np.int32)
  for row, values in zip(padded, rows, strict=True):
    row[: len(values)] = values
  return padded
