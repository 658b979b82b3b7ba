"""A verifier without some layers as its own drafter, judged along its texts."""

from collections.abc import Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np

from specjax.llama import model as llama_model
from specjax.llama import packed, storage


def pack(
  prompts: Sequence[Sequence[int]], texts: Mapping[str, np.ndarray]
) -> dict[str, np.ndarray]:
  """Puts texts one behind the other, so that no place is wasted.

  Args:
    prompts: `R` of them, as token ids.
    texts: `tokens [R, T]` outputs and `num_tokens [R]`.

  Returns:
    Of the `P` tokens of all texts `packed [P]`, the `row [P]` they belong to
    and their `position [P]` there; and of the outputs `tokens [R, T]` and the
    place in `packed` of what stands `before [R, T]` each of them.
  """
  whole = [
    [*prompt, *output[:size]]
    for prompt, output, size in zip(
      prompts, texts['tokens'], texts['num_tokens'], strict=True
    )
  ]
  sizes = np.array([len(text) for text in whole])
  first = np.cumsum(sizes) - sizes + [len(prompt) - 1 for prompt in prompts]
  before = first[:, None] + np.arange(texts['tokens'].shape[1])
  return {
    'packed': np.concatenate(whole).astype(np.int32),
    'row': np.repeat(np.arange(len(whole)), sizes),
    'position': np.concatenate([np.arange(size) for size in sizes]),
    'tokens': texts['tokens'],
    'before': np.minimum(before, sizes.sum() - 1),
  }


@jax.jit
def agrees(
  verifier: llama_model.Params, texts: Mapping[str, jax.Array], kept: jax.Array
) -> jax.Array:
  """Tells where a verifier without some layers would draft what is said.

  A layer that adds nothing to the residual stream is a layer left out: so one
  program serves them all.

  Args:
    verifier: the model.
    texts: what `pack` returned.
    kept: `[L]` 1 for a layer that runs, 0 for one that is left out.

  Returns:
    `[R, T]` bool; of no meaning past the end of a text.
  """
  layers = dict(verifier.weights['layers'])
  for name in ('o', 'down'):
    layers[name] = storage.masked(layers[name], kept)
  model = verifier.replace(weights=verifier.weights | {'layers': layers})
  hidden, _ = packed.read(
    model, texts['packed'][None], texts['position'][None], texts['row'][None]
  )
  logits = llama_model.head(model, hidden[0, texts['before']])
  return jnp.argmax(logits, axis=-1) == texts['tokens']


def keeping(num_layers: int, skipped: Sequence[int]) -> jax.Array:
  """Returns `[L]`: 0 for the layers left out, 1 for all others."""
  return jnp.ones(num_layers).at[jnp.asarray(skipped, jnp.int32)].set(0.0)


def shares(verifier: llama_model.Params) -> np.ndarray:
  """Returns `[L + 1]`: the weights that a pass reads without 0 .. L layers.

  As a share of those of the whole model; the head is always read.

  Args:
    verifier: the model.
  """
  num_layers = verifier.config.num_layers
  stacks = verifier.weights['layers'].values()
  of_layers = sum(storage.num_bytes(stack) for stack in stacks)
  of_head = storage.num_bytes(llama_model.head_matrix(verifier))
  kept = num_layers - np.arange(num_layers + 1)
  return (of_layers * kept / num_layers + of_head) / (of_layers + of_head)


def chain_tokens(
  agree: np.ndarray, num_tokens: np.ndarray, most_drafts: int
) -> np.ndarray:
  """Returns `[most_drafts + 1]`: what chains of 0, 1, .. drafts win, `E_d`.

  Args:
    agree: `[R, T]` bool; where the drafter's best token is the text's.
    num_tokens: `[R]` tokens of each text.
    most_drafts: longest chain.
  """
  won = [1.0]
  for drafts in range(1, most_drafts + 1):
    windows = [
      np.lib.stride_tricks.sliding_window_view(row[:size], drafts).all(axis=1)
      for row, size in zip(agree, num_tokens, strict=True)
      if size >= drafts
    ]
    share = np.concatenate(windows).mean() if windows else 0.0
    won.append(won[-1] + float(share))
  return np.array(won)
