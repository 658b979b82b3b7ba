"""Tests of experiments.study_cost: its passes counted by hand, its command."""

import collections
import math
import pathlib
import re

import commands
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import (
  entropy_profile,
  measure,
  oracle_runs,
  records,
  study_cost,
)
from experiments.planning import (
  study_flags,
  study_passes,
  study_tasks,
  study_words,
)
from experiments.sweeps import grid
from specjax.theory import hardware

PAPER = pathlib.Path(__file__).parents[2] / 'launch' / 'sweeps' / 'paper.txt'
V5P = hardware.PRESETS['v5p']
CHIPS = study_tasks.Chips(V5P, 4, 0.0, num_prompts=6, context=100)

GRID = """
speed_of_light --model=models/Llama-2-7b-chat-hf --dtype=bfloat16 \\
  --capacities=1,4 --max_new_tokens=10 --batch_size=4 --parallel=shard_map
acceptance --model=models/Llama-3.3-70B-Instruct --dtype=bfloat16 \\
  --drafters=lookup,layer_skip --trees=chain --temperatures=0,1 \\
  --capacities=4 --max_new_tokens=5 --batch_size=4 --parallel=shard_map \\
  --model_devices=4
"""

# Six prompts are two batches of three.  Plain texts are as long as a run and a
# walk through the largest tree.
PASSES = {
  'speed_of_light': {
    'prompts': 2,
    'plain': 2 * (10 + 4 - 1),
    'laws': 2,
    # Of each batch 30 trees, 16 at a time, each in 3 passes.
    'oracle': 2 * 2 * 3,
    # Of lookup and bigram, at N = 4 alone.
    'runs': 2 * 2 * 10,
    'drafts': 0,
  },
  # Of two temperatures.
  'acceptance': {
    'prompts': 4,
    'plain': 2 * 2 * (5 + 4 - 1),
    'laws': 4,
    # Of each batch 15 trees.
    'oracle': 2 * 2 * 3,
    # Of lookup and layer_skip, at temperature 1 without replacement too.
    'runs': (2 + 3) * 2 * 5,
    # Three runs of layer_skip: prompts, 3 levels and what was accepted.
    'drafts': 3 * 2 * (1 + 5 * (3 + 1)),
  },
}


def counted(run, chips=CHIPS):
  """The task of a run, and its passes by kind."""
  given = study_flags.of_run(run)
  task = study_tasks.task_of(given, chips)
  found = collections.defaultdict(list)
  for passes in study_passes.count(run.experiment, given, task):
    found[passes.kind].append(passes)
  return task, found


@pytest.mark.parametrize('run', grid.parse(GRID), ids=lambda r: r.experiment)
def test_passes_by_hand(run):
  _, found = counted(run)
  numbers = {
    kind: sum(passes.number for passes in found[kind])
    for kind in study_passes.KINDS
  }
  assert numbers == PASSES[run.experiment]
  assert study_cost.row_of(run, CHIPS)['passes'] == numbers


def test_rows_and_nodes_of_passes():
  of_copies, of_one = (counted(run)[1] for run in grid.parse(GRID))
  shapes = lambda found, kind: [
    (p.rows, p.nodes, p.context, p.logits) for p in found[kind]
  ]
  # Four copies have a row of three each, as one waits.
  assert shapes(of_copies, 'prompts') == [(1, 100, 0, 0)]
  assert shapes(of_copies, 'plain') == [(1, 1, 100, 1)]
  assert shapes(of_copies, 'laws') == [(1, 113, 0, 13)]
  assert shapes(of_copies, 'oracle') == [(4, 2, 100, 2)]
  assert shapes(of_copies, 'runs') == [(1, 4, 100, 1)] * 2
  assert shapes(of_one, 'oracle') == [(16, 2, 100, 2)] * 2
  drafts = [(3, 100, 0, 0), (3, 1, 100, 1), (3, 1, 100, 0)]
  assert shapes(of_one, 'drafts') == drafts * 3
  # Of 80 layers every third of the 27 in the middle is left out.
  assert {p.sizes.num_layers for p in of_one['drafts']} == {80 - 9}
  assert {p.sizes.num_layers for p in of_one['runs']} == {80}


def test_seconds_by_hand():
  """Reading limits these passes, of which the second sends too."""
  runs = grid.parse(GRID)
  task, found = counted(runs[0])
  weights = 32 * 4096 * (4 * 4096 + 3 * 11008) + 32000 * 4096
  keys = 2 * 32 * 32 * 128 * 4 * (100 + 2)
  assert study_passes.total(found['oracle'], task.group)['seconds'][
    'oracle'
  ] == pytest.approx(12 * 2 * (weights + keys) / V5P.bandwidth)

  task, found = counted(runs[1])
  [plain, _] = found['plain']
  weights = 80 * 8192 * (2 * 64 * 128 + 2 * 8 * 128 + 3 * 28672)
  read = 2 * (weights + 128256 * 8192 + 2 * 80 * 8 * 128 * 3 * 101) / 4
  # Four chips in a square: two links, and a sum goes two hops there and back.
  sums = 2 * 80 + 1
  sent = 2 * 3 / 4 * sums * 3 * 8192 * 2
  expected = read / V5P.bandwidth + sent / 200e9 + sums * 4e-6
  assert study_passes.seconds(plain, task.group) == pytest.approx(16 * expected)


def test_dollars_are_of_all_chips():
  for run in grid.parse(GRID):
    row = study_cost.row_of(run, CHIPS)
    assert row['hours'] == pytest.approx(sum(row['seconds'].values()) / 3600)
    assert row['dollars'] == pytest.approx(row['hours'] * 4 * 4.20)
    assert row['is_forecast']


def test_profiles_have_texts_alone():
  [run] = grid.parse('entropy_profile --temperatures=1,0.5 --cuts=top_k=3')
  task, found = counted(run)
  assert not {'oracle', 'runs', 'drafts'} & set(found)
  # The base, another temperature and a cut; one device has all six rows.
  assert [p.number for p in found['plain']] == [32] * 3
  assert (task.rows, task.copies) == (6, 1)
  default = study_flags.of_run(grid.parse('entropy_profile')[0])
  plan = entropy_profile.make_plan(
    entropy_profile.Setting(float(default['temperature'])),
    default['temperatures'].split(','),
    default['cuts'].split(','),
  )
  assert study_passes.num_settings(default) == len(plan.sampled)


def test_the_oracle_grows_as_many_trees_together(monkeypatch):
  """Batches of trees are counted as `oracle_runs` makes them."""
  calls = []

  def grow(shared, starts, *rest):
    del shared, rest
    calls.append(len(starts[0]))
    return {'value': np.zeros((calls[-1], 1))}

  monkeypatch.setattr(oracle_runs, '_trees', grow)
  for size in (3, 3):  # as many prompts as the batches of the first run have
    oracle_runs.everywhere(
      None,
      measure.Text(*[jnp.zeros(1)] * 5),
      np.full(size, 10),
      np.zeros((size, 10)),
      (),
      [4],
      lambda number: None,
    )
  _, found = counted(grid.parse(GRID)[0])
  [oracle] = found['oracle']
  assert oracle.number == 3 * len(calls)
  assert {4 * oracle.rows} == set(calls)


@pytest.mark.parametrize('drafter', ['eagle', 'dulled', 'model', 'bigram'])
def test_what_drafts_runs_its_own_model(drafter):
  [run] = grid.parse(
    f'acceptance --model=Qwen3-8B --drafters={drafter} --trees=beam,chain '
    '--rules=match --temperatures=1 --capacities=64 --max_new_tokens=1 '
    '--draft_model=a/Llama-3.1-8B/'
    if drafter != 'bigram'
    else 'acceptance --model=Qwen3-8B --drafters=bigram --capacities=64'
  )
  _, found = counted(run)
  sizes = {(p.sizes.num_layers, p.sizes.vocab_size) for p in found['drafts']}
  assert (
    sizes
    == {
      'eagle': {(1, 32000)},
      'dulled': {(36, 151936)},
      'model': {(32, 128256)},
      'bigram': set(),
    }[drafter]
  )
  # Levels, and the nodes of each: a beam has six, a chain all.
  levels = [(p.number, p.nodes) for p in found['drafts'] if p.logits]
  assert levels == ([(6, 11), (63, 1)] if sizes else [])


def test_rooms_hold_all_batches():
  """Llama-2-7b in bfloat16, prompts and texts of six rows in two batches."""
  task, _ = counted(grid.parse(GRID)[0])
  assert (task.rows, len(task.batches)) == (1, 2)
  weights = 32 * 4096 * (4 * 4096 + 3 * 11008) + 2 * 32000 * 4096
  most = (0.9 * 95e9 / 2 - weights) / (2 * 32 * 32 * 128 * 4)
  assert study_tasks.is_room(task, math.floor(most))
  assert not study_tasks.is_room(task, math.ceil(most))


@pytest.mark.parametrize('experiment', study_flags.DEFAULTS)
def test_defaults_are_those_of_the_experiments(experiment):
  shown = commands.run(experiment, '--help').stdout.split('\n  --')[1:]
  found = {}
  for text in shown:
    name = text.split(':')[0]
    if default := re.search(r"\(default: '(.*)'\)", text):
      found[name] = default[1]
  assert study_flags.DEFAULTS[experiment].items() <= found.items()


@pytest.mark.parametrize(
  ('model', 'preset'),
  [
    ('models/Llama-2-13b-chat-hf', 'llama-2-13b'),
    ('DeepSeek-R1-Distill-Llama-8B', 'deepseek-r1-distill-llama-8b'),
    ('a/Qwen3-8B/', 'qwen3-8b'),
    ('smollm2-135m', 'smollm2-135m'),
    ('Llama-2-70b-chat-hf', None),
    ('Llama-2-7bis', None),
    ('{results}/train_llama/small/model', None),
  ],
)
def test_presets_by_name(model, preset):
  assert study_flags.preset_of(model) == preset


def test_the_command(tmp_path):
  path = tmp_path / 'two.txt'
  more = (
    'latency --seed={0,1}\nspeed_of_light --model={x,y}\n'
    'speed_of_light --model={x} --seed={2,3}\nplan\n'
  )
  path.write_text(GRID + more.replace('{x}', 'x'))
  done = commands.run(
    study_cost.NAME,
    grid=path,
    prompts_per_set=6,
    context=100,
    results_dir=tmp_path,
    run_name='a',
  )
  assert done.returncode == 0, done.stderr
  assert done.stdout.startswith('FORECAST of ')
  record = records.load_record(tmp_path / study_cost.NAME / 'a' / 'record.json')
  rows = [study_cost.row_of(run, CHIPS) for run in grid.parse(GRID)]
  assert record['table'] == rows
  lines = study_words.table_text(record).splitlines()
  assert done.stdout.find('\n'.join(lines)) > 0
  first, second, both = (
    study_words.sum_text(x) for x in (rows[:1], rows[1:], rows)
  )
  assert lines[2:] == [
    f'| Llama-2-7b-chat-hf | {first} | - | {first} |',
    f'| Llama-3.3-70B-Instruct | - | {second} | {second} |',
    f'| all | {first} | {second} | {both} |',
  ]
  assert 'without a preset: x (3 runs), y (1 run).' in done.stdout
  assert 'small: latency (2 runs), plan (1 run).' in done.stdout
  assert 'No room' not in done.stdout


@pytest.mark.parametrize(
  ('line', 'message'),
  [
    ('speed_of_light --quick', 'without --quick, got speed_of_light/run'),
    ('speed_of_light --model_devices=3', 'divisor of 4 chips .*got 3'),
    ('speed_of_light --capacities=x', "speed_of_light/run, got: .*'x'"),
    ('speed_of_light --drafters=suffix', "speed_of_light/run, got: 'suffix'"),
    ('acceptance --trees=x', "expected a tree of .*got 'x'"),
  ],
)
def test_runs_that_cannot_be_are_named(line, message):
  [run] = grid.parse(line)
  with pytest.raises(ValueError, match=message):
    study_cost.row_of(run, CHIPS)


def test_a_grid_is_wanted(tmp_path):
  done = commands.run(study_cost.NAME, results_dir=tmp_path)
  assert done.returncode == 2
  assert 'expected --grid=FILE, got none' in done.stderr
  assert list(tmp_path.iterdir()) == []


def test_the_grid_of_the_paper_tells_what_it_costs():
  chips = CHIPS._replace(num_prompts=80, context=1024)
  rows = [
    study_cost.row_of(run, chips)
    for run in grid.load(PAPER)
    if run.experiment in study_flags.DEFAULTS
  ]
  told = re.findall(r'(\S+) +(\d+\.\d h, \$\d+)', PAPER.read_text('utf-8'))
  shown = collections.defaultdict(list)
  for row in rows:
    shown[row['model']].append(row)
  assert len(rows) == 90
  assert sorted(cost for name, cost in told if name != 'all') == sorted(
    map(study_words.sum_text, shown.values())
  )
  assert dict(told)['all'] == study_words.sum_text(rows)
  for name, cost in told[:5:2]:
    [of_model] = [
      rows for model, rows in shown.items() if model.startswith(name)
    ]
    assert cost == study_words.sum_text(of_model)
