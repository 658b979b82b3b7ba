"""Figures and tables of a study say what the records of its cells say."""

import csv
import itertools

import matplotlib.colors
import numpy as np
import pytest
import reference_paper

from experiments.paper import cells, curves, files, moments, plans, relation
from specjax.theory import resample

ALL = tuple(reference_paper.MAKERS)


def cell(**records):
  return cells.Cell('wide', 'chat', records)


@pytest.fixture
def study(tmp_path):
  return cells.read(reference_paper.write(tmp_path / 'small'))


def one(record, curve, **wanted):
  """The rows of a curve in a record, as capacity -> D."""
  wanted['curve'] = curve
  return {
    row['capacity']: row['D']
    for row in record['table']
    if wanted.items() <= row.items()
  }


def by_curve(rows):
  found = {}
  for row in rows:
    found.setdefault(row['curve'], {})[row['capacity']] = row['D']
  return found


def test_curves_are_of_the_record_whose_texts_drafters_ran_on():
  main, other = reference_paper.main_job(0.25), reference_paper.acceptance()
  rows = curves.rows_of(cell(speed_of_light=main, acceptance=other))
  # Its later recipes win more, but the last two are a drawn one and the
  # oracle.
  expected = {
    'eagle': one(other, 'eagle-beam', temperature=1.0),
    'lookup': one(other, 'lookup', temperature=1.0),
  }
  for name in curves.BOUNDS:
    expected[name] = one(other, name, temperature=1.0) or one(main, name)
  assert by_curve(rows) == expected
  recipes = {row['recipe'] for row in rows if row['curve'] == 'eagle'}
  assert recipes == {'eagle-beam'}


def test_without_acceptance_the_drafters_are_those_of_the_main_job():
  main = reference_paper.main_job()
  rows = curves.rows_of(cell(speed_of_light=main))
  names = {'lookup', 'bigram', *curves.BOUNDS}
  assert by_curve(rows) == {name: one(main, name) for name in names}


def test_what_says_nothing_is_left_out_and_the_temperature_is_the_same():
  main = reference_paper.main_job(vacuous=['run', 'printed', 'dual'])
  main['flags']['temperature'] = 0.0
  other = reference_paper.acceptance()
  other['table'] = [
    row
    for row in other['table']
    if row['temperature'] or row['curve'] not in ('run', 'run_context')
  ]
  rows = by_curve(curves.rows_of(cell(speed_of_light=main, acceptance=other)))
  assert not {'run', 'printed', 'dual'} & set(rows)
  assert rows['eagle'] == one(other, 'eagle-beam', temperature=0.0)
  assert rows['run_context'] == one(main, 'run_context')


def test_acceptance_alone_is_drawn_and_nothing_of_nothing():
  other = reference_paper.acceptance()
  rows = curves.rows_of(cell(acceptance=other))
  assert set(by_curve(rows)) == {'eagle', 'lookup', *reference_paper.LIMITS}
  assert curves.rows_of(cell()) == []


def test_lines_of_curves_are_their_rows(study):
  for model in study.models:
    figure = curves.draw(study, model)
    assert model in figure.get_suptitle()
    assert [axes.get_title() for axes in figure.axes] == ['chat', 'code']
    for axes, of_data in zip(figure.axes, study.of(model), strict=True):
      expected = by_curve(curves.rows_of(of_data))
      styles = {**curves.DRAFTERS, **curves.BOUNDS}
      drawn = {
        line.get_label(): dict(zip(*line.get_data(), strict=True))
        for line in axes.get_lines()
      }
      assert drawn == {styles[k].label: v for k, v in expected.items()}
      assert axes.get_yscale() == axes.get_xscale() == 'log'
    [legend] = figure.legends
    labels = [text.get_text() for text in legend.get_texts()]
    assert sorted(labels) == sorted(drawn)


def test_curves_can_be_told_apart_without_colour():
  styles = [*curves.DRAFTERS.values(), *curves.BOUNDS.values()]
  assert len({(s.line, s.marker) for s in styles}) == len(styles)


def test_panels_without_data_are_taken_away():
  data = 'abcd'
  records = {'acceptance': reference_paper.acceptance()}
  some = [cells.Cell('wide', name, records) for name in data]
  study = cells.Study('x', [*some, cells.Cell('wide', 'e', {})], {})
  titles = [axes.get_title() for axes in curves.draw(study, 'wide').axes]
  assert titles == list(data)


def test_the_summary_of_curves_has_the_largest_trees(study):
  summary = curves.summary(study, 'deep')
  assert list(summary.heads) == ['curve', 'chat', 'code']
  assert summary.heads['chat'] == 'chat, $N = 16$'
  styles = {**curves.DRAFTERS, **curves.BOUNDS}
  for of_data in study.of('deep'):
    rows = by_curve(curves.rows_of(of_data))
    found = {row['curve']: row[of_data.data].value for row in summary.rows}
    assert found == {styles[k].label: v[16] for k, v in rows.items()}


def test_the_table_of_curves_has_every_point(study):
  found = curves.table(study, 'deep').rows
  rows = [row for c in study.of('deep') for row in curves.rows_of(c)]
  assert [(*row['D'], row['curve'], row['capacity']) for row in found] == [
    (r['D'], r['low'], r['high'], r['curve'], r['capacity']) for r in rows
  ]
  assert {(row['model'], row['data']) for row in found} == {
    ('deep', 'chat'),
    ('deep', 'code'),
  }


def test_the_relation_has_the_best_drafter_of_every_cell_and_capacity(study):
  rows = relation.table(study).rows
  places = [(row['model'], row['data'], row['capacity']) for row in rows]
  assert places == [
    (*of_cell[:2], size) for of_cell in study.cells for size in (4, 16)
  ]
  cells_by_name = {of_cell[:2]: of_cell for of_cell in study.cells}
  for row in rows:
    found = by_curve(curves.rows_of(cells_by_name[row['model'], row['data']]))
    at = {name: values.get(row['capacity']) for name, values in found.items()}
    assert row['D'].value == max(at['lookup'], at['eagle'])
    assert row['drafter'] == 'eagle'
    assert row['recipe'] == 'eagle-beam'
    for name in relation.BOUNDS:
      assert row[name].value == at[name]
  assert relation.summary(study).rows == rows[1::2]


def test_a_mark_is_a_row_of_the_relation(study):
  # Lookup becomes the best drafter of one cell.
  record = study.cells[0].records['acceptance']
  for row in record['table']:
    row['D'] += 9 * (row['curve'] == 'lookup')
  rows = relation.table(study).rows
  figure = relation.draw(study)
  assert len(figure.axes) == len(relation.BOUNDS)
  for axes, bound in zip(figure.axes, relation.BOUNDS, strict=True):
    marks = [line for line in axes.get_lines() if line.get_marker() != 'None']
    marks = [line for line in marks if len(line.get_xdata()) == 1]
    assert [(*m.get_xdata(), *m.get_ydata()) for m in marks] == [
      (row[bound].value, row['D'].value) for row in rows
    ]
    white = matplotlib.colors.to_rgba('white')
    fills = [matplotlib.colors.to_rgba(m.get_markerfacecolor()) for m in marks]
    is_head = [row['drafter'] == 'eagle' for row in rows]
    assert [fill != white for fill in fills] == is_head
    assert {True, False} == set(is_head)
    looks = {
      (m.get_marker(), row['model']) for m, row in zip(marks, rows, strict=True)
    }
    assert len(looks) == len(study.models)


def test_a_cell_without_a_bound_or_a_drafter_has_no_mark():
  main = reference_paper.main_job()
  main['table'] = [row for row in main['table'] if row['curve'] != 'printed']
  study = cells.Study('x', [cell(speed_of_light=main)], {})
  assert all(row['printed'] is None for row in relation.table(study).rows)
  assert len(relation.draw(study).axes) == len(relation.BOUNDS)
  main['flags']['drafters'] = []
  assert relation.table(study).rows == []
  assert relation.draw(study) is None


def test_moments_are_those_of_own_texts_of_all_kinds(study):
  rows = moments.table(study).rows
  assert rows == [
    {
      'model': of_cell.model,
      'data': of_cell.data,
      # Its first settings are those that are wanted.
      'mu': resample.Interval(*(np.array([2, 1.5, 2.25]) + number / 8)),
      'mu2': resample.Interval(*(np.array([3, 2.5, 3.25]) + number / 8)),
    }
    for number, of_cell in enumerate(study.cells)
  ]


def test_plans_have_a_row_for_each_place(study):
  rows = plans.table(study).rows
  places = itertools.product(study.cells, [8, 32])
  assert [(row['model'], row['data'], row['batch']) for row in rows] == [
    (*of_cell[:2], batch) for of_cell, batch in places
  ]
  for number, (row, other) in enumerate(
    zip(rows[::2], rows[1::2], strict=True)
  ):
    assert row['speedup'] == tuple(x + number / 8 for x in (3, 2.5, 3.5))
    assert row['ceiling'] == 100 / 20
    assert row['times'] == 'forecast'
    assert row['best'] == 'eagle-beam'
    assert {other[name] for name in ('best', 'speedup', 'ceiling')} == {None}


def test_the_same_records_give_the_same_files(study, tmp_path):
  names = ['moments', 'plans', 'relation', 'curves-wide', 'curves-deep']
  drawn = names[2:]
  folders = [tmp_path / name for name in ('a', 'b')]
  for folder in folders:
    folder.mkdir()
    files.write(study, folder)
  first, second = (
    {path.name: path.read_bytes() for path in folder.iterdir()}
    for folder in folders
  )
  assert first == second
  assert set(first) == {
    *(f'{name}.{suffix}' for name in names for suffix in ('csv', 'tex')),
    *(f'{name}.{suffix}' for name in drawn for suffix in ('png', 'pdf')),
  }
  with (folders[0] / 'relation.csv').open() as file:
    found = list(csv.DictReader(file))
  assert [float(row['D_low']) for row in found] == [
    row['D'].low for row in relation.table(study).rows
  ]


@pytest.mark.parametrize('kept', [(), *[(name,) for name in ALL]])
def test_of_what_is_not_there_nothing_is_made(tmp_path, kept):
  study = cells.read(reference_paper.write(tmp_path / 'few', experiments=kept))
  out = tmp_path / 'out'
  out.mkdir()
  files.write(study, out)
  drawn = {path.stem for path in out.iterdir()}
  of_curves = {'curves-wide', 'curves-deep', 'relation'}
  expected = {
    'speed_of_light': of_curves,
    'acceptance': of_curves,
    'entropy_profile': {'moments'},
    'plan': {'plans'},
  }
  assert drawn == set().union(*(expected[name] for name in kept))
