"""The verifier drafts for itself: texts that are accepted from end to end."""

import dataclasses

import jax.numpy as jnp
import pytest
import reference_readers as readers

from specjax import sampling as sampling_lib
from specjax.decode import generate
from specjax.draft import filled
from specjax.draft import reader as reader_lib
from specjax.trees import shapes


def for_long_texts(verifier, **changes):
  """The model with other switches, made for texts of more than 512 tokens."""
  config = dataclasses.replace(verifier.config, max_positions=1024, **changes)
  return verifier.replace(config=config)


def test_a_greedy_chain_is_accepted_whole_or_not_at_all(tiny):
  """The verifier as it is, and with a shuffled head, for 512 tokens."""
  long, own = for_long_texts(tiny), for_long_texts(tiny, tie_embeddings=False)
  reader = reader_lib.small_llama(own.config, long.config)
  drafter = filled.best(reader, shapes.chain, 8, ())
  sampling = sampling_lib.make(len(readers.PROMPTS), 0.0)
  batch = readers.read_prompts(long, sampling=sampling, max_new_tokens=512)
  plain = generate.decode(long, batch, eos_ids=())
  embed = tiny.weights['embed']
  heads = [(embed, [7] * 64), (jnp.roll(embed, 1, axis=0), [0] * 512)]
  for head, depths in heads:
    results = generate.decode(
      long,
      batch,
      eos_ids=(),
      drafter=drafter,
      drafter_params=own.replace(weights=tiny.weights | {'head': head}),
      num_nodes=8,
    )
    assert [r.tokens for r in results] == [r.tokens for r in plain]
    for result in results:
      assert result.steps.depth.tolist() == depths


@pytest.mark.parametrize('rule', ['without_replacement', 'block'])
def test_drafts_of_the_very_law_are_accepted_from_first_to_last(tiny, rule):
  """Chains that are drawn from p itself, for 512 tokens."""
  long = for_long_texts(tiny)
  results = generate.decode(
    long,
    readers.read_prompts(long, max_new_tokens=512),
    eos_ids=(),
    drafter=filled.drawn(reader_lib.verifier(), shapes.chain, 8, False),
    num_nodes=8,
    rule=rule,
  )
  for result in results:
    assert result.steps.depth.tolist() == [7] * 64
