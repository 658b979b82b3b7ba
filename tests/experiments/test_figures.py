"""Figures come from records alone, and none is made up."""

import commands
import pytest
import reference_measured as measured

from experiments import (
  acceptance,
  bound_from_logprobs,
  brw_vs_bounds,
  curves,
  entropy_profile,
  evaluate_drafter,
  figures,
  latency,
  plan,
  records,
  speed_of_light,
  train_eagle,
  where_tokens_go,
)

NAMES = [
  'lookup',
  'oracle_run',
  'won_at(lookup)',
  'oracle_at(lookup)',
  *curves.BOUNDS,
]
MAIN_JOB = speed_of_light.NAME


def write(results, experiment, run_name, **facts):
  """Writes the record of a run; its folder has nothing else."""
  folder = results / experiment / run_name
  folder.mkdir(parents=True)
  record = measured.record(experiment, measured.rows(NAMES), **facts)
  records.write_json(folder / 'record.json', record)
  return folder


@pytest.fixture
def results(tmp_path):
  write(tmp_path, MAIN_JOB, 'b', finished='2026-01-02T00:00:00+00:00')
  write(tmp_path, MAIN_JOB, 'a', finished='2026-01-03T00:00:00+00:00')
  write(tmp_path, bound_from_logprobs.NAME, 'b')
  (tmp_path / MAIN_JOB / 'begun').mkdir()
  return tmp_path


def test_figures_go_by_the_names_of_their_experiments():
  assert set(figures.FIGURES) == {
    MAIN_JOB,
    where_tokens_go.NAME,
    bound_from_logprobs.NAME,
    brw_vs_bounds.NAME,
    entropy_profile.NAME,
    acceptance.NAME,
    latency.NAME,
    plan.NAME,
    train_eagle.NAME,
    evaluate_drafter.NAME,
  }


def test_the_newest_run_counts_or_the_one_that_is_named(results):
  find = lambda *run: figures.find_run(results, *run)
  assert find(MAIN_JOB, None)[0].name == 'a'
  assert find(MAIN_JOB, 'b')[0].name == 'b'
  assert find(MAIN_JOB, 'begun') is None
  assert find(where_tokens_go.NAME, None) is None


def test_a_record_that_is_none_is_no_missing_run(results):
  write(results, MAIN_JOB, 'old', schema=0)
  with pytest.raises(ValueError, match='expected schema 1 in .*old'):
    figures.find_run(results, MAIN_JOB, None)


def test_what_is_there_is_drawn_and_what_is_missing_is_said(results):
  before = {path.name for path in results.iterdir()}
  done = commands.run('figures', results_dir=results)
  assert done.returncode == 0, done.stderr
  out = results / 'figures'
  assert {path.name for path in results.iterdir()} == {*before, 'figures'}
  assert {path.name for path in out.iterdir()} == {
    f'{name}.{suffix}'
    for name in (MAIN_JOB, bound_from_logprobs.NAME)
    for suffix in ('png', 'pdf')
  }
  said = done.stdout.splitlines()
  assert len(said) == len(figures.FIGURES)
  missing = [line.split(':')[0] for line in said if 'no finished run' in line]
  assert missing == [
    where_tokens_go.NAME,
    brw_vs_bounds.NAME,
    entropy_profile.NAME,
    acceptance.NAME,
    latency.NAME,
    plan.NAME,
    train_eagle.NAME,
    evaluate_drafter.NAME,
  ]
  # Again, elsewhere: the same bytes.
  elsewhere = results / 'new' / 'place'
  again = commands.run('figures', results_dir=results, out=elsewhere)
  assert again.returncode == 0, again.stderr
  for path in out.iterdir():
    assert (elsewhere / path.name).read_bytes() == path.read_bytes()


def test_nothing_to_draw_is_an_error_and_leaves_nothing(tmp_path):
  done = commands.run('figures', results_dir=tmp_path, out=tmp_path / 'out')
  assert done.returncode == 2
  assert done.stderr.startswith('error: expected a finished run of ')
  assert list(tmp_path.iterdir()) == []
