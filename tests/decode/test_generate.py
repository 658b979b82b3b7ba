"""Speculation gives the text of plain decoding, whatever else is asked."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference_cases as cases
import reference_decode
import reference_drafts
import reference_edits
from scipy import stats

from specjax import sampling as sampling_lib
from specjax.decode import generate
from specjax.draft import lookup

NAMES = ('planted', 'lookup', 'bigram', 'oracle')
LONGEST_PATH = 4  # of the planted drafter, the bonus token included


def decode(params, case, setup, max_new_tokens=cases.MAX_NEW):
  """Generations of all rows of a case."""
  batches = case.batches(params, max_new_tokens)
  return sum((generate.decode(params, b, **setup) for b in batches), [])


def check(results, case, max_new_tokens=cases.MAX_NEW):
  outputs = case.outputs(max_new_tokens)
  for result, (tokens, log_probs, reason) in zip(results, outputs, strict=True):
    assert result.tokens == tokens
    assert result.finish_reason == reason
    np.testing.assert_allclose(result.log_probs, log_probs, atol=1e-4)


# Kinds: temperature 0 that differs from plain decoding, log-probabilities of
# 0 for all, tokens of probability zero, parameters of a neighbour.
@pytest.mark.parametrize('name', ['plain', *NAMES])
def test_rows_of_all_sorts_equal_the_slow_twin(tiny, mixed, setups, name):
  setup = setups[name]
  results = decode(tiny, mixed, setup)
  check(results, mixed)
  for result in results:
    assert np.all(np.isfinite(result.log_probs))
  is_greedy = np.asarray(mixed.sampling.temperature) == 0
  for row in np.flatnonzero(is_greedy):
    assert np.all(results[row].log_probs < 0)


# Kinds: penalties that see the last accepted token alone, or a neighbour's; an
# end before the minimum length, or none after it.
@pytest.mark.parametrize('name', ['plain', 'planted'])
def test_edited_rows_equal_the_slow_twin(tiny, mixed, edited, setups, name):
  truth = {'drafter_params': edited.truth()} if name == 'planted' else {}
  results = decode(tiny, edited, setups[name] | truth)
  check(results, edited)
  assert 5 < len(results[6].tokens) < cases.MAX_NEW
  assert results[6].finish_reason == 'eos'
  if name == 'planted':
    assert max(result.steps.depth.max() for result in results) == 3


# Kinds: a seed that depends on the neighbours in the batch, temperature 0 that
# differs from plain decoding.
def test_drawn_drafts_keep_greedy_texts_and_every_row_to_itself(
  tiny, mixed, setups
):
  results = decode(tiny, mixed, setups['drawn'])
  outputs = list(mixed.outputs())
  for row in np.flatnonzero(np.asarray(mixed.sampling.temperature) == 0):
    assert results[row].tokens == outputs[row][0]
  assert max(result.steps.depth.max() for result in results) > 0
  order = [3, 0, 7, 5, 1, 6, 2, 4]
  take = lambda x: [x[i] for i in order]
  other = mixed._replace(
    prompts=take(mixed.prompts),
    seeds=take(mixed.seeds),
    sampling=jax.tree.map(lambda x: x[jnp.asarray(order)], mixed.sampling),
  )
  again = decode(tiny, other, setups['drawn'])
  assert [r.tokens for r in again] == [r.tokens for r in take(results)]


def text_chances(params, prompt, setting, num_tokens):
  """The probability of every text, cut at its end."""
  chances, frontier = {}, {(): 1.0}
  while frontier:
    words, chance = frontier.popitem()
    if len(words) == num_tokens or (words and words[-1] in setting.eos_ids):
      chances[words] = chance
      continue
    logits = reference_decode.logits_after(params, [*prompt, *words])[-1]
    law = reference_edits.slow_law(logits, setting, prompt, words)
    frontier |= {(*words, token): chance * p for token, p in enumerate(law)}
  return chances


# Kinds: noise that is used twice, a law that is not the one that was drawn
# from, penalties that drafts do not know of.
def test_texts_of_many_seeds_follow_the_law(tiny3):
  prompt, num_texts = [0, 2, 1], 2000
  setting = reference_edits.Setting(
    temperature=0.9,
    repetition=1.2,
    presence=0.3,
    frequency=-0.2,
    bias=((0, 0.5),),
    min_new_tokens=2,
    eos_ids=(2,),
  )
  log_q = jax.nn.log_softmax(jax.random.normal(jax.random.key(1), (3, 3)))
  results = generate.generate(
    tiny3,
    [prompt] * num_texts,
    sampling=reference_edits.sampling_of([setting] * num_texts),
    eos_ids=setting.eos_ids,
    max_new_tokens=4,
    drafter=reference_drafts.make((-1, 0, 0, 1), replaced=False),
    drafter_params=log_q,
    num_nodes=4,
    rule='without_replacement',
    batch_size=num_texts,
  )
  counts = collections.Counter(tuple(result.tokens) for result in results)
  chances = text_chances(tiny3, prompt, setting, 4)
  assert all(chances[text] > 0 for text in counts)
  possible = [text for text, chance in chances.items() if chance > 0]
  found = np.array([counts[text] for text in possible])
  wanted = num_texts * np.array([chances[text] for text in possible])
  assert stats.chisquare(found, wanted).pvalue > 1e-3


@pytest.mark.parametrize(
  ('rule', 'message'),
  [('block', 'the laws .* log_q_full'), ('typical', "block, got 'typical'")],
)
def test_a_rule_that_cannot_be_is_refused(tiny, mixed, setups, rule, message):
  batch = mixed.batches(tiny)[0]
  with pytest.raises(ValueError, match=f'expected .*{message}'):
    generate.decode(tiny, batch, **setups['lookup'], rule=rule)


def test_limits_end_rows_inside_the_accepted_path(tiny, mixed, setups):
  ends = set()
  for result in decode(tiny, mixed, setups['planted']):
    is_cut = result.steps.emitted[-1] <= result.steps.depth[-1]
    ends.add((result.finish_reason, bool(is_cut)))
    assert result.steps.emitted.sum() == len(result.tokens)
  assert ('length', True) in ends


# Kinds: an end in the middle of a block, the limit checked before the end.
def test_an_end_at_every_place_of_a_path_under_every_limit(tiny, short, setups):
  planted = setups['planted'] | {'drafter_params': short.truth()}
  places, last_allowed = set(), 0
  for max_new_tokens in range(1, planted['num_nodes'] + 3):
    results = decode(tiny, short, planted, max_new_tokens)
    plain = decode(tiny, short, setups['plain'], max_new_tokens)
    check(results, short, max_new_tokens)
    check(plain, short, max_new_tokens)
    for result in results:
      if result.finish_reason == 'eos':
        last_allowed += len(result.tokens) == max_new_tokens
        if result.steps.depth[-1] == LONGEST_PATH - 1:
          places.add(int(result.steps.emitted[-1]) - 1)
  assert places == set(range(LONGEST_PATH))
  assert last_allowed > 0


# Kinds: a seed that depends on the neighbours in the batch, rows that are lost
# where the prompts do not fill the last batch.
def test_a_text_depends_on_its_own_row_alone(tiny, mixed, setups):
  order = [3, 0, 7, 5, 1, 6, 2, 4, 0, 7, 3, 1, 2, 6, 5]
  take = lambda x: [x[i] for i in order]
  results = generate.generate(
    tiny,
    take(mixed.prompts),
    seeds=take(mixed.seeds),
    sampling=jax.tree.map(lambda x: x[jnp.asarray(order)], mixed.sampling),
    max_new_tokens=cases.MAX_NEW,
    max_length=cases.MAX_LENGTH,
    **setups['bigram'],
  )
  outputs = take(list(mixed.outputs()))
  assert [r.tokens for r in results] == [tokens for tokens, _, _ in outputs]


@pytest.mark.parametrize(('batch_size', 'num_nodes'), [(1, 4), (8, 1)])
def test_a_text_depends_on_neither_batch_nor_capacity(
  tiny, mixed, batch_size, num_nodes
):
  results = generate.generate(
    tiny,
    mixed.prompts,
    seeds=mixed.seeds,
    sampling=mixed.sampling,
    eos_ids=cases.EOS,
    max_new_tokens=cases.MAX_NEW,
    max_length=cases.MAX_LENGTH,
    drafter=lookup.make(max_match=2),
    num_nodes=num_nodes,
    batch_size=batch_size,
  )
  check(results, mixed)


@pytest.mark.parametrize('chunk', [1, 5])
def test_a_text_does_not_depend_on_the_chunk(tiny, mixed, setups, chunk):
  told = []
  results = generate.decode(
    tiny,
    mixed.batches(tiny)[0],
    chunk=chunk,
    progress_fn=told.append,
    **setups['planted'],
  )
  check(results, mixed)
  assert sum(told) == sum(len(r.tokens) for r in results)
  longest = max(len(r.steps.start) for r in results)
  assert len(told) == -(-longest // chunk)


def test_seeds_matter_where_the_temperature_is_not_zero(tiny):
  results = generate.generate(
    tiny,
    [[11]] * 8,
    seeds=[0, 1, 2, 3, 4, 5, 0, 7],
    sampling=jax.tree.map(
      lambda zero, one: jnp.concatenate([zero, one]),
      sampling_lib.make(2, 0.0),
      sampling_lib.make(6, 1.0),
    ),
    eos_ids=cases.EOS,
    max_new_tokens=cases.MAX_NEW,
  )
  texts = [tuple(r.tokens) for r in results]
  assert texts[0] == texts[1]
  assert len(set(texts[2:])) == 6


# Kinds: batches that draw the same random numbers.
def test_equal_prompts_have_texts_of_their_own_in_every_batch(tiny):
  texts = lambda batch_size: [
    tuple(result.tokens)
    for result in generate.generate(
      tiny,
      [[11]] * 8,
      eos_ids=(),
      max_new_tokens=cases.MAX_NEW,
      batch_size=batch_size,
    )
  ]
  together = texts(8)
  assert len(set(together)) == 8
  assert texts(4) == together


def test_bfloat16_parts_from_its_baseline_at_ties_alone(tiny, setups):
  half = jax.tree.map(lambda x: x.astype(jnp.bfloat16), tiny)
  prompts = [[t, 2, t] for t in range(8)]
  decode = lambda prompts, **setup: generate.generate(
    half,
    prompts,
    max_new_tokens=cases.MAX_NEW,
    sampling=sampling_lib.make(len(prompts), 0.0),
    **setup,
  )
  plain = [r.tokens for r in decode(prompts, eos_ids=cases.EOS)]
  truth = np.zeros((cases.VOCAB, cases.MAX_LENGTH), np.int32)
  for row, prompt, text in zip(truth, prompts, plain, strict=False):
    row[: 3 + len(text)] = [*prompt, *text]
  setup = setups['planted'] | {'drafter_params': jnp.asarray(truth)}
  rows, num_parted = list(zip(prompts, plain, strict=True)), 0
  while rows:
    results = decode([prompt for prompt, _ in rows], **setup)
    parted = []
    for (prompt, text), result in zip(rows, results, strict=True):
      same = np.cumprod(
        [a == b for a, b in zip(text, result.tokens, strict=False)]
      ).sum()
      if same < len(text):
        logits = reference_decode.logits_after(half, [*prompt, *text[:same]])
        second, first = np.sort(logits[-1])[-2:]
        assert first - second < 0.1
        parted.append(([*prompt, *text[: same + 1]], text[same + 1 :]))
    num_parted += len(parted)
    # Goes on behind the tie with the baseline's token.
    rows = [row for row in parted if row[1]]
  assert num_parted < len(prompts)


@pytest.mark.parametrize('wrong', [{'prompts': [[]]}, {'num_nodes': 0}])
def test_bad_arguments_are_named(tiny, wrong):
  good = {'prompts': [[1]], 'max_new_tokens': 2, 'eos_ids': cases.EOS}
  with pytest.raises(ValueError, match='expected .* at least'):
    generate.generate(tiny, **good | wrong)


def test_a_chunk_of_nothing_is_refused(tiny, mixed):
  with pytest.raises(ValueError, match='chunk of at least 1, got 0'):
    generate.decode(tiny, mixed.batches(tiny)[0], eos_ids=cases.EOS, chunk=0)
