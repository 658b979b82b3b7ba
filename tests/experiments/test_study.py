"""A study does not depend on its batches, nor on where it was killed."""

import types

import jax
import numpy as np
import pytest

from experiments import drafters, measure, oracle_runs, records
from experiments import study as study_lib
from specjax.checkpoint import resolve
from specjax.draft import lookup

# The sizes of test_measure.py, so that programs are compiled once for both.
CAPACITIES = [1, 6]
LIMIT = 9
NUM_BATCHES = 3  # of two prompts at most
# The prompts' seeds come of this; some texts end within the limit.
SEED = 3


def make(params, task, folder, batch_size, content=''):
  return study_lib.Study(
    resolve.Checkpoint(
      params, types.SimpleNamespace(eos_ids=task.eos_ids), 'tiny'
    ),
    task.prompts,
    {'lookup': drafters.Drafting(lookup.make(), content=content)},
    task.sampling,
    records.Stages(folder, {'batch_size': batch_size}),
    seed=SEED,
    capacities=CAPACITIES,
    max_new_tokens=LIMIT,
    max_length=128,
    batch_size=batch_size,
  )


def measure_all(study):
  """Everything that a study measures, by name."""
  runs = {
    f'{name}-{capacity}': study.run(name, capacity)
    for name in ('lookup', study_lib.ORACLE_RUN)
    for capacity in CAPACITIES
  }
  texts = study.texts
  return {
    'plain': dict(study.plain),
    'laws': {k: np.asarray(v) for k, v in vars(texts.laws).items()},
    'lengths': {'texts': texts.num_tokens, 'runs': study.run_lengths},
    'oracle': dict(study.oracle),
    'proposals': dict(study.proposals('lookup')),
    **runs,
  }


def assert_same(got, expected, atol=0.0):
  assert got.keys() == expected.keys()
  for name, arrays in expected.items():
    assert got[name].keys() == arrays.keys()
    for key, array in arrays.items():
      np.testing.assert_allclose(
        got[name][key], array, rtol=0, atol=atol, err_msg=f'{name} {key}'
      )


def stages_in(folder):
  return sorted(path.stem for path in (folder / 'stages').iterdir())


@pytest.fixture(scope='module')
def undisturbed(tiny, task, tmp_path_factory):
  """Measured in batches of 2, 2 and 1 prompts."""
  folder = tmp_path_factory.mktemp('undisturbed')
  return measure_all(make(tiny, task, folder, 2)), stages_in(folder)


def test_there_is_a_stage_for_every_batch_but_of_what_is_known(undisturbed):
  names = ['plain', 'laws', 'oracle', 'lookup-6', 'lookup-proposals']
  assert undisturbed[1] == sorted(
    f'{n}-{i}' for n in names for i in range(NUM_BATCHES)
  )


# Kinds: rows in another order, rows that fill up a batch taken for prompts,
# starts looked up in a neighbour's text.
def test_results_do_not_depend_on_batches(tiny, task, tmp_path, undisturbed):
  whole = measure_all(make(tiny, task, tmp_path, 3))
  assert_same(whole, undisturbed[0], atol=1e-4)
  lengths = whole['lengths']
  assert len(set(np.asarray(lengths['texts']))) > 2
  assert np.any(lengths['texts'] > lengths['runs'])
  for name, run in whole.items():
    if 'num_steps' in run:
      np.testing.assert_array_equal(run['num_tokens'], lengths['runs'])
      np.testing.assert_array_equal(
        run['emitted'].sum(axis=1), lengths['runs'], err_msg=name
      )


@pytest.mark.parametrize(
  ('module', 'function', 'stage'),
  [
    (measure, 'laws', 'laws'),
    (measure, 'drafter_run', 'lookup-6'),
    (oracle_runs, 'everywhere', 'oracle'),
  ],
)
def test_a_killed_study_goes_on(
  tiny, task, tmp_path, undisturbed, monkeypatch, module, function, stage
):
  real, calls, written = getattr(module, function), [], []

  def dies_at_the_second_batch(*args):
    calls.append(function)
    if len(calls) == 2:
      raise KeyboardInterrupt
    return real(*args)

  def note(path, write=records.write_npz, **arrays):
    written.append(path.stem)
    write(path, **arrays)

  monkeypatch.setattr(module, function, dies_at_the_second_batch)
  monkeypatch.setattr(records, 'write_npz', note)
  with pytest.raises(KeyboardInterrupt):
    measure_all(make(tiny, task, tmp_path, 2))
  assert written[-1] == f'{stage}-0'
  assert_same(measure_all(make(tiny, task, tmp_path, 2)), undisturbed[0])
  # Every batch was measured once, but that of the interruption.
  assert sorted(written) == undisturbed[1]
  assert len(calls) == NUM_BATCHES + 1


def test_a_finished_study_asks_nothing_of_the_model(
  tiny, task, tmp_path, undisturbed
):
  measure_all(make(tiny, task, tmp_path, 2))
  blank = tiny.replace(weights=jax.tree.map(np.zeros_like, tiny.weights))
  assert_same(measure_all(make(blank, task, tmp_path, 2)), undisturbed[0])


# Kinds: measurements of a file's old content that are taken for the new one's.
def test_what_a_drafter_was_made_of_is_in_its_stages(tiny, task, tmp_path):
  for content in ('', 'a1', 'b2'):
    study = make(tiny, task, tmp_path, 2, content)
    study.run('lookup', 6)
    study.proposals('lookup')
  kinds = ['', '-a1', '-b2']
  names = [f'lookup{k}-{x}' for k in kinds for x in ('6', 'proposals')]
  assert stages_in(tmp_path) == sorted(
    f'{n}-{i}' for n in ['plain', *names] for i in range(NUM_BATCHES)
  )


def test_prompts_are_read_with_what_drafters_want_to_know(tiny, task, tmp_path):
  told = []

  def init(params, prefix):
    told.append(prefix.feature_layers)
    return ()

  drafter = lookup.make()._replace(init=init, features=(0, 1))
  study = study_lib.Study(
    resolve.Checkpoint(
      tiny, types.SimpleNamespace(eos_ids=task.eos_ids), 'tiny'
    ),
    task.prompts[:1],
    {'curious': drafters.Drafting(drafter)},
    jax.tree.map(lambda x: x[:1], task.sampling),
    records.Stages(tmp_path, {}),
    seed=SEED,
    capacities=CAPACITIES,
    max_new_tokens=LIMIT,
    max_length=128,
    batch_size=2,
  )
  study.run('curious', 6)
  assert told == [(0, 1)]
