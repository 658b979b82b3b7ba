"""The loss of an EAGLE head against its drafter, its twin and plain sums."""

import dataclasses
import functools
from typing import NamedTuple

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference_checkpoint
import reference_eagle

from specjax import sampling as sampling_lib
from specjax.checkpoint import eagle as eagle_files
from specjax.decode import prefill
from specjax.draft import base
from specjax.draft import eagle as eagle_drafter
from specjax.llama import eagle as eagle_head
from specjax.llama import model as llama_model
from specjax.train import eagle, judge, lessons
from specjax.trees import grow

VOCAB, FEATURES = reference_eagle.VOCAB, reference_eagle.FEATURES
NUM_STEPS = 4
STEP_WEIGHTS = (1.0, 0.5, 0.0, 2.0)
# By row, lengths of prompt and answer of its documents; the rest is padding.
LAYOUT = (((3, 9), (1, 6), (2, 1)), ((5, 17),))
LENGTH = 24


class Texts(NamedTuple):
  """Packed documents."""

  tokens: np.ndarray
  documents: np.ndarray
  positions: np.ndarray
  is_target: np.ndarray


def make_texts():
  shape = (len(LAYOUT), LENGTH)
  tokens = np.random.RandomState(0).randint(VOCAB, size=shape, dtype=np.int32)
  documents = np.zeros(shape, np.int32)
  positions = np.zeros(shape, np.int32)
  is_target = np.zeros(shape, bool)
  for row, layout in enumerate(LAYOUT):
    start = 0
    for number, (prompt, answer) in enumerate(layout, start=1):
      here = slice(start, start + prompt + answer)
      documents[row, here] = number
      positions[row, here] = np.arange(prompt + answer)
      is_target[row, start + prompt : here.stop] = True
      start = here.stop
  return Texts(tokens, documents, positions, is_target)


TEXTS = make_texts()


def judged():
  """Yields `(row, index, k, text, drafts)` of all that counts, by hand."""
  for row, layout in enumerate(LAYOUT):
    start = 0
    for prompt, answer in layout:
      text = TEXTS.tokens[row, start : start + prompt + answer].tolist()
      for root in range(max(prompt - 1, 1), len(text) - 1):
        for k in range(min(NUM_STEPS, len(text) - 1 - root)):
          known = text[: root + 1]
          drafts = tuple(text[root + 1 : root + 1 + k])
          yield row, start + root + k, k, known, drafts
      start += len(text)


@pytest.fixture(scope='module')
def model():
  return reference_eagle.verifier()


@pytest.fixture(scope='module')
def lesson(model):
  return jax.jit(lessons.read, static_argnames='layers')(
    model, *TEXTS, layers=FEATURES
  )


@pytest.fixture(scope='module')
def head(model, tmp_path_factory):
  """A head that is tied; the twin's tensors have the same matrix."""
  folder = tmp_path_factory.mktemp('head')
  named = reference_eagle.tensors()
  del named['lm_head.weight']
  config = reference_eagle.CONFIG | {'tie_word_embeddings': True}
  reference_checkpoint.write_folder(folder, config, named)
  return eagle_files.load(folder, model, jnp.float32)


@pytest.fixture(scope='module')
def trained(head):
  return {n: x for n, x in head.weights.items() if n != 'head'}


@pytest.fixture(scope='module')
def frozen(model, head):
  return eagle.freeze(model, head.token_ids)


@pytest.fixture(scope='module')
def logits(head, lesson, model):
  """`[B, T, K, V_draft]` of the unrolled pass."""
  unroll = jax.jit(eagle.unroll, static_argnums=3)
  states = unroll(head, model.weights['embed'], lesson, NUM_STEPS)
  return eagle_head.head(head, states)


@pytest.fixture(scope='module')
def log_laws(model, head):
  """What the twin says at all that counts: `(row, index, k)` -> `[V]`."""
  named = reference_eagle.tensors()
  named['lm_head.weight'] = np.asarray(head.weights['head'])
  return {
    (row, index, k): reference_eagle.log_law(named, model, text, drafts)
    for row, index, k, text, drafts in judged()
  }


@functools.partial(jax.jit, static_argnums=0)
def read_node(reader, params, memory, token, depth):
  """Reads one token of a chain, whose scratch slots are its depths."""
  full = lambda value: jnp.full((1, 1), value)
  nodes = grow.Nodes(
    tokens=full(token),
    depths=full(depth),
    slots=full(depth),
    parent_slots=full(depth - 1),
    above=(jnp.arange(NUM_STEPS) < depth)[None, None],
  )
  return reader.read(params, memory, nodes)


# Kinds: a state or a position off by one, a draft that sees the features of
# what it should have drafted, or another document.
@pytest.mark.parametrize(
  ('row', 'start', 'root'), [(0, 0, 2), (0, 0, 7), (0, 12, 1), (1, 0, 13)]
)
def test_it_drafts_as_the_drafter_does(model, head, logits, row, start, root):
  text = TEXTS.tokens[row, start:].tolist()
  reader = eagle_drafter.reader(head.config, model.config)
  [batch] = prefill.read_prompts(
    model,
    [text[: root + 1]],
    max_new_tokens=NUM_STEPS,
    sampling=sampling_lib.make(1),
    seeds=[0],
    features=FEATURES,
  )
  params = base.Params(model, head, batch.sampling)
  memory = reader.init(params, batch.prefix, NUM_STEPS)
  for k in range(NUM_STEPS):
    drafted, memory = read_node(reader, params, memory, text[root + k], k)
    np.testing.assert_allclose(
      logits[row, start + root + k, k],
      drafted[0, 0, reference_eagle.TOKEN_IDS],
      atol=1e-4,
    )


def test_it_drafts_as_the_twin_does(logits, log_laws):
  laws = jax.nn.log_softmax(logits)
  for (row, index, k), law in log_laws.items():
    expected = law[reference_eagle.TOKEN_IDS]
    np.testing.assert_allclose(laws[row, index, k], expected, atol=1e-4)


def test_a_lesson_is_what_the_verifier_says_alone(model, lesson):
  [batch] = prefill.read_prompts(
    model,
    [TEXTS.tokens[0, 12:19].tolist()],
    max_new_tokens=1,
    features=FEATURES,
  )
  known = np.asarray(batch.prefix.features[0, :6]).reshape(6, -1)
  np.testing.assert_allclose(lesson.features[0, 12:18], known, atol=1e-4)
  logits = np.asarray(llama_model.head(model, lesson.hidden))
  np.testing.assert_allclose(
    lesson.log_total, np.log(np.exp(logits).sum(axis=2)), atol=1e-5
  )
  np.testing.assert_array_equal(lesson.best, logits.argmax(axis=2))


def test_the_loss_is_that_of_the_twin(
  model, head, trained, frozen, lesson, log_laws
):
  """Its tokens and drafts counted by hand; the mass outside is dropped."""
  p = np.asarray(jax.nn.softmax(llama_model.head(model, lesson.hidden)))
  ids = reference_eagle.TOKEN_IDS
  sums, numbers = np.zeros((3, NUM_STEPS)), np.zeros(NUM_STEPS)
  for (row, index, k), log_q in log_laws.items():
    here = p[row, index]
    numbers[k] += 1
    sums[0, k] -= np.sum(here[ids] * log_q[ids])
    sums[1, k] += np.minimum(here, np.exp(log_q)).sum()
    sums[2, k] += here.argmax() == log_q.argmax()
  loss_fn = eagle.make_loss(head.config, STEP_WEIGHTS)
  loss, number, metrics = jax.jit(loss_fn)(trained, frozen, lesson)
  np.testing.assert_allclose(loss, sums[0] @ STEP_WEIGHTS, rtol=1e-5)
  np.testing.assert_allclose(number, numbers @ STEP_WEIGHTS)
  assert len(metrics) == 3 * NUM_STEPS
  for i, name in enumerate(('loss', 'accepted', 'agreed')):
    for k in range(NUM_STEPS):
      found = metrics[f'{name}_{k + 1}']
      np.testing.assert_allclose(found, (sums[i, k], numbers[k]), rtol=1e-4)


def test_one_step_is_plain_cross_entropy(model, head, trained, lesson):
  """With the whole vocabulary, and against sums without a chunk."""
  everything = dataclasses.replace(head.config, draft_vocab_size=VOCAB)
  whole = eagle_head.tied(
    eagle_head.Params(trained, jnp.arange(VOCAB), everything), model
  )

  def plain(weights):
    params = whole.replace(weights={**weights, 'head': whole.weights['head']})
    states = eagle.unroll(params, model.weights['embed'], lesson, 1)[:, :-1, 0]
    log_q = jax.nn.log_softmax(eagle_head.head(params, states))
    p = jax.nn.softmax(llama_model.head(model, lesson.hidden[:, :-1]))
    counts = lesson.is_target[:, 1:] & (lesson.positions[:, :-1] > 0)
    return -jnp.sum(counts[..., None] * p * log_q), jnp.sum(counts)

  loss_fn = eagle.make_loss(everything, (1.0,))
  frozen = eagle.freeze(model, jnp.arange(VOCAB))
  ours = lambda weights: loss_fn(weights, frozen, lesson)[:2]
  gradients = lambda fn: jax.jit(jax.value_and_grad(fn, has_aux=True))(trained)
  found, expected = gradients(ours), gradients(plain)
  chex.assert_trees_all_close(found, expected, rtol=1e-4, atol=1e-5)


def test_the_gradient_is_found_with_the_loss():
  """Of many steps and chunks, most of them idle, by plain autodiff."""
  rng = np.random.RandomState(0)
  normal = lambda *shape: jnp.asarray(rng.randn(*shape), jnp.float32)
  num_places, num_steps, width, num_ids = 200, 3, 8, 11
  counts = rng.rand(num_places, num_steps) < 0.7
  counts[50:] = False
  counts[150] = True
  head, hidden = normal(num_ids, width), normal(num_places, num_steps, width)
  seen, log_total = normal(num_places, width), normal(num_places) + 8
  w = jnp.asarray([1.0, 0.5, 0.25])

  def plain(hidden):
    p = jnp.exp(seen @ head.T - log_total[:, None])
    losses = -jnp.sum(p[:, None] * jax.nn.log_softmax(hidden @ head.T), axis=2)
    return jnp.sum(w * counts * losses)

  ids, best = jnp.arange(num_ids), jnp.zeros(num_places, jnp.int32)
  answers = judge.Answers(seen, log_total, best, jnp.asarray(counts))
  ours = lambda hidden: judge.judge(w, head, ids, answers, hidden)[0]
  expected = jax.jit(jax.value_and_grad(plain))(hidden)
  chex.assert_trees_all_close(
    jax.jit(jax.value_and_grad(ours))(hidden), expected, rtol=1e-4, atol=1e-5
  )
  np.testing.assert_allclose(jax.jit(ours)(hidden), expected[0], rtol=1e-5)


def test_it_begins_with_what_the_verifier_has(model, head, lesson):
  layer = dataclasses.replace(head.config.layer, ffn_width=32)
  config = dataclasses.replace(head.config, layer=layer)
  key = jax.random.key(0)
  begun = eagle.init(key, config, model, head.token_ids, lesson)
  plain = eagle_head.init_params(key, config, head.token_ids, jnp.float32)
  by_layer = np.asarray(lesson.features).reshape(-1, 3, reference_eagle.WIDTH)
  is_text = TEXTS.documents.reshape(-1) > 0
  usual = np.median(np.sqrt(np.mean(by_layer[is_text] ** 2, axis=2)), axis=0)
  expected = plain.weights | {
    name: model.weights['layers'][name][-1]
    for name in ('ffn_norm', 'gate', 'up', 'down')
  }
  expected['final_norm'] = model.weights['final_norm'] / 2
  expected['fuse'] /= np.repeat(usual, reference_eagle.WIDTH)[:, None]
  chex.assert_trees_all_close(begun.weights, expected, rtol=1e-5)
  assert len(set(usual.round(2))) == 3


@pytest.mark.parametrize(
  ('is_tied', 'step_weights', 'message'),
  [
    (False, (1.0,), 'a head with tie_embeddings'),
    (True, (), r'1 step or more, not all 0, got \(\)'),
    (True, (0.0, 0.0), 'not all 0'),
    (True, (1.0, -0.5), r'at least 0 .*got \(1.0, -0.5\)'),
  ],
)
def test_a_loss_that_means_nothing_is_refused(
  head, is_tied, step_weights, message
):
  layer = dataclasses.replace(head.config.layer, tie_embeddings=is_tied)
  config = dataclasses.replace(head.config, layer=layer)
  with pytest.raises(ValueError, match=f'expected .*{message}'):
    eagle.make_loss(config, step_weights)
