"""Laws along a text against one whole pass for each."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference_decode
import reference_edits

from specjax import edits
from specjax import sampling as sampling_lib
from specjax.decode import score
from specjax.llama import mask
from specjax.llama import model as llama_model

TEXTS = [[4, 8, 1, 0, 22, 3, 3, 9, 5, 2], [1, 2, 1, 2, 1, 2, 1, 2, 1, 2]]
# Temperature, top-k, top-p and min-p by row.
SETTINGS = [(1.0, 0, 0.9, 0.0), (0.5, 4, 1.0, 0.1)]


def law_and_token(log_p, tokens):
  return {'law': jnp.exp(log_p), 'token': tokens}


@pytest.mark.parametrize('chunk', [1, 4, 9, 16])
def test_laws_are_those_of_a_whole_pass(tiny, chunk):
  texts = jnp.asarray(TEXTS)
  columns = zip(*SETTINGS, strict=True)
  sampling = sampling_lib.Sampling(*(jnp.asarray(c) for c in columns))
  hidden, _ = score.read(tiny, texts, 16)
  found = score.laws(
    tiny, hidden[:, :-1], texts[:, 1:], sampling, law_and_token, chunk
  )
  np.testing.assert_array_equal(found['token'], texts[:, 1:])
  for row, text in enumerate(TEXTS):
    logits = reference_decode.logits_after(tiny, text)[:-1]
    expected = [reference_decode.slow_law(x, *SETTINGS[row]) for x in logits]
    np.testing.assert_allclose(found['law'][row], expected, atol=1e-5)


def test_laws_with_edits_know_what_stands_before_each_place(tiny):
  texts = jnp.asarray(TEXTS)
  settings = [
    reference_edits.Setting(repetition=1.3, frequency=0.2, min_new_tokens=4),
    reference_edits.Setting(presence=0.5, bias=((3, 1.0),), temperature=0.7),
  ]
  prompt_lengths, first = np.array([2, 1]), 3
  history = edits.history(
    texts, jnp.asarray(prompt_lengths), jnp.full(2, first), 23
  )
  hidden, _ = score.read(tiny, texts, 16)
  found = score.laws(
    tiny,
    hidden[:, first - 1 : -1],
    texts[:, first:],
    reference_edits.sampling_of(settings),
    law_and_token,
    4,
    history,
  )
  for row, text in enumerate(TEXTS):
    logits = reference_decode.logits_after(tiny, text)
    prompt, output = text[: prompt_lengths[row]], text[prompt_lengths[row] :]
    for place in range(first, len(text)):
      expected = reference_edits.slow_law(
        logits[place - 1],
        settings[row],
        prompt,
        output[: place - len(prompt)],
      )
      np.testing.assert_allclose(
        found['law'][row, place - first], expected, atol=1e-5
      )


@jax.jit
def read_one(params, tokens, cache):
  hidden, _, _ = llama_model.forward(
    params,
    tokens[:, None],
    cache.length[:, None],
    cache,
    mask.committed(cache.length, cache.num_slots),
    jnp.ones((1, 1, 1), bool),
  )
  return hidden[:, 0]


def test_one_cache_serves_every_place_of_the_texts(tiny):
  texts = jnp.asarray(TEXTS)
  hidden, cache = score.read(tiny, texts, 16)
  for places in ([0, 9], [3, 3], [8, 1]):
    rows, places = jnp.arange(2), jnp.asarray(places)
    again = read_one(tiny, texts[rows, places], cache.replace(length=places))
    np.testing.assert_allclose(again, hidden[rows, places], atol=1e-5)
