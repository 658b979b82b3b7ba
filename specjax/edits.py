"""Edits of logits before they become a law: penalties, bias, minimum length.

With n(y) the number of times that token y stands in the output so far, the
logit l(y) becomes

  r(l(y)) - frequency n(y) - presence [n(y) > 0] + bias(y).

If y stands in prompt or output, r divides a positive logit by `repetition` and
multiplies a negative one by it (N. Keskar et al., "CTRL", arXiv 1909.05858, as
Hugging Face does); else it changes nothing.  Presence and frequency penalties
are those of OpenAI's interface.  Tokens that end a text get `-inf` as long as
the output is shorter than `min_new_tokens`.

So a law depends on what stands before it, and at the node of a tree that is its
whole branch: prompt, output, and the nodes on the way to it.
"""

from collections.abc import Mapping, Sequence

import chex
import jax
import jax.numpy as jnp
import numpy as np
from flax import struct
from jax.typing import ArrayLike

# Bias is stored for a multiple of this many tokens, so that near numbers share
# a program.
_BIAS_BUCKET = 16


@struct.dataclass
class Edits:
  """What is to be changed, one entry a row.

  Attributes:
    repetition: `[B]` float32 > 0; 1 changes nothing.
    presence: `[B]` float32, taken off once; 0 changes nothing.
    frequency: `[B]` float32, taken off for every time; 0 changes nothing.
    bias_ids: `[B, M]` int32 tokens with a bias.
    bias: `[B, M]` float32 what is added to their logits; 0 fills a row up.
    min_new_tokens: `[B]` int32 length of output before which no text ends.
    eos_ids: `[B, E]` int32 tokens that end a text.
  """

  repetition: jax.Array
  presence: jax.Array
  frequency: jax.Array
  bias_ids: jax.Array
  bias: jax.Array
  min_new_tokens: jax.Array
  eos_ids: jax.Array


@struct.dataclass
class History:
  """What stands before the places that laws belong to.

  Attributes:
    in_prompt: `[B, V]` bool; the tokens that stand in the prompt.
    counts: `[B, ..., V]` int32; how often each stands in the output.
  """

  in_prompt: jax.Array
  counts: jax.Array


def make(
  batch: int,
  *,
  repetition: ArrayLike = 1.0,
  presence: ArrayLike = 0.0,
  frequency: ArrayLike = 0.0,
  bias: Sequence[Mapping[int, float]] = (),
  min_new_tokens: ArrayLike = 0,
  eos_ids: Sequence[int] = (),
) -> Edits:
  """Returns edits of `batch` rows.

  Args:
    batch: number of rows `B`.
    repetition: one for all rows or `[B]`, as all others.
    presence: penalty.
    frequency: penalty.
    bias: from tokens to what is added to their logits, a mapping for every row;
      none for no bias.
    min_new_tokens: least number of output tokens, the ending one not counted.
    eos_ids: tokens that end a text, of all rows; wanted by `min_new_tokens`.

  Raises:
    ValueError: a parameter is out of its range, or there are not as many of
      them as rows.
  """
  shapes = {np.shape(x) for x in (repetition, presence, frequency)}
  shapes |= {np.shape(min_new_tokens)}
  if not shapes <= {(), (batch,)}:
    raise ValueError(f'expected parameters of {batch} rows, got {shapes}')
  if not np.all((np.asarray(repetition) > 0) & np.isfinite(repetition)):
    raise ValueError(f'expected repetition > 0, got {repetition}')
  for name, value in (('presence', presence), ('frequency', frequency)):
    if not np.all(np.isfinite(value)):
      raise ValueError(f'expected a finite {name} penalty, got {value}')
  if np.any(np.asarray(min_new_tokens) < 0):
    raise ValueError(f'expected min_new_tokens >= 0, got {min_new_tokens}')
  if np.any(min_new_tokens) and not eos_ids:
    raise ValueError('expected eos_ids with min_new_tokens, got none')
  full = lambda value, dtype: jnp.broadcast_to(jnp.asarray(value, dtype), batch)
  bias_ids, biases = _pad_bias(batch, bias)
  return Edits(
    repetition=full(repetition, jnp.float32),
    presence=full(presence, jnp.float32),
    frequency=full(frequency, jnp.float32),
    bias_ids=bias_ids,
    bias=biases,
    min_new_tokens=full(min_new_tokens, jnp.int32),
    eos_ids=jnp.tile(jnp.asarray(eos_ids, jnp.int32), (batch, 1)),
  )


def history(
  tokens: jax.Array,
  prompt_lengths: jax.Array,
  lengths: jax.Array,
  vocab_size: int,
) -> History:
  """Returns what stands in texts, prompts told from outputs.

  Args:
    tokens: `[B, S]` int32 prompt and output.
    prompt_lengths: `[B]`.
    lengths: `[B]` of prompt and output.
    vocab_size: `V`.

  Returns:
    The history of the next token, counts `[B, V]`.
  """
  place = jnp.arange(tokens.shape[1])
  is_prompt = place < prompt_lengths[:, None]
  is_output = ~is_prompt & (place < lengths[:, None])
  none = jnp.zeros((tokens.shape[0], vocab_size), jnp.int32)
  return History(
    in_prompt=_count(none, tokens, is_prompt) > 0,
    counts=_count(none, tokens, is_output),
  )


def extend(before: History, tokens: jax.Array, is_new: jax.Array) -> History:
  """Returns the histories after some of the given tokens.

  Args:
    before: with counts `[B, V]`.
    tokens: `[B, T]` int32.
    is_new: `[B, ..., T]` bool; which tokens come after `before`, for each of
      the histories that are wanted.

  Returns:
    Histories with counts `[B, ..., V]`.
  """
  return before.replace(counts=_count(before.counts, tokens, is_new))


def apply(logits: jax.Array, edits: Edits, before: History) -> jax.Array:
  """Returns the edited logits, `[B, ..., V]` float32.

  Args:
    logits: `[B, ..., V]` of the model.
    edits: of `B` rows.
    before: what stands before each place, counts `[B, ..., V]`.
  """
  chex.assert_equal_shape([logits, before.counts])
  logits = logits.astype(jnp.float32)
  rows = jnp.arange(logits.shape[0])[:, None]
  # From [B] or [B, V] to the rank of the logits.
  wide = lambda x: x.reshape(
    x.shape[0], *(1,) * (logits.ndim - 2), *(x.shape[1:] or (1,))
  )
  counts, is_said = before.counts, before.counts > 0
  repetition = wide(edits.repetition)
  logits = jnp.where(
    is_said | wide(before.in_prompt),
    jnp.where(logits > 0, logits / repetition, logits * repetition),
    logits,
  )
  logits -= wide(edits.frequency) * counts + wide(edits.presence) * is_said
  none = jnp.zeros_like(before.in_prompt, jnp.float32)
  logits += wide(none.at[rows, edits.bias_ids].add(edits.bias))
  is_end = jnp.zeros_like(before.in_prompt).at[rows, edits.eos_ids].set(True)
  num_new = jnp.sum(counts, axis=-1, keepdims=True)
  is_early = num_new < wide(edits.min_new_tokens)
  return jnp.where(wide(is_end) & is_early, -jnp.inf, logits)


def _count(counts, tokens, is_counted):
  """`[B, ..., V]`: counts `[B, V]` and one more for each token counted."""
  lead = is_counted.shape[1:-1]

  def one_row(counts, tokens, is_counted):
    wide = jnp.broadcast_to(counts, (*lead, *counts.shape))
    return wide.at[..., tokens].add(is_counted.astype(counts.dtype))

  return jax.vmap(one_row)(counts, tokens, is_counted)


def _pad_bias(batch, bias):
  """Mappings as `[B, M]` ids and values, filled up with a bias of 0."""
  if bias and len(bias) != batch:
    raise ValueError(f'expected a bias for {batch} rows, got {len(bias)}')
  most = max(map(len, bias), default=0)
  width = -(-most // _BIAS_BUCKET) * _BIAS_BUCKET
  ids = np.zeros((batch, width), np.int32)
  values = np.zeros((batch, width), np.float32)
  for row, mapping in enumerate(bias):
    ids[row, : len(mapping)] = list(mapping)
    values[row, : len(mapping)] = list(mapping.values())
  if np.any(ids < 0) or not np.all(np.isfinite(values)):
    raise ValueError(f'expected tokens with a finite bias each, got {bias}')
  return jnp.asarray(ids), jnp.asarray(values)
