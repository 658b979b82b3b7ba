"""Tests of experiments.layer_skip_search: what is judged, and what is found."""

import dataclasses
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference_decode

from experiments import layer_skip_search, layer_skipping, records
from specjax.llama import model as llama_model

PROMPTS = [[7], [3, 9, 3, 1], [2] * 9]
NUM_TOKENS = np.array([6, 5, 3])


@pytest.mark.parametrize('skipped', [[], [0], [1]])
def test_a_layer_that_adds_nothing_is_left_out(tiny, skipped):
  """Against a model that has only the other layers."""
  kept = [i for i in range(2) if i not in skipped]
  stacks = jax.tree.map(lambda x: x[jnp.asarray(kept)], tiny.weights['layers'])
  config = dataclasses.replace(tiny.config, num_layers=len(kept))
  sliced = llama_model.Params(tiny.weights | {'layers': stacks}, config)
  # Half of what is said is what that model drafts.
  tokens = np.random.default_rng(0).integers(0, 23, (3, 6)).astype(np.int32)
  best = lambda text: int(
    reference_decode.logits_after(sliced, text)[-1].argmax()
  )
  expected = np.zeros(tokens.shape, bool)
  for row, prompt in enumerate(PROMPTS):
    for place in range(NUM_TOKENS[row]):
      draft = best([*prompt, *tokens[row, :place].tolist()])
      if place % 2 == 0:
        tokens[row, place] = draft
      expected[row, place] = tokens[row, place] == draft
  texts = {'tokens': tokens, 'num_tokens': NUM_TOKENS}
  found = layer_skipping.agrees(
    tiny,
    jax.tree.map(jnp.asarray, layer_skipping.pack(PROMPTS, texts)),
    layer_skipping.keeping(2, skipped),
  )
  is_place = np.arange(6) < NUM_TOKENS[:, None]
  np.testing.assert_array_equal(found & is_place, expected)
  assert not np.all(expected | ~is_place)


def slow_chain_tokens(agree, num_tokens, drafts):
  """Walks the chain from every start that the text lets it finish."""
  won = [1.0]
  for depth in range(1, drafts + 1):
    hits = [
      all(row[start : start + depth])
      for row, size in zip(agree, num_tokens, strict=True)
      for start in range(size - depth + 1)
    ]
    won.append(won[-1] + (sum(hits) / len(hits) if hits else 0.0))
  return won


def test_chains_win_what_agrees_in_a_row():
  rng = np.random.default_rng(1)
  agree, num_tokens = rng.random((4, 9)) < 0.7, np.array([9, 5, 1, 7])
  np.testing.assert_allclose(
    layer_skipping.chain_tokens(agree, num_tokens, 12),
    slow_chain_tokens(agree, num_tokens, 12),
  )


NUM_LAYERS = 5
COST = np.linspace(1.0, 0.25, NUM_LAYERS + 1)


def planted(skipped):
  """The less is missed, the more is agreed on; 1 and 3 only together."""
  harm = {0: 9, 1: 2, 2: 1, 3: 4, 4: 7}
  wrong = sum(harm[i] for i in skipped) - (4 if {1, 3} <= set(skipped) else 0)
  agree = np.ones((2, 12), bool)
  agree.ravel()[np.arange(wrong) * 5 % 24] = False
  return agree


def run(agrees_fn, folder, most_skipped=4):
  return layer_skip_search.search(
    agrees_fn,
    records.Stages(records.open_run(folder, 'search', 'a'), {}),
    np.array([12, 12]),
    COST,
    most_skipped,
    4,
  )


def speed_of(skipped):
  won = slow_chain_tokens(planted(skipped), [12, 12], 4)
  cost = COST[len(skipped)]
  return max(won[d] / (1 + cost * d) for d in range(1, 5))


def test_the_search_leaves_out_what_is_missed_least(tmp_path):
  table = run(planted, tmp_path)
  skipped = []
  for row in table:
    assert row['skipped'] == skipped
    assert row['speed'] == pytest.approx(speed_of(skipped))
    left = [i for i in range(NUM_LAYERS) if i not in skipped]
    skipped = max(
      ([*skipped, i] for i in left),
      key=lambda s: (speed_of(s), planted(s).mean()),
    )
  assert table[0] | {'drafts': 1} == {
    'skipped': [],
    'agreement': 1.0,
    'drafts': 1,
    'D': 2.0,
    'speed': 1.0,
  }
  assert table[1]['skipped'] == [2]
  best = max(table, key=lambda row: row['speed'])
  # No other four layers or fewer are faster.
  assert best['speed'] == pytest.approx(
    max(
      speed_of(list(some))
      for size in range(5)
      for some in itertools.combinations(range(NUM_LAYERS), size)
    )
  )


def test_a_killed_search_goes_on(tmp_path):
  whole = run(planted, tmp_path / 'whole')
  calls = []

  def dies(skipped):
    calls.append(skipped)
    if len(skipped) == 3:
      raise KeyboardInterrupt
    return planted(skipped)

  with pytest.raises(KeyboardInterrupt):
    run(dies, tmp_path / 'killed')
  assert run(planted, tmp_path / 'killed') == whole
  none_left = lambda skipped: planted([]) if not skipped else 1 / 0
  assert run(none_left, tmp_path / 'killed') == whole


def test_shares_of_the_weights(tiny):
  sizes = [x.size for x in jax.tree.leaves(tiny.weights['layers'])]
  head = tiny.weights['embed'].size
  np.testing.assert_allclose(
    layer_skipping.shares(tiny),
    [
      1.0,
      (sum(sizes) / 2 + head) / (sum(sizes) + head),
      head / (sum(sizes) + head),
    ],
  )


def test_the_words():
  row = {
    'skipped': [7, 3],
    'agreement': 0.8,
    'drafts': 2,
    'D': 2.44,
    'speed': 1.2,
  }
  none = row | {'skipped': []}
  slow = row | {'skipped': [7], 'speed': 0.9}
  assert layer_skip_search.sentence(slow) == (
    'Without 1 layer, [7], the verifier drafts 80% of its tokens; chains of 2 '
    'win 2.44 tokens an iteration, by the weights that are read 0.90 times the '
    'speed of plain decoding: it does not pay.'
  )
  assert 'Without 2 layers, [3, 7], the verifier drafts 80% of' in (
    layer_skip_search.sentence(row)
  )
  lines = layer_skip_search.table_text([none, row]).splitlines()
  assert lines[1].split() == ['0', '-', '0.80', '2', '2.44', '1.20']
  assert lines[2].split() == ['2', '3', '0.80', '2', '2.44', '1.20']
