"""The figure, the table and the sentence say what the record says."""

import matplotlib.colors
import matplotlib.figure
import numpy as np
import pytest

from experiments import curves, posterior_curves, report
from specjax import plotting

CAPACITIES = [1, 4, 16]
NAMES = [
  'lookup',
  'bigram',
  'oracle_run',
  'won_at(bigram)',
  'oracle_at(bigram)',
  *curves.BOUNDS,
  *(
    f'{name}({d})'
    for d in ('lookup', 'bigram')
    for name in posterior_curves.NAMES
  ),
]


def make_record(temperature=1.0, vacuous=()):
  """A record whose curves and capacities all have values of their own."""
  table = [
    {
      'capacity': capacity,
      'curve': name,
      'D': 1 + i * (1 + number / 7),
      'low': 1 + i * (0.9 + number / 7),
      'high': 1 + i * (1.2 + number / 7),
    }
    for number, name in enumerate(NAMES)
    for i, capacity in enumerate(CAPACITIES)
  ]
  return {
    'flags': {
      'model': '/models/small-llama/',
      'temperature': temperature,
      'capacities': CAPACITIES,
      'drafters': ['lookup', 'bigram'],
    },
    'best_drafter': 'bigram',
    'vacuous': list(vacuous),
    'checks': [],
    'table': table,
  }


def sure_record():
  record = make_record(0.0, curves.BOUNDS)
  for row in record['table']:
    if row['curve'] == 'printed' and row['capacity'] > 1:
      row.update(D=None, low=None, high=None)
  return record


def look(line):
  """What tells a curve from others in print: the line and its marker."""
  return line.get_linestyle(), line.get_marker(), line.get_color()


def test_the_axes_say_what_they_show():
  axes = report.draw(make_record()).axes[0]
  assert axes.get_xscale() == 'log'
  assert axes.get_yscale() == 'linear'
  assert axes.get_xlabel() == 'capacity N (tokens of one verifier pass)'
  assert axes.get_ylabel() == 'tokens per iteration D (bonus included)'
  assert [t.get_text() for t in axes.get_xticklabels()] == ['1', '4', '16']
  assert axes.get_title().startswith('small-llama, temperature 1:')


def test_every_curve_is_one_line_of_its_own_look():
  record = make_record()
  axes = report.draw(record).axes[0]
  shown = {
    'lookup': 'prompt lookup',
    'bigram': 'bigram drafter',
    'oracle_run': "the oracle's own run",
    'oracle_at(bigram)': 'best tree at the starts of bigram',
    'dual': 'limit at the starts of bigram',
    'run': 'limit of any run',
    'run_context': 'limit of any run, from whole laws',
    'run_priced': 'limit of any run, from best trees',
    'printed': 'printed bound (leading term, O(1) omitted)',
    'lorden_dual': 'i.i.d. bound (Lorden, dual)',
    'sharp': 'i.i.d. asymptote (no bound)',
  }
  lines = {line.get_label(): line for line in axes.lines}
  assert set(lines) == set(shown.values())
  for name, label in shown.items():
    x, y = lines[label].get_data()
    np.testing.assert_array_equal(x, CAPACITIES)
    rows = [curves.find(record['table'], name, n)['D'] for n in CAPACITIES]
    np.testing.assert_array_equal(y, rows)
  assert len({look(line) for line in axes.lines}) == len(shown)
  legend = [text.get_text() for text in axes.get_legend().get_texts()]
  assert legend == [line.get_label() for line in axes.lines]
  # All but the printed bound fits in.
  highest = max(
    row['high']
    for row in record['table']
    if row['curve'] in shown and row['curve'] != 'printed'
  )
  assert axes.get_ylim()[1] > highest


def test_a_band_is_the_interval():
  figure = matplotlib.figure.Figure()
  axes = figure.add_subplot()
  table = [
    {'curve': 'a', 'capacity': n, 'D': d, 'low': d - 0.5, 'high': d + 1}
    for n, d in [(1, 1.0), (2, 1.5), (4, 2.0)]
  ]
  table.append({'curve': 'b', 'capacity': 8, 'D': None, 'low': 0, 'high': 0})
  styles = {
    'a': plotting.Style('first', 'tab:blue'),
    'b': plotting.Style('second', 'tab:red', ':', has_band=False),
  }
  plotting.tokens_against_capacity(axes, table, styles)
  (band,) = axes.collections
  corners = {tuple(point) for point in band.get_paths()[0].vertices}
  for row in table[:3]:
    assert {(row['capacity'], row['low']), (row['capacity'], row['high'])} <= (
      corners
    )
  colour = matplotlib.colors.to_rgb('tab:blue')
  np.testing.assert_allclose(band.get_facecolor()[0][:3], colour)
  # A row without a value is no point, but its capacity has its tick.
  assert len(axes.lines[1].get_xdata()) == 0
  np.testing.assert_array_equal(axes.get_xticks(), [1, 2, 4, 8])


def test_the_table_has_all_rows():
  record = make_record()
  record['table'][-1]['high'] = None
  head, titles, *lines = report.table_text(record).splitlines()
  assert '95 %' in head
  assert titles.split() == ['N', '=', '1', 'N', '=', '4', 'N', '=', '16']
  assert [line.split()[0] for line in lines] == NAMES
  assert len({len(line) for line in [titles, *lines]}) == 1
  for row in record['table'][:-1]:
    cell = f' {row["D"]:.2f} [{row["low"]:.2f}, {row["high"]:.2f}]'
    assert cell in lines[NAMES.index(row['curve'])]
  assert lines[-1].endswith(', inf]')


def test_the_sentence_has_the_numbers_of_the_table():
  record = make_record()
  at = lambda name: curves.find(record['table'], name, 16)['D']
  cell = lambda name: '{D:.2f} [{low:.2f}, {high:.2f}]'.format(
    **curves.find(record['table'], name, 16)
  )
  assert report.sentence(record) == (
    f'At capacity 16 the best drafter, bigram, wins {cell("bigram")} tokens '
    f'an iteration. At its own starts its trees take {cell("won_at(bigram)")} '
    f'and the best trees {cell("oracle_at(bigram)")}: of what they win over '
    'plain decoding, which takes 1, it gets '
    f'{(at("won_at(bigram)") - 1) / (at("oracle_at(bigram)") - 1):.0%}. '
    f'Runs of deterministic trees are limited to {cell("run_context")}, as '
    'estimated from these texts; it reaches '
    f'{(at("bigram") - 1) / (at("run_context") - 1):.0%} of that.'
  )


def test_the_verdict_names_bounds_that_are_broken():
  check = {'curve': 'run - lookup', 'capacity': 4, 'D': 1.0, 'low': 0.5}
  # Rounding is no verdict.
  record = {'checks': [{**check, 'high': 2.0}, {**check, 'high': -1e-6}]}
  assert report.verdict(record) == (
    'No bound lies below what it bounds, of 2 comparisons.'
  )
  broken = {**check, 'D': -0.2, 'low': -0.3, 'high': -0.1}
  record['checks'].append(broken)
  assert report.verdict(record) == (
    'BROKEN, of 3 comparisons: run - lookup at capacity 4 is -0.20 '
    '[-0.30, -0.10].'
  )


def test_what_says_nothing_is_left_out():
  record = sure_record()
  broken = {'capacity': 4, 'D': -1.0, 'low': -1.0, 'high': -1.0}
  pairs = ['run - lookup', 'posterior_dual(lookup) - posterior_taken(lookup)']
  record['checks'] = [{**broken, 'curve': curve} for curve in pairs]
  told = report.telling(record)
  names = {row['curve'] for row in told['table']}
  assert names == set(NAMES) - set(curves.BOUNDS)
  assert told['checks'] == record['checks'][1:]
  assert report.verdict(told).startswith('BROKEN, of 1 comparisons: posterior')
  assert report.telling(make_record()) == make_record()


def test_temperature_0_tells_how_far_knowledge_goes():
  record = sure_record()
  text = report.sentence(record)
  assert 'as always at temperature 0' in text
  assert 'estimated from these texts' not in text
  cell = lambda name: '{D:.2f} [{low:.2f}, {high:.2f}]'.format(
    **curves.find(record['table'], name, 16)
  )
  for name in ('lookup', 'bigram'):
    limit, promise, won = (
      cell(f'posterior_{curve}({name})') for curve in ('dual', 'best', 'won')
    )
    assert (
      f'By what {name} knows of the nodes that it proposes at those starts, '
      'rules that judge each node by its own chance, with 16 in the mean, are '
      f'limited to {limit}; the best 16 of every start promise {promise}, and '
      f'took {won}.'
    ) in text


def test_temperature_0_shows_limits_and_promises_by_what_is_known():
  record = sure_record()
  # An oracle that knows the text would flatten the rest.
  for row in record['table']:
    if row['curve'].startswith('oracle'):
      row['high'] *= 100
  axes = report.draw(record).axes[0]
  shown = {
    'oracle_at(bigram)': 'best tree at the starts of bigram',
    'oracle_run': "the oracle's own run",
    'posterior_dual(lookup)': 'limit node by node, by what lookup knows',
    'posterior_best(lookup)': 'what that promises its best N',
    'posterior_dual(bigram)': 'limit node by node, by what bigram knows',
    'posterior_best(bigram)': 'what that promises its best N',
    'lookup': 'prompt lookup',
    'bigram': 'bigram drafter',
  }
  assert [line.get_label() for line in axes.lines] == list(shown.values())
  for line, name in zip(axes.lines, shown, strict=True):
    rows = [curves.find(record['table'], name, n)['D'] for n in CAPACITIES]
    np.testing.assert_array_equal(line.get_ydata(), rows)
  assert len({look(line)[:2] for line in axes.lines}) == len(shown)
  highest = max(
    row['high']
    for row in record['table']
    if row['curve'] in shown and not row['curve'].startswith('oracle')
  )
  assert highest < axes.get_ylim()[1] < 2 * highest


def test_drafters_of_which_nothing_is_known_have_no_limit():
  record = sure_record()
  record['table'] = [
    row for row in record['table'] if 'posterior' not in row['curve']
  ]
  assert report.sentence(record).endswith('bounds from it say nothing.')
  assert len(report.draw(record).axes[0].lines) == 4


def test_curves_that_may_coincide_are_told_apart():
  lines = report.draw(make_record()).axes[0].lines
  (best,) = [x for x in lines if x.get_label().startswith('best tree')]
  (oracle,) = [x for x in lines if x.get_label().startswith('the oracle')]
  # The dashed one is drawn upon the other.
  assert (best.get_linestyle(), oracle.get_linestyle()) == ('-', '--')
  assert list(lines).index(best) < list(lines).index(oracle)


@pytest.mark.parametrize('record', [make_record(), sure_record()])
def test_the_same_record_gives_the_same_files(tmp_path, capsys, record):
  folders = [tmp_path / 'first', tmp_path / 'second']
  for folder in folders:
    folder.mkdir()
    report.show(record, folder)
    said = capsys.readouterr().out
    assert report.table_text(report.telling(record)) in said
    assert report.sentence(record) in said
    assert said.endswith(f'Figure: {folder / "figure.png"}\n')
  for name, magic in [('figure.png', b'\x89PNG'), ('figure.pdf', b'%PDF')]:
    first, second = ((folder / name).read_bytes() for folder in folders)
    assert first == second
    assert first.startswith(magic)
