"""Conversations: prompts that go on from earlier ones read only what is new."""

import functools
from collections.abc import Sequence

import jax.numpy as jnp
import numpy as np

from specjax import programs
from specjax import sampling as sampling_lib
from specjax.decode import generate as generate_lib
from specjax.decode import prefill, results
from specjax.decode import rows as rows_lib
from specjax.draft import base, scratch
from specjax.llama import model as llama_model


class Session:
  """Keeps what the verifier has read of a batch of texts.

  A prompt of the next turn goes on from the text of its row for as long as both
  have the same tokens; the tokens behind are read.  What comes of a turn is
  what comes of its prompts alone.

  Attributes:
    num_reused: of each prompt of the last turn, the tokens that were not read
      again.
  """

  def __init__(self, verifier: llama_model.Params):
    """Begins without a text.

    Args:
      verifier: the model.
    """
    self.num_reused: list[int] = []
    self._verifier = verifier
    self._kept = None

  def generate(
    self,
    prompts: Sequence[Sequence[int]],
    *,
    max_new_tokens: int,
    drafter: base.Drafter | None = None,
    sampling: sampling_lib.Sampling | None = None,
    seeds: Sequence[int] | None = None,
    max_length: int = 2048,
    **how,
  ) -> list[results.Generation]:
    """Decodes the next turn of all texts, in one batch.

    Drafters read the texts anew, into caches of their own; for one that wants
    to know features of every token the verifier does so too.

    Args:
      prompts: token ids of whole conversations, a row each.
      max_new_tokens: most tokens of an output.
      drafter: proposes the trees; None decodes plainly.
      sampling: a row for each prompt; temperature 1 by default.
      seeds: one for each prompt; its index by default.
      max_length: most tokens of prompt and output.
      **how: what else `generate.decode` takes; `eos_ids` at least.

    Returns:
      A generation for each prompt.

    Raises:
      ValueError: what `prefill.read_prompts` or `generate.decode` refuse, or
        another number of prompts than in the turns before.
    """
    if self._kept is not None and len(prompts) != len(self._kept.lengths):
      raise ValueError(
        f'expected {len(self._kept.lengths)} prompts as in the turn before, '
        f'got {len(prompts)}'
      )
    num_prompts = len(prompts)
    if sampling is None:
      sampling = sampling_lib.make(num_prompts)
    limits = {'max_new_tokens': max_new_tokens, 'max_length': max_length}
    rows = {
      'sampling': sampling,
      'seeds': range(num_prompts) if seeds is None else seeds,
    }
    features = () if drafter is None else drafter.features
    prefill.check(prompts, self._verifier.config, **limits, **rows)
    # A turn that fails leaves nothing to go on from.
    kept, self._kept = self._kept, None
    if kept is None or features:
      self.num_reused = [0] * num_prompts
      [batch] = prefill.read_prompts(
        self._verifier,
        prompts,
        batch_size=num_prompts,
        features=features,
        **limits,
        **rows,
      )
    else:
      batch = self._read_on(kept, prompts, **limits, **rows)
    return generate_lib.decode(
      self._verifier, batch, drafter=drafter, keep_fn=self._keep, **how
    )

  def _keep(self, state: rows_lib.DecodeState) -> None:
    self._kept = base.Prefix(
      state.tokens, state.lengths, state.seeds, state.cache
    )

  def _read_on(
    self, kept, prompts, *, max_new_tokens, max_length, sampling, seeds
  ):
    """Returns the batch of prompts; reads what is not in the cache."""
    tokens, lengths, limits = prefill.lay_out(
      prompts, max_new_tokens, max_length
    )
    num_slots = max(tokens.shape[1], kept.cache.num_slots)
    tokens = np.pad(tokens, [(0, 0), (0, num_slots - tokens.shape[1])])
    num_known = _num_common(kept, tokens)
    # The last token of a prompt is the first root and not read.
    num_known = np.minimum(num_known, lengths - 1)
    self.num_reused = num_known.tolist()
    cache = scratch.extend(kept.cache, num_slots - kept.cache.num_slots)
    num_new = lengths - 1 - num_known
    width = prefill.round_up(num_new.max(), prefill.WIDTH_BUCKET)
    places = np.minimum(num_known[:, None] + np.arange(width), num_slots - 1)
    cache = _read(
      self._verifier,
      cache.replace(length=jnp.asarray(num_known)),
      jnp.asarray(np.take_along_axis(tokens, places, axis=1)),
      jnp.asarray(num_new),
    )
    seeds = jnp.asarray(np.asarray(seeds, np.uint32))
    return prefill.Batch(
      prefix=base.Prefix(
        jnp.asarray(tokens), jnp.asarray(lengths), seeds, cache
      ),
      limits=jnp.asarray(limits, jnp.int32),
      sampling=sampling,
      num_prompts=len(prompts),
    )


def _num_common(kept, tokens):
  """Returns `[B]`: cached tokens with which each row of `[B, S]` begins."""
  size = kept.tokens.shape[1]
  is_same = tokens[:, :size] == np.asarray(kept.tokens)
  is_same &= np.arange(size) < np.asarray(kept.lengths)[:, None] - 1
  return np.cumprod(is_same, axis=1, dtype=np.int32).sum(axis=1, dtype=np.int32)


@functools.partial(programs.jit, donate_argnames='cache')
def _read(verifier, cache, tokens, lengths):
  return llama_model.prefill(verifier, tokens, lengths, cache)[1]
