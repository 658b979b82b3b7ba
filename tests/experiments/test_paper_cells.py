"""Cells are those of the grid; what has no record is named."""

import pytest
import reference_paper

from experiments.paper import cells

RUNS = [
  f'{experiment}/{model}+{data}'
  for experiment in reference_paper.MAKERS
  for model in ('wide', 'deep')
  for data in ('chat', 'code')
]


def test_every_cell_has_the_records_of_its_own_runs(tmp_path):
  study = cells.read(reference_paper.write(tmp_path / 'small'))
  assert study.name == 'small'
  assert [cell[:2] for cell in study.cells] == [
    ('wide', 'chat'),
    ('wide', 'code'),
    ('deep', 'chat'),
    ('deep', 'code'),
  ]
  assert study.models == ['wide', 'deep']
  assert study.of('deep') == study.cells[2:]
  assert study.missing == {}
  for number, cell in enumerate(study.cells):
    assert cell.records == {
      name: make(number / 8) for name, make in reference_paper.MAKERS.items()
    }


@pytest.mark.parametrize(
  'without', [[], RUNS[:1], RUNS[1::3], [*RUNS, 'train/wide']]
)
def test_what_has_no_record_is_missing_and_nothing_else(tmp_path, without):
  study = cells.read(reference_paper.write(tmp_path / 'small', without))
  assert study.missing == dict.fromkeys(without, 'no record')
  assert len(study.cells) == 4


def test_what_the_grid_does_not_have_is_told_from_what_did_not_run(tmp_path):
  (tmp_path / 'grid.txt').write_text(
    'speed_of_light --run_name=a+x\nplan --run_name=b+x\nplan --run_name=a+x+1'
  )
  study = cells.read(tmp_path)
  assert [cell[:2] for cell in study.cells] == [('a', 'x'), ('b', 'x')]
  asked = ['speed_of_light/a+x', 'plan/b+x', 'plan/a+x+1']
  other = [f'{e}/{model}+x' for model in 'ab' for e in cells.EXPERIMENTS]
  assert study.missing == {
    **dict.fromkeys(other, 'not in the grid'),
    **dict.fromkeys(asked, 'no record'),
  }


def test_models_stay_together_when_the_grid_goes_by_data(tmp_path):
  (tmp_path / 'grid.txt').write_text(
    'model = b,a\ndata = y,x\n'
    'plan --seed=0 --prompts={data} --run_name={model}+{data}\n'
  )
  study = cells.read(tmp_path)
  assert [''.join(cell[:2]) for cell in study.cells] == ['by', 'bx', 'ay', 'ax']


@pytest.mark.parametrize('text', ['', '{', '{"schema": 0}', '[]'])
def test_a_record_that_is_none_is_no_missing_run(tmp_path, text):
  folder = reference_paper.write(tmp_path / 'small')
  (folder / 'records' / RUNS[0] / 'record.json').write_text(text)
  with pytest.raises(ValueError, match=r'expected .*wide\+chat'):
    cells.read(folder)


def test_a_record_without_what_a_table_needs_is_none(tmp_path):
  folder = reference_paper.write(tmp_path / 'small')
  path = folder / 'records' / 'plan' / 'wide+chat' / 'record.json'
  path.write_text(path.read_text().replace('"ceiling"', '"floor"'))
  with pytest.raises(ValueError, match=r"without \['ceiling'\]"):
    cells.read(folder)


def test_sweeps_are_found_where_they_are_and_where_they_are_held(tmp_path):
  assert cells.find(tmp_path) == []
  folders = [reference_paper.write(tmp_path / 'sweeps' / name) for name in 'ab']
  assert cells.find(tmp_path) == folders
  assert cells.find(folders[0]) == folders[:1]
