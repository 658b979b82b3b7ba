"""Tests of experiments.model_flags: the order of matrices and runs."""

import types

import pytest

from experiments import model_flags, records
from specjax.llama import storage


@pytest.fixture
def flags(monkeypatch, tiny_folder, tmp_path):
  """Flags as a main would have parsed them."""
  values = types.SimpleNamespace(
    model=str(tiny_folder),
    dtype='float32',
    weights='values',
    order='auto',
    results_dir=str(tmp_path),
    run_name='a',
  )
  monkeypatch.setattr(model_flags, 'FLAGS', values)
  return values


def begin(flags, **values):
  """Starts a run whose stages lie in a folder of its own."""
  folder = records.open_run(flags.results_dir, 'toy', flags.run_name)
  inner = records.open_run(folder, 'texts', 'T=0')
  records.Stages(inner, {'seed': 0, **values})


def test_the_first_start_chooses_and_says_what(flags):
  assert model_flags.load('toy').order == 'in_out'
  assert flags.order == 'in_out'


def test_a_run_that_goes_on_keeps_its_order(flags):
  begin(flags, order='both')
  model = model_flags.load('toy')
  assert model.order == flags.order == 'both'
  assert isinstance(model.params.weights['layers']['gate'], storage.Matrix)


@pytest.mark.parametrize(
  'experiment, run_name', [('other', 'a'), ('toy', 'b'), (None, 'a')]
)
def test_other_runs_are_not_asked(flags, experiment, run_name):
  begin(flags, order='both')
  flags.run_name = run_name
  assert model_flags.load(experiment).order == 'in_out'


def test_an_order_that_is_asked_for_is_taken(flags):
  begin(flags, order='both')
  flags.order = 'out_in'
  assert model_flags.load('toy').order == 'out_in'


def test_a_run_that_knew_no_order_chooses_one(flags):
  begin(flags)
  assert model_flags.load('toy').order == 'in_out'
