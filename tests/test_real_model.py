"""SmolLM2 decodes by speculation what it decodes plainly."""

import functools

import numpy as np
import pytest

from experiments import drafters, identity, recipes

TEXTS = (
  'Explain why the sky is blue in a few sentences.',
  'Repeat after me: one two three, one two three, one two three.',
  'Write a Python function that adds two numbers.',
)
ANSWER = (
  'The sky is blue in a few sentences because of a process called '
  'Rayleigh scattering'
)
NUM_NEW = 20


def no_progress(num_tokens):
  del num_tokens


@pytest.fixture(scope='module')
def ids(smollm2):
  messages = [[{'role': 'user', 'content': text}] for text in TEXTS]
  return [smollm2.tokenizer.chat(message) for message in messages]


@pytest.fixture(scope='module')
def comparison(smollm2, ids):
  return identity.Comparison(
    smollm2.params,
    smollm2.tokenizer.eos_ids,
    ids,
    seed=0,
    max_new_tokens=NUM_NEW,
    max_length=128,
  )


@pytest.fixture(scope='module')
def plain(comparison):
  """Plain texts by temperature."""
  return {t: comparison.plain(t, len(TEXTS), no_progress) for t in (0.0, 1.0)}


def test_the_greedy_answer_is_the_known_one(smollm2, plain):
  tokens = plain[0.0]['tokens'][0]
  assert smollm2.tokenizer.decode(tokens).startswith(ANSWER)


# Every temperature of a way runs the same program.
@pytest.mark.parametrize(
  ('recipe', 'num_nodes', 'batch_size'),
  [
    (recipes.Recipe('lookup'), 16, 3),
    (recipes.Recipe('bigram', 'best_first'), 4, 1),
    (recipes.Recipe('oracle'), 4, 3),
  ],
)
def test_speculation_emits_the_plain_texts(
  smollm2, ids, comparison, plain, recipe, num_nodes, batch_size
):
  drafting = drafters.make(
    recipe,
    smollm2.params,
    ids,
    max_nodes=num_nodes,
    eos_ids=smollm2.tokenizer.eos_ids,
  )
  compare = functools.partial(
    comparison.compare,
    drafting=drafting,
    num_nodes=num_nodes,
    batch_size=batch_size,
    progress_fn=no_progress,
  )
  for temperature, texts in plain.items():
    arrays = compare(texts, temperature=temperature)
    assert np.all(arrays['gap'] < arrays['limit'])
    np.testing.assert_array_equal(arrays['num_compared'], texts['num_tokens'])
    assert arrays['num_steps'].sum() < arrays['num_tokens'].sum()
