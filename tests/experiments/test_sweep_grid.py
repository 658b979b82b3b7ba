"""Grids: every combination once, under names that stay."""

import itertools

import pytest

from experiments.sweeps import grid

AXES = 'model = small, large\ndata = chat,code\n'


def test_the_example_of_the_module_is_a_grid():
  head = grid.__doc__.split('\n\n', 1)[1].split('`NAME = a,b`')[0]
  runs = grid.parse(head)
  assert [run.experiment for run in runs] == (
    ['speed_of_light'] * 8 + ['where_tokens_go'] * 4 + ['plan']
  )
  assert len({run.path for run in runs}) == len(runs)


def test_a_line_is_the_product_of_its_braces():
  runs = grid.parse(
    AXES + 'probe --model=m/{model} --seed={0,1,2} --at={data}/{model} --k=1,2'
  )
  assert runs == [
    grid.Run(
      'probe',
      f'{model}+seed={seed}+{data}',
      (
        f'--model=m/{model}',
        f'--seed={seed}',
        f'--at={data}/{model}',
        '--k=1,2',
      ),
    )
    for model, seed, data in itertools.product(
      ['small', 'large'], '012', ['chat', 'code']
    )
  ]


def test_equal_values_of_two_flags_are_two_choices():
  runs = grid.parse('probe --a={0,1} --b={0,1}')
  assert [run.flags for run in runs] == [
    (f'--a={a}', f'--b={b}') for a, b in itertools.product('01', '01')
  ]


def test_comments_quotes_and_lines_that_go_on():
  runs = grid.parse(
    '# none\n\nprobe --prompt="two words" \\\n  --model=a#b  # the rest\n'
  )
  assert runs == [
    grid.Run('probe', 'run', ('--prompt=two words', '--model=a#b'))
  ]


def test_names_are_plain_and_can_be_given():
  runs = grid.parse(
    'm = a/b,c d\nprobe --model={m}\nprobe --run_name=no-{m} --model={m}'
  )
  assert [run.name for run in runs] == ['a-b', 'c-d', 'no-a-b', 'no-c-d']
  assert runs[3].flags == ('--model=c d',)


def test_names_do_not_change_when_a_grid_grows():
  line = 'probe --model={model} --seed={0,1}\n'
  small = grid.parse('model = a,b\n' + line)
  large = grid.parse('model = a,c,b\nother --x=1\n' + line)
  assert set(small) < set(large)


def test_runs_that_come_after_others():
  runs = grid.parse(
    AXES
    + 'train --run_name=base\n'
    + 'probe --model={model} --data={data} after=train/base\n'
    + 'sum --model={model} after=probe/{model}+{data} after=train/base\n'
    + 'all --curves={results}/probe/small+chat after=probe/{model}+{data}\n'
  )
  after = {run.path: run.after for run in runs}
  assert after['train/base'] == ()
  assert after['probe/large+chat'] == ('train/base',)
  assert after['sum/large'] == (
    'probe/large+chat',
    'probe/large+code',
    'train/base',
  )
  assert after['all/run'] == tuple(
    f'probe/{model}+{data}'
    for model, data in itertools.product(['small', 'large'], ['chat', 'code'])
  )
  assert runs[-1].flags == ('--curves={results}/probe/small+chat',)


@pytest.mark.parametrize('count', [1, 2, 3, 5, 24, 30])
def test_shards_cover_all_once(count):
  runs = grid.parse('probe --a={0,1,2,3,4,5} --b={0,1,2,3}')
  shards = [grid.shard(runs, number, count) for number in range(1, count + 1)]
  assert sorted(itertools.chain(*shards)) == sorted(runs)
  sizes = [len(shard) for shard in shards]
  assert max(sizes) - min(sizes) <= 1


def test_a_shard_has_what_its_runs_come_after():
  runs = grid.parse(
    'train --run_name=base\nmid --run_name=m after=train/base\n'
    'other --x={0,1}\nlast --x=1 after=mid/m\n'
  )
  shards = [grid.shard(runs, number, 3) for number in (1, 2, 3)]
  assert [[run.path for run in shard] for shard in shards] == [
    ['train/base', 'other/x=1'],
    ['train/base', 'mid/m', 'last/run'],
    ['other/x=0'],
  ]
  with pytest.raises(ValueError, match='expected a shard of 1/3 on, got 4/3'):
    grid.shard(runs, 4, 3)


def test_a_pattern_takes_its_runs_and_what_they_come_after():
  runs = grid.parse(
    AXES + 'train --m={model}\nprobe --m={model} --d={data} after=train/{model}'
  )
  paths = lambda pattern: [run.path for run in grid.matching(runs, pattern)]
  assert paths('*') == [run.path for run in runs]
  assert paths('*code') == [
    *('train/small', 'train/large', 'probe/small+code', 'probe/large+code'),
  ]
  assert paths('train/l*') == ['train/large']
  with pytest.raises(ValueError, match="a run matches, got 'none'"):
    grid.matching(runs, 'none')


@pytest.mark.parametrize(
  'text, match',
  [
    ('', 'expected a line with an experiment'),
    ('model = a,b', 'expected a line with an experiment'),
    ('\nprobe --m={model}', r'line 2: .*in braces, got \{model\}'),
    ('probe --m={a,}', "line 1: expected different values .*got 'a,'"),
    ('probe --m={a,a}', 'line 1: expected different values'),
    ('probe --m={a,b}{c,d}', 'name that is not taken, got m='),
    ('m = a\nm = b', 'line 2: expected a name that is not taken, got m'),
    ('results = a', 'not taken, got results'),
    ('probe now', "expected --FLAG=VALUE or after=RUN, got 'now'"),
    ('probe\nprobe', 'line 2: .*got probe/run twice'),
    ('m = a/b,a-b\nprobe --m={m}', 'got probe/a-b twice'),
    ('a after=b/run\nb', 'line 1: expected a run of the lines above: b/run'),
    ('probe --m=1 \\', 'line 1: expected a line after its backslash'),
    ('probe --m="', 'line 1: No closing quotation'),
  ],
)
def test_what_is_no_grid_is_refused(text, match):
  with pytest.raises(ValueError, match=match):
    grid.parse(text)


def test_a_file_is_named_in_its_errors(tmp_path):
  path = tmp_path / 'grid.txt'
  with pytest.raises(ValueError, match='got .*grid.txt: No such file'):
    grid.load(path)
  path.write_text('probe --m={model}')
  with pytest.raises(ValueError, match='in .*grid.txt, line 1: expected'):
    grid.load(path)
