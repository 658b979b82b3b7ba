"""Ties: how near each other scores lie, and how near they may by rounding.

Passes of different width add up in different order, so that scores differ: in
float32 by about 1e-4, and a gap below 1e-3 is a tie.

In bfloat16 what a layer gives to the next one, and to the cache, is rounded to
8 bits, and what that does to scores depends on the context.  There it is
measured: the text is read in one pass, and again token by token as plain
decoding reads it, and the *spread* is the standard deviation over the
vocabulary of what the scores changed by (a shift of all of them changes
nothing).  The changes of two scores are nearly normal and independent, so that
their difference changes by sqrt(2) spreads.  A tie is a gap below 6 spreads,
which are 4.2 standard deviations of that.
"""

from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from specjax import noise as noise_lib
from specjax import sampling as sampling_lib
from specjax.llama import model as llama_model

# Below it scores are a tie in float32.
TIE = 1e-3

# And below so many spreads in other types.
_NUM_SPREADS = 6

# Scores are computed for texts padded to a multiple of this.
_BUCKET = 128


class Gap(NamedTuple):
  """What lies between scores where texts part.

  Attributes:
    size: by which one of both tokens lies below the best score at most.
    limit: it is a tie below.
  """

  size: float
  limit: float


def gap(
  verifier: llama_model.Params,
  prompt: Sequence[int],
  output: Sequence[int],
  tokens: tuple[int, int],
  sampling: sampling_lib.Sampling,
  seed: int,
  limit: float | None,
) -> Gap:
  """Returns how far two tokens lie below the best that may follow a text.

  Args:
    verifier: the model.
    prompt: token ids.
    output: those behind it so far.
    tokens: which are compared.
    sampling: of one row.
    seed: of the row.
    limit: of a tie; None measures it.
  """
  text = [*prompt, *output]
  args = (
    verifier,
    jnp.asarray(np.pad(text, (0, -len(text) % _BUCKET))),
    len(text),
    sampling,
    seed,
  )
  scores = np.asarray(next_scores(*args, len(text)))
  if limit is None:
    # Plain decoding reads the prompt, but for its last token, in one pass.
    again = np.asarray(next_scores(*args, len(prompt) - 1))
    limit = _NUM_SPREADS * float(np.std(again - scores))
  size = scores.max() - scores[list(tokens)].min()
  return Gap(float(size), limit)


@jax.jit
def next_scores(
  verifier: llama_model.Params,
  tokens: jax.Array,
  length: jax.Array,
  sampling: sampling_lib.Sampling,
  seed: jax.Array,
  num_together: jax.Array,
) -> jax.Array:
  """Returns the scores of which plain decoding takes the largest.

  Logits at temperature 0, else `log p(y) + g(y)` with the position's Gumbel
  noise `g`.

  Args:
    verifier: the model.
    tokens: `[T]` int32, padded on the right.
    length: how many tokens there are, the position of the one that is scored.
    sampling: of one row.
    seed: of the row.
    num_together: the first tokens that are read in one pass; the others are
      read one by one.

  Returns:
    `[V]`.
  """
  size = tokens.shape[0]
  hidden, _, cache = llama_model.read(
    verifier, tokens[None], num_together[None], size
  )

  def read_one(carry):
    _, cache = carry
    token = lax.dynamic_slice(tokens, cache.length, (1,))[None]
    hidden, cache = llama_model.prefill(
      verifier, token, jnp.ones(1, jnp.int32), cache
    )
    return hidden[:, 0], cache

  hidden, _ = lax.while_loop(
    lambda carry: carry[1].length[0] < length,
    read_one,
    (hidden[:, num_together - 1], cache),
  )
  logits = llama_model.head(verifier, hidden)
  noise = noise_lib.gumbel(seed, length, noise_lib.USE_TOKEN, logits.shape[-1])
  noisy = sampling_lib.log_law(logits, sampling) + noise
  return jnp.where(sampling.temperature == 0, logits, noisy)[0]
