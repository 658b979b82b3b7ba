"""Tests of experiments.plan: its sources, its rows and its command."""

import commands
import numpy as np
import pytest
import reference_measured as measured

from experiments import plan, records
from experiments.planning import (
  cases,
  drafting,
  plan_report,
  sources,
  tables,
)
from specjax.llama import config as llama_config
from specjax.theory import hardware, pass_times, planner, profiles, roofline

RATES = [float(rate) for rate in drafting.PUBLISHED_RATES.split(',')]


def test_the_published_rates_win_what_was_published():
  sizes = [2, 4, 8, 16, 32, 64]
  found = profiles.of_rates(RATES, sizes, 0.0)
  most = [found.tokens.value[found.num_nodes == size].max() for size in sizes]
  expected = [1.6342, 2.2915, 2.7322, 3.1303, 3.5008, 3.8602]
  np.testing.assert_allclose(most, expected, atol=6e-5)


def test_the_published_choice():
  sizes = [1, 2, 4, 8, 16, 32]
  times = pass_times.exact(sizes, [10, 10, 10, 12, 14, 18])
  cost = sources.parse_costs(['drafter:0.03'])['drafter']
  seconds = cost * drafting.plain_seconds(times)
  assert seconds == pytest.approx(0.3)
  found = planner.plan(times, profiles.of_rates(RATES, sizes, seconds))
  assert found.best.num_nodes == 4


def acceptance():
  """A record of two temperatures, each with values of its own."""
  names = ['lookup', 'layer_skip-chain', 'dulled-chain', 'run', 'run_priced']
  cold, warm = measured.rows(names), measured.rows(names[::-1])
  table = [row | {'temperature': 0.0} for row in cold]
  table += [row | {'temperature': 1.0} for row in warm]
  recipes = {
    'lookup': {'drafter': 'lookup', 'tree': '', 'rule': 'match'},
    'layer_skip-chain': {
      'drafter': 'layer_skip',
      'tree': 'chain',
      'rule': 'match',
    },
    'dulled-chain': {'drafter': 'dulled', 'tree': 'chain', 'rule': 'match'},
  }
  record = measured.record('acceptance', table, recipes=recipes)
  del record['flags']['temperature']
  return record


def value(record, curve, capacity, temperature):
  [row] = [
    r
    for r in record['table']
    if (r['curve'], r['capacity'], r['temperature'])
    == (curve, capacity, temperature)
  ]
  return row['D']


def test_curves_become_candidates(tmp_path):
  whole = acceptance()
  path = tmp_path / 'record.json'
  records.write_json(path, whole)
  for temperature in (0.0, 1.0):
    record = sources.load_curves(path, temperature)
    found = sources.profile_of(record, 2.0, {'layer_skip': 0.5})
    # What is there to measure with is no candidate.
    assert set(found.names) == {'lookup', 'layer_skip-chain'}
    for i, name in enumerate(found.names):
      size = int(found.num_nodes[i])
      assert found.tokens.value[i] == value(whole, name, size, temperature)
      assert found.tokens.low[i] < found.tokens.value[i] < found.tokens.high[i]
      levels = size - 1 if name == 'layer_skip-chain' else 0
      assert found.draft_seconds[i] == 2.0 * 0.5 * levels
    limit = sources.limit_of(record)
    np.testing.assert_array_equal(limit.num_nodes, measured.CAPACITIES)
    for size, least in zip(limit.num_nodes, limit.tokens.value, strict=True):
      both = [value(whole, x, size, temperature) for x in ('run', 'run_priced')]
      assert least == min(both)
  assert sources.has_chains(record)
  assert sources.limit_of(record | {'vacuous': ['run', 'run_priced']}) is None
  with pytest.raises(ValueError, match='--draft_costs for layer_skip'):
    sources.profile_of(record, 2.0, {})
  with pytest.raises(ValueError, match='temperature 0.5'):
    sources.load_curves(path, 0.5)


def test_sizes_without_times_are_left_out():
  profile = profiles.of_moments(1.0, 2.0, [1, 2, 4, 8])
  times = pass_times.exact([1, 4], [1.0, 1.0])
  found = sources.within(profile, times)
  np.testing.assert_array_equal(found.num_nodes, [1, 2, 4])
  np.testing.assert_array_equal(found.tokens.high, profile.tokens.high[:3])
  assert len(found.names) == len(found.draft_seconds) == 3


@pytest.mark.parametrize('entry', ['layer_skip', ':1', 'a:-1', 'a:x', 'a:nan'])
def test_costs_that_are_none_are_named(entry):
  costs = sources.parse_costs(['a:0.5', 'b:1'])
  assert costs == {'a': 0.5, 'b': 1.0}
  with pytest.raises(ValueError, match=f'--draft_costs .*got {entry!r}'):
    sources.parse_costs(['a:0.5', entry])


CHIP = hardware.Hardware('Chip', 1e12, 1e14, 20e9, 1e11, 3.0)


def of_presets(**changes):
  options = {
    'context': 100,
    'weight_bytes': 2.0,
    'num_chips': None,
    'overhead': 1e-3,
  }
  return cases.of_presets(
    ['llama-3.1-8b'], {'chip': CHIP}, [4, 16], **options | changes
  )


def test_presets_by_their_roofline():
  [case] = of_presets()
  assert (case.machine, case.is_forecast) == ('Chip', True)
  times = case.times_fn(2)
  np.testing.assert_array_equal(times.num_nodes, [1, 4, 16])
  sizes = sources.sizes_of(llama_config.PRESETS['llama-3.1-8b'])
  # 8.03 billion parameters with the embedding.
  assert roofline.kept_bytes(sizes, 1, 0) == pytest.approx(2 * 8.03e9, rel=1e-3)
  work = roofline.work(sizes, 16, 2, 100, 16)
  longer = max(work.read / 1e12, work.flops / 1e14)
  assert times.seconds.value[2] == pytest.approx(1e-3 + longer)
  # A row of 100 tokens keeps 13 MB; 1.9 GB are left beside the weights.
  assert case.times_fn(100) is not None
  assert case.times_fn(200) is None
  [pair] = of_presets(num_chips=2)
  assert (pair.machine, pair.price_per_hour) == ('2 x Chip', 6.0)
  assert pair.times_fn(200) is not None
  assert of_presets(context=10**5)[0].machine == '2 x Chip'
  with pytest.raises(ValueError, match="expected models of .*got 'x'"):
    cases.of_presets(
      ['x'],
      {'chip': CHIP},
      [1],
      context=1,
      weight_bytes=2.0,
      num_chips=None,
      overhead=0.0,
    )


def rows(price=36.0):
  case = cases.Case('m', 'chip', price, True, lambda batch: None)
  times = pass_times.exact([1, 2, 4], [1.0, 1.0, 4.0], batch=10)
  profile = profiles.of_rates([0.5], [2, 4], 0.0)
  found = planner.plan(times, profile, profiles.limit_of_moments(1, 2, [2]))
  return tables.row_of(case, 10, found), tables.surface_of(case, 10, found)


def record(row, surface):
  return measured.record(plan.NAME, [row]) | {
    'flags': {'context': 7},
    'surface': surface,
    'left_out': [{'model': 'm', 'machine': 'chip', 'batch': 99}],
    'basis': 'D of a test',
  }


def test_rows_and_words():
  row, surface = rows()
  assert (row['name'], row['capacity']) == ('drafter, chain', 2)
  assert row['rate'].value == pytest.approx(15.0)
  # 54,000 and 36,000 tokens an hour.
  assert row['price'] == pytest.approx(36 * 1e6 / 54e3)
  assert row['plain_price'] == pytest.approx(36 * 1e6 / 36e3)
  assert row['ceiling'] == pytest.approx(10 * 2.0, rel=0.2)
  assert [cell['capacity'] for cell in surface] == [1, 2, 4]
  assert [cell['is_best'] for cell in surface] == [False, True, False]
  assert surface[2]['speedup'] == pytest.approx(1.875 / 4)
  made = record(row, surface)
  cells = plan_report.table_text(made).splitlines()[-1].split(' | ')
  assert cells[:8] == [
    *('| m', 'chip', '10', 'drafter, chain', '2', '1.50', '15', '1.50'),
  ]
  assert cells[9:] == ['1000.00', '666.67 |']
  assert plan_report.title(made).startswith('FORECAST: ')
  assert plan_report.sentence(made) == (
    'm: drafting wins most on chip with batch 10, 1.50 times plain decoding '
    'with drafter, chain at N = 2; a million tokens cost least on chip with '
    'batch 10, $666.67 with drafter, chain at N = 2.\n'
    'No plan for m on chip with batch 99: no room.'
  )
  plain = record(row | {'name': planner.PLAIN, 'capacity': 1}, surface)
  assert plan_report.sentence(plain).startswith('m: drafting pays nowhere; a')
  free = record(*rows(price=None))
  assert plan_report.table_text(free).endswith(' | - | - |')
  assert '$' not in plan_report.sentence(free)


def test_the_figure_frames_the_best():
  figure = plan_report.draw(record(*rows()))
  [axes] = figure.axes
  texts = [text.get_text() for text in axes.texts]
  assert texts == ['1.00', '1.50', '0.47']
  [frame] = axes.patches
  assert frame.get_x() + frame.get_width() / 2 == pytest.approx(1)
  assert 'Forecast' in figure.get_suptitle()


def test_a_forecast_without_a_machine(tmp_path):
  result = commands.run(
    plan.NAME,
    hardware='v5e,h200',
    capacities='1,2,4',
    batches='1,4096',
    results_dir=tmp_path,
    run_name='a',
  )
  assert result.returncode == 0, result.stderr
  found = records.load_record(tmp_path / 'plan' / 'a' / 'record.json')
  assert plan_report.table_text(found) in result.stdout
  assert 'FORECAST' in result.stdout
  assert '70b on 2 x H200 SXM with batch 4096: no room.' in result.stdout
  assert len(found['table']) == 4
  # All drafters are worth their time where reading takes longest.
  assert all(row['speedup'][0] > 2 for row in found['table'])
  assert (tmp_path / 'plan' / 'a' / 'figure.pdf').exists()


@pytest.mark.parametrize(
  'flags, words',
  [
    ({'mu': 2, 'mu2': 5, 'rates': 0.5}, 'one of --mu and --rates'),
    ({'peak_tflops': 100}, 'one chip for your own peak, got v5e,v5p'),
  ],
)
def test_refusals(flags, words, tmp_path):
  result = commands.run(plan.NAME, **flags, results_dir=tmp_path)
  assert result.returncode == 2
  assert words in result.stderr
  assert list(tmp_path.iterdir()) == []
