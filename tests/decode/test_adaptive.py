"""Adaptive decoding: the text of plain decoding, whatever is chosen."""

import jax
import numpy as np
import pytest
import reference_cases as cases
import reference_decode
import reference_programs

from specjax.decode import adaptive, capacity, generate
from specjax.draft import base, grown, lookup, oracle
from specjax.draft import reader as reader_lib
from specjax.trees import rules

SIZES = (1, 3, 7)
# Cheap trees, dear ones, and such as only sometimes pay.
COSTS = {
  'cheap': (1.0, 1.0, 1.0),
  'dear': (1.0, 9.0, 9.0),
  'between': (1.0, 1.2, 1.9),
}


# The same objects for all tests, so compiled once.
PLANTED = reference_decode.planted(cases.VOCAB)
RULE_FN = lambda num_nodes: rules.best_first(num_nodes, 3)


def drafter_of(name, params, case):
  """The drafter, and what it needs of its own."""
  if name == 'planted':
    return PLANTED, case.truth()
  if name == 'lookup':
    return lookup.make(max_match=2), ()
  if name == 'layers':
    reader = reader_lib.layer_skip(params.config, (1,))
    return grown.make(reader, RULE_FN, SIZES[-1], cases.EOS), ()
  return oracle.make(SIZES[-1], cases.EOS), ()


@pytest.fixture(scope='module')
def case(tiny):
  rng = np.random.default_rng(0)
  prompts = [
    [first, *rng.integers(0, cases.VOCAB, size)]
    for first, size in zip(range(5, 11), (0, 3, 9, 1, 20, 40), strict=True)
  ]
  prompts = [[int(token) for token in prompt] for prompt in prompts]
  return cases.make_case(tiny, prompts, cases.SETTINGS[: len(prompts)])


def decode(tiny, batch, name, case, costs, **how):
  drafter, drafter_params = drafter_of(name, tiny, case)
  return generate.decode(
    tiny,
    batch,
    eos_ids=cases.EOS,
    drafter=drafter,
    drafter_params=drafter_params,
    num_nodes=capacity.make_menu(SIZES, COSTS[costs]),
    **how,
  )


@pytest.mark.parametrize('costs', COSTS)
@pytest.mark.parametrize('name', ['planted', 'lookup', 'layers', 'oracle'])
def test_texts_are_those_of_plain_decoding(tiny, case, name, costs):
  [batch] = case.batches(tiny)
  results = decode(tiny, batch, name, case, costs)
  for result, (tokens, log_p, _) in zip(results, case.outputs(), strict=True):
    assert result.tokens == tokens
    np.testing.assert_allclose(result.log_probs, log_p, atol=1e-4)
    assert sum(result.steps.emitted) == len(tokens)
    assert set(result.steps.num_nodes) <= set(range(1, SIZES[-1] + 1))


def test_what_is_chosen_follows_costs_and_drafts(tiny, case):
  [batch] = case.batches(tiny)
  sizes = lambda name, costs: np.concatenate(
    [r.steps.num_nodes for r in decode(tiny, batch, name, case, costs)]
  )
  assert np.all(sizes('planted', 'cheap') == SIZES[-1])
  # Nine plain steps buy more than any tree of seven nodes holds.
  assert np.all(sizes('planted', 'dear') == 1)
  # A model that drafts is asked once before it is known to lose.
  asked = sizes('layers', 'dear') > 1
  assert asked[0] and asked.mean() < 0.3
  assert len(set(sizes('lookup', 'between'))) > 1


def test_a_run_cut_into_calls_is_the_same_run(tiny, case):
  [batch] = case.batches(tiny)
  results = [
    decode(tiny, batch, 'planted', case, 'between', chunk=chunk)
    for chunk in (1, 5, 64)
  ]
  for others in results[1:]:
    for one, other in zip(results[0], others, strict=True):
      assert one.tokens == other.tokens
      np.testing.assert_array_equal(one.steps.num_nodes, other.steps.num_nodes)


def test_other_costs_and_texts_compile_nothing(tiny, case):
  [batch] = case.batches(tiny)
  decode(tiny, batch, 'lookup', case, 'cheap')
  with reference_programs.compiled() as names:
    decode(tiny, batch, 'lookup', case, 'between')
  assert 'run' not in ''.join(names)


@pytest.mark.parametrize('name', ['planted', 'layers'])
def test_measured_menus_hold_times_and_leave_rows_alone(tiny, case, name):
  [batch] = case.batches(tiny)
  drafter, drafter_params = drafter_of(name, tiny, case)
  params = base.Params(tiny, drafter_params, batch.sampling)
  state = generate.start(params, batch, drafter)
  before = jax.device_get(state)
  menu = adaptive.measure(
    params,
    state,
    SIZES,
    drafter=drafter,
    eos_ids=cases.EOS,
    num_steps=2,
    repeats=2,
  )
  jax.tree.map(np.testing.assert_array_equal, before, jax.device_get(state))
  assert menu.capacities == SIZES
  assert np.all(np.isfinite(menu.seconds)) and np.all(menu.seconds > 0)


@pytest.mark.parametrize('index', range(len(SIZES)))
@pytest.mark.parametrize('name', ['planted', 'layers'])
def test_measuring_keeps_to_one_capacity(tiny, case, name, index):
  """What is timed are iterations of the capacity that they are put down to."""
  [batch] = case.batches(tiny)
  drafter, drafter_params = drafter_of(name, tiny, case)
  params = base.Params(tiny, drafter_params, batch.sampling)
  state = generate.start(params, batch, drafter)
  params, state = adaptive.kept_to(index, SIZES, params, state)
  state = adaptive.run(params, state, 3, drafter=drafter, eos_ids=cases.EOS)
  is_taken = np.arange(3) < np.asarray(state.num_steps)[:, None]
  sizes = np.asarray(state.steps.num_nodes)[:, :3][is_taken]
  assert set(sizes.tolist()) == {SIZES[index]}


def test_a_menu_wants_a_drafter_and_the_rule_match(tiny, case):
  [batch] = case.batches(tiny)
  menu = capacity.make_menu(SIZES, COSTS['cheap'])
  how = {'eos_ids': cases.EOS, 'num_nodes': menu}
  with pytest.raises(ValueError, match='expected a drafter'):
    generate.decode(tiny, batch, **how)
  how['drafter'] = lookup.make()
  with pytest.raises(ValueError, match="rule 'match'"):
    generate.decode(tiny, batch, rule='block', **how)
  with pytest.raises(ValueError, match='is_timed'):
    generate.decode(tiny, batch, is_timed=True, **how)
