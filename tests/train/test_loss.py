"""The loss of packed texts against texts run one by one."""

from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from specjax.llama import model as llama_model
from specjax.train import loss as loss_lib

VOCAB = 23


class Batch(NamedTuple):
  """Rows packed with texts."""

  tokens: np.ndarray
  documents: np.ndarray
  positions: np.ndarray
  is_target: np.ndarray


def pack(rows, num_tokens):
  """Packs lists of texts, each with the number of tokens that do not count."""
  batch = Batch(
    *(np.zeros((len(rows), num_tokens), np.int32) for _ in range(4))
  )
  for b, texts in enumerate(rows):
    start = 0
    for number, (text, prompt) in enumerate(texts, 1):
      here = slice(start, start + len(text))
      order = np.arange(len(text))
      batch.tokens[b, here] = text
      batch.documents[b, here] = number
      batch.positions[b, here] = order
      batch.is_target[b, here] = order >= max(prompt, 1)
      start += len(text)
  return batch._replace(is_target=batch.is_target.astype(bool))


@pytest.fixture(scope='module')
def rows():
  """Texts of unlike lengths; of two, the beginning does not count."""
  rng = np.random.default_rng(0)
  text = lambda size: rng.integers(0, VOCAB, size)
  return [
    [(text(5), 0), (text(7), 4)],
    [(text(3), 1)],
    [(text(1), 0), (text(2), 0), (text(6), 0)],
  ]


@pytest.fixture(scope='module')
def measured(tiny, rows):
  """Loss, targets, metrics and gradient, by `remat`; and how to get them."""
  found, programs = {}, {}
  for remat in (False, True):
    loss_fn = loss_lib.make(tiny.config, remat=remat)

    def read(weights, batch, loss_fn=loss_fn):
      loss, *rest = loss_fn(weights, None, batch)
      return loss, rest

    programs[remat] = jax.jit(jax.value_and_grad(read, has_aux=True))
    found[remat] = programs[remat](tiny.weights, pack(rows, 12))
  return found, programs[True]


@pytest.fixture(scope='module')
def one_by_one(tiny, rows):
  """Sum of losses, targets and hits, of a pass over each text alone."""
  pairs = [pair for texts in rows for pair in texts]
  tokens = np.zeros((len(pairs), 7), np.int32)
  for i, (text, _) in enumerate(pairs):
    tokens[i, : len(text)] = text

  @jax.jit
  def log_p_of(tokens):
    cache = llama_model.empty_cache(tiny, len(pairs), 7)
    hidden, _ = llama_model.prefill(
      tiny, tokens, jnp.full(len(pairs), 7), cache
    )
    return jax.nn.log_softmax(llama_model.head(tiny, hidden))

  loss, num_targets, num_hits = 0.0, 0, 0
  laws = np.asarray(log_p_of(tokens))
  for (text, prompt), log_p in zip(pairs, laws, strict=True):
    for i in range(max(prompt, 1), len(text)):
      loss -= log_p[i - 1, text[i]]
      num_targets += 1
      num_hits += np.argmax(log_p[i - 1]) == text[i]
  return loss, num_targets, num_hits


@pytest.mark.parametrize('remat', [False, True])
def test_packed_texts_do_not_see_each_other(measured, one_by_one, remat):
  (loss, (num_targets, metrics)), _ = measured[0][remat]
  np.testing.assert_allclose(loss, one_by_one[0], rtol=1e-5)
  assert num_targets == one_by_one[1] == 4 + 3 + 2 + 0 + 1 + 5
  hits, weight = metrics['accuracy']
  assert (hits, weight) == (one_by_one[2], one_by_one[1])


def test_gradients_are_slopes_and_remat_changes_none(tiny, rows, measured):
  found, program = measured
  _, gradient = found[False]
  chex.assert_trees_all_close(gradient, found[True][1], rtol=1e-4, atol=1e-5)
  # Along the gradient the loss rises by the square of its length.
  slope = sum(float(np.sum(g * g)) for g in jax.tree.leaves(gradient))
  size = 1e-3 / np.sqrt(slope)

  def loss_at(shift):
    weights = jax.tree.map(lambda w, g: w + shift * g, tiny.weights, gradient)
    return float(program(weights, pack(rows, 12))[0][0])

  rise = loss_at(size) - loss_at(-size)
  np.testing.assert_allclose(rise / (2 * size), slope, rtol=2e-2)


def test_bfloat16_is_near(tiny, rows, measured):
  (exact, _), _ = measured[0][False]
  loss_fn = loss_lib.make(tiny.config, dtype=jnp.bfloat16)
  loss, *_ = jax.jit(loss_fn)(tiny.weights, None, pack(rows, 12))
  assert loss != exact
  np.testing.assert_allclose(loss, exact, rtol=2e-2)
