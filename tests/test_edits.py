"""Edits of logits against loops over tokens."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference_edits

from specjax import edits, sampling

VOCAB, SIZE = 11, 12
EOS = (2, 9)
PROMPT_LENGTHS = [1, 4, 3, 5, 2, 6, 7]
LENGTHS = [1, 4, 9, 8, 5, 12, 12]
SETTINGS = [
  reference_edits.Setting(**kwargs, eos_ids=EOS)
  for kwargs in (
    {'repetition': 1.3, 'presence': 0.5},
    {'min_new_tokens': 1},
    {'repetition': 1.7},
    {'presence': 0.8, 'temperature': 0.7, 'top_k': 4},
    {'frequency': 0.4, 'min_new_tokens': 3, 'top_p': 0.8},
    {'bias': ((3, 2.0), (0, -30.0), (9, 1.0)), 'temperature': 0.0},
    {
      'repetition': 0.8,
      'presence': -0.3,
      'frequency': -0.2,
      'bias': ((7, -1.5),),
      'min_new_tokens': 6,
      'min_p': 0.1,
    },
  )
]


def texts():
  rng = np.random.default_rng(0)
  # Few tokens, so that some stand there twice.
  tokens = rng.integers(0, 6, (len(LENGTHS), SIZE))
  for row, (start, end) in enumerate(zip(PROMPT_LENGTHS, LENGTHS, strict=True)):
    yield tokens[row], list(tokens[row, :start]), list(tokens[row, start:end])


def tokens_and_history():
  tokens = jnp.asarray([tokens for tokens, _, _ in texts()])
  return tokens, edits.history(
    tokens, jnp.asarray(PROMPT_LENGTHS), jnp.asarray(LENGTHS), VOCAB
  )


def random_logits(*shape):
  return 2 * np.random.default_rng(1).normal(size=shape).astype(np.float32)


# Kinds: a penalty under another's name or definition, parameters of a
# neighbour, prompt and output taken for one.
def test_laws_equal_the_slow_twin_with_other_edits_in_each_row():
  logits = random_logits(len(SETTINGS), VOCAB)
  _, history = tokens_and_history()
  laws = jax.jit(sampling.laws)(
    jnp.asarray(logits), reference_edits.sampling_of(SETTINGS), history
  )
  for row, (_, prompt, output) in enumerate(texts()):
    arguments = (logits[row], SETTINGS[row], prompt, output)
    expected = reference_edits.slow_law(*arguments)
    np.testing.assert_allclose(np.exp(laws.sampled[row]), expected, atol=2e-6)
    np.testing.assert_array_equal(np.isneginf(laws.sampled[row]), expected == 0)
    if SETTINGS[row].temperature == 0:
      edited = reference_edits.slow_edit(*arguments)
      plain = np.exp(edited - np.logaddexp.reduce(edited))
      np.testing.assert_allclose(np.exp(laws.reported[row]), plain, atol=2e-6)
    else:
      np.testing.assert_array_equal(laws.reported[row], laws.sampled[row])


# Kinds: penalties that see the last accepted token alone.
def test_every_place_has_the_history_of_its_own_branch():
  rows, places, more = len(SETTINGS), 5, 4
  logits = random_logits(rows, places, VOCAB)
  rng = np.random.default_rng(2)
  branch = rng.integers(0, 6, (rows, more))
  is_new = rng.random((rows, places, more)) < 0.6
  _, history = tokens_and_history()
  after = edits.extend(history, jnp.asarray(branch), jnp.asarray(is_new))
  found = jax.jit(edits.apply)(
    logits, reference_edits.sampling_of(SETTINGS).edits, after
  )
  for row, (_, prompt, output) in enumerate(texts()):
    for place in range(places):
      new = list(branch[row, is_new[row, place]])
      expected = reference_edits.slow_edit(
        logits[row, place], SETTINGS[row], prompt, [*output, *new]
      )
      np.testing.assert_allclose(found[row, place], expected, rtol=1e-6)


def test_edits_that_ask_for_nothing_change_no_bit():
  logits = random_logits(len(LENGTHS), VOCAB)
  _, history = tokens_and_history()
  same = edits.apply(jnp.asarray(logits), edits.make(len(LENGTHS)), history)
  np.testing.assert_array_equal(same, logits)


# Kinds: penalties that are silently left out.
def test_laws_without_the_history_that_edits_need_are_refused():
  settings = sampling.make(2).replace(edits=edits.make(2, presence=1.0))
  with pytest.raises(ValueError, match='expected the history .* got None'):
    sampling.log_law(jnp.zeros((2, VOCAB)), settings)


@pytest.mark.parametrize(
  'wrong',
  [
    {'repetition': 0.0},
    {'repetition': [1.0, float('nan')]},
    {'presence': float('inf')},
    {'frequency': float('nan')},
    {'min_new_tokens': -1, 'eos_ids': (2,)},
    {'bias': [{1: float('-inf')}, {}]},
    {'bias': [{-1: 1.0}, {}]},
  ],
)
def test_bad_parameters_are_named(wrong):
  with pytest.raises(ValueError, match=f'expected .*{next(iter(wrong))}'):
    edits.make(2, **wrong)


def test_parameters_of_other_rows_are_refused():
  with pytest.raises(ValueError, match='expected a bias for 2 rows, got 1'):
    edits.make(2, bias=[{1: 1.0}])
  with pytest.raises(ValueError, match='expected parameters of 2 rows'):
    edits.make(2, presence=[1.0, 2.0, 3.0])
  with pytest.raises(ValueError, match='expected eos_ids with min_new_tokens'):
    edits.make(2, min_new_tokens=[0, 1])
