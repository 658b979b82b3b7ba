"""The main job by its command line: whole, killed, and asked for nonsense."""

import json
import re
import signal
import time

import commands
import numpy as np
import pytest
import reference_checkpoint

from experiments import (
  curves,
  posterior_curves,
  proposals,
  records,
  report,
  speed_of_light,
)
from specjax.checkpoint import resolve

CONFIG = reference_checkpoint.CASES['tied'] | {'vocab_size': 258}
TEXTS = ['aaab aaab', 'one, two, three', 'x = x + 1; x = x + 1', 'Why?', 'zzz']
DRAFTERS = ['lookup', 'bigram', 'model']


@pytest.fixture(scope='module')
def place(tmp_path_factory):
  """A folder with two models of ours and prompts."""
  folder = tmp_path_factory.mktemp('place')
  reference_checkpoint.save_model(folder / 'model', CONFIG)
  # Room for texts comes in steps of 128 tokens.
  smaller = {'num_hidden_layers': 1, 'max_position_embeddings': 128}
  reference_checkpoint.save_model(folder / 'smaller', CONFIG | smaller)
  write_prompts(folder / 'prompts.jsonl', TEXTS)
  return folder


def write_prompts(path, texts):
  lines = [
    json.dumps({'id': str(number), 'prompt': text})
    for number, text in enumerate(texts)
  ]
  path.write_text('\n'.join(lines))


def small(place, **flags):
  """The flags of a small run, but for those that are given."""
  return {
    'model': place / 'model',
    'prompts': place / 'prompts.jsonl',
    'prompts_per_kind': 5,
    'results_dir': place / 'results',
    # The laws of a small random model are flat without it.
    'top_k': 3,
    'capacities': '1,4',
    'max_new_tokens': 6,
    'max_length': 64,
    'batch_size': 3,
    'drafters': ','.join(DRAFTERS),
    'draft_model': place / 'smaller',
    'oracle_starts': 20,
    'seed': 5,
    **flags,
  }


def finish(place, run_name):
  """Runs the job to its end; returns what it printed."""
  flags = small(place, run_name=run_name)
  done = commands.run(speed_of_light.NAME, **flags)
  assert done.returncode == 0, done.stderr
  return done.stdout


def run_folder(place, run_name):
  return place / 'results' / speed_of_light.NAME / run_name


def files_in(folder):
  """Name -> time of the last change."""
  return {
    str(path.relative_to(folder)): path.stat().st_mtime_ns
    for path in folder.rglob('*')
    if path.is_file()
  }


def arrays_in(path):
  with np.load(path) as file:
    return dict(file)


@pytest.fixture(scope='module')
def undisturbed(place):
  """A whole run's folder, and what it printed."""
  return run_folder(place, 'whole'), finish(place, 'whole')


def test_a_run_leaves_its_record_arrays_and_figure(undisturbed):
  folder, out = undisturbed
  record = records.load_record(
    folder / 'record.json', ['capacity', 'curve', 'D', 'low', 'high']
  )
  keys = [(row['curve'], row['capacity']) for row in record['table']]
  names = [
    *DRAFTERS,
    'oracle_run',
    f'won_at({record["best_drafter"]})',
    f'oracle_at({record["best_drafter"]})',
    *curves.BOUNDS,
    *(f'{n}({d})' for d in proposals.ORIGINS for n in posterior_curves.NAMES),
  ]
  assert sorted(keys) == sorted((name, n) for name in names for n in (1, 4))
  for row in record['table']:
    if not row['curve'].startswith('posterior_excess'):
      assert 1 - 1e-4 <= row['low'] <= row['high']
      assert row['capacity'] > 1 or abs(row['D'] - 1) < 1e-4
  assert record['seed'] == 5
  assert record['flags']['capacities'] == [1, 4]
  assert record['flags']['oracle_starts'] == 20
  assert not any(record['partings'].values())
  top = {name for name in files_in(folder) if not name.startswith('stages')}
  assert top == {
    'flags.json',
    'record.json',
    'arrays.npz',
    'figure.png',
    'figure.pdf',
  }
  assert report.table_text(record) in out
  assert report.sentence(record) in out
  assert report.verdict(record).startswith('No bound lies below')


def test_the_table_is_of_the_arrays(undisturbed):
  table = records.load_record(undisturbed[0] / 'record.json')['table']
  arrays = arrays_in(undisturbed[0] / 'arrays.npz')
  for name in [*DRAFTERS, 'oracle_run']:
    for capacity in (1, 4):
      run = f'{name}-{capacity}'
      emitted = arrays[f'{run}/emitted'].sum()
      np.testing.assert_allclose(
        curves.find(table, name, capacity)['D'],
        emitted / arrays[f'{run}/num_steps'].sum(),
        rtol=1e-6,
      )
      assert emitted == np.minimum(arrays['plain/num_tokens'], 6).sum()
  assert len(arrays['plain/tokens']) == len(TEXTS)


@pytest.mark.parametrize('name', list(proposals.ORIGINS))
def test_runs_took_what_is_proposed_along_the_texts(undisturbed, name):
  arrays = arrays_in(undisturbed[0] / 'arrays.npz')
  run = {k: arrays[f'{name}-4/{k}'] for k in ('place', 'depth', 'num_steps')}
  # Nodes come as the drafter orders them: the first four are the tree of four.
  proposed = arrays[f'{name}-proposals/is_accepted'][..., :4].sum(axis=-1)
  seen = set()
  for row, count in enumerate(run['num_steps']):
    places, depths = (run[k][row, :count] for k in ('place', 'depth'))
    room = arrays['plain/num_tokens'][row] - places
    took = np.minimum(depths + 1, room)
    np.testing.assert_array_equal(proposed[row, places], took)
    seen |= set(took.tolist())
  assert {1, 2} <= seen


def test_a_killed_run_goes_on_to_the_same_end(place, undisturbed):
  folder = run_folder(place, 'killed')
  flags = small(place, run_name='killed')
  job = commands.start(speed_of_light.NAME, **flags)
  while not list(folder.glob('stages/*.npz')):
    assert job.poll() is None, job.stderr.read()
    time.sleep(0.01)
  job.send_signal(signal.SIGKILL)
  job.communicate()
  done = files_in(folder)
  assert 'record.json' not in done
  assert 'killed goes on where it stopped' in finish(place, 'killed')
  after = files_in(folder)
  assert {name: after[name] for name in done} == done
  whole = undisturbed[0]
  load = lambda path: records.load_record(path / 'record.json')['table']
  assert load(folder) == load(whole)
  expected = arrays_in(whole / 'arrays.npz')
  got = arrays_in(folder / 'arrays.npz')
  assert got.keys() == expected.keys()
  for name, array in expected.items():
    np.testing.assert_array_equal(got[name], array, err_msg=name)
  for name in ('figure.png', 'figure.pdf'):
    assert (folder / name).read_bytes() == (whole / name).read_bytes()


def test_a_finished_run_says_so_and_measures_nothing(place, undisturbed):
  folder = undisturbed[0]
  stages = files_in(folder / 'stages')
  assert 'whole is finished' in finish(place, 'whole')
  assert files_in(folder / 'stages') == stages


def mistakes(place):
  """Name -> the flags of a mistake, and what has to be said about it."""
  folder = place / 'mistakes'
  folder.mkdir()
  with open(resolve.embedded_file(), 'rb') as file:
    (folder / 'short.gguf').write_bytes(file.read(1000))
  (folder / 'sharded').mkdir()
  named = reference_checkpoint.tensors(CONFIG)
  reference_checkpoint.write_folder(folder / 'sharded', CONFIG, named, 2)
  shard = 'model-00002-of-00002.safetensors'
  (folder / 'sharded' / shard).unlink()
  write_prompts(folder / 'one.jsonl', ['alone'])
  (folder / 'empty.jsonl').touch()
  (folder / 'file').write_text('kept')
  return {
    'drafter': ({'draft_model': folder / 'no'}, "a model: .*got '.*/no'"),
    'model': ({'model': 'gpt-5'}, "smollm2-135m, a .gguf file.*got 'gpt-5'"),
    'gguf': ({'model': folder / 'short.gguf'}, 'whole GGUF file, got .*short'),
    'shard': ({'model': folder / 'sharded'}, f'expected a file .*{shard}'),
    'capacity': ({'capacities': '0,4'}, 'whole numbers of at least 1'),
    'temperature': ({'temperature': -1}, 'temperature.* non-negative'),
    'long': ({'max_length': 9}, '--max_length=9 tokens, got 0 with 10'),
    'one': ({'prompts': folder / 'one.jsonl'}, 'expected 2 prompts or more'),
    'empty': ({'prompts': folder / 'empty.jsonl'}, 'one prompt in .*got none'),
    'missing': ({'prompts': folder / 'no.jsonl'}, 'readable prompt file, got'),
    'results': ({'results_dir': folder / 'file'}, 'folder that can be written'),
    'name': ({'run_name': '../elsewhere'}, 'expected a run name'),
    'flags': (
      {'results_dir': place / 'results', 'run_name': 'whole', 'seed': 6},
      r'expected the flags with which .*whole was begun, --seed=5 \(now 6\)',
    ),
  }


def test_a_mistake_is_one_line_and_nothing_is_written(place, undisturbed):
  cases = mistakes(place)
  folder = place / 'mistakes'
  before = {**files_in(place / 'results'), **files_in(folder)}
  for flags, message in cases.values():
    flags = small(place, **{'results_dir': folder / 'results', **flags})
    done = commands.run(speed_of_light.NAME, **flags)
    assert done.returncode == 2
    assert re.fullmatch(f'error: .*{message}.*\n', done.stderr), done.stderr
    assert done.stdout == ''
  after = {**files_in(place / 'results'), **files_in(folder)}
  assert after == before
  assert not (folder / 'results').exists()
