"""The main job on two hosts, which are processes of four devices each."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

import commands
import numpy as np
import pytest
import reference_checkpoint

from experiments import records

ROOT = pathlib.Path(__file__).parents[2]
CONFIG = reference_checkpoint.CASES['tied'] | {'vocab_size': 258}
# Uneven batches of three and two, and rows for half of a host's devices.
TEXTS = ['aaab aaab', 'one, two, three', 'x = x + 1; x = x + 1', 'Why?', 'zzz']

# Installs nothing: the tests' own Python has all.
PYTHON = f"""#!/usr/bin/env bash
[[ $* == *'-m pip'* ]] || exec '{sys.executable}' "$@"
"""


@pytest.fixture(scope='module')
def place(tmp_path_factory):
  """A folder with a model of ours, prompts and an environment."""
  folder = tmp_path_factory.mktemp('place')
  reference_checkpoint.save_model(folder / 'model', CONFIG)
  lines = [json.dumps({'id': text, 'prompt': text}) for text in TEXTS]
  (folder / 'prompts.jsonl').write_text('\n'.join(lines))
  (folder / 'venv' / 'bin').mkdir(parents=True)
  (folder / 'venv' / 'bin' / 'python').write_text(PYTHON)
  (folder / 'venv' / 'bin' / 'python').chmod(0o755)
  return folder


def arguments(place, **flags):
  """The command line of a small run."""
  return commands.words(
    {
      'model': place / 'model',
      'prompts': place / 'prompts.jsonl',
      'results_dir': place / 'results',
      # The laws of a small random model are flat without it.
      'top_k': 3,
      'capacities': '1,4',
      'max_new_tokens': 6,
      'max_length': 64,
      'batch_size': 3,
      'drafters': 'lookup',
      'seed': 5,
      **flags,
    }
  )


def start_pod(place, run_name):
  (place / run_name).mkdir()
  return subprocess.Popen(
    [
      ROOT / 'launch' / 'local_pod.sh',
      'speed_of_light',
      *arguments(place, run_name=run_name),
    ],
    env={
      **commands.environment(),
      'SPECJAX_VENV': str(place / 'venv'),
      'TMPDIR': str(place / run_name),
    },
    text=True,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
  )


def run_folder(place, run_name):
  return place / 'results' / 'speed_of_light' / run_name


@pytest.fixture(scope='module')
def pod(place):
  """The folder of a whole run on two hosts."""
  job = start_pod(place, 'pod')
  _, err = job.communicate()
  assert job.returncode == 0, err
  assert not list((place / 'pod').iterdir())
  return run_folder(place, 'pod')


def assert_close(found, expected):
  assert type(found) is type(expected)
  if isinstance(expected, float):
    np.testing.assert_allclose(found, expected, atol=1e-5)
  elif isinstance(expected, dict):
    assert found.keys() == expected.keys()
    for name, value in expected.items():
      assert_close(found[name], value)
  elif isinstance(expected, list):
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
      assert_close(one, other)
  else:
    assert found == expected


def test_the_record_is_that_of_one_process(place, pod):
  done = commands.run('speed_of_light', *arguments(place, run_name='one'))
  assert done.returncode == 0, done.stderr
  alone = run_folder(place, 'one')
  found, expected = (
    records.load_record(folder / 'record.json') for folder in (pod, alone)
  )
  assert found.pop('device')['count'] == 8
  assert expected.pop('device')['count'] == 1
  for name in ('started', 'finished'):
    del found[name], expected[name]
  assert_close(found, expected)
  files = lambda folder: {
    path.relative_to(folder) for path in folder.rglob('*') if path.is_file()
  }
  assert files(pod) == files(alone)
  with np.load(pod / 'arrays.npz') as got, np.load(alone / 'arrays.npz') as one:
    assert len(got['plain/tokens']) == len(TEXTS)
    for name in ('plain/tokens', 'lookup-4/emitted', 'oracle_run-4/emitted'):
      np.testing.assert_array_equal(got[name], one[name], err_msg=name)


def processes(*words):
  """Ids of the processes whose command line holds all of the words."""
  listed = subprocess.run(
    ['ps', '-eww', '-o', 'pid=', '-o', 'args='],
    capture_output=True,
    text=True,
    check=True,
  )
  lines = [line.split(maxsplit=1) for line in listed.stdout.splitlines()]
  return [int(i) for i, line in lines if all(word in line for word in words)]


@pytest.fixture(scope='module')
def killed(place, pod):
  """Host that was killed -> status of its job, and what was said."""
  jobs = {host: start_pod(place, f'killed-{host}') for host in (0, 1)}
  waiting, begin = set(jobs), time.monotonic()
  while waiting:
    for host in sorted(waiting):
      assert jobs[host].poll() is None, jobs[host].stderr.read()
      folder = run_folder(place, f'killed-{host}')
      if list(folder.glob('stages/*.npz')):
        words = f'--run_name={folder.name}', f'--host={host}'
        [dying] = processes('experiments.speed_of_light', f'{place}', *words)
        os.kill(dying, signal.SIGKILL)
        waiting.remove(host)
        begin = time.monotonic()
    time.sleep(0.05)
  said = {host: job.communicate(timeout=60)[1] for host, job in jobs.items()}
  assert time.monotonic() - begin < 60
  return {host: (jobs[host].returncode, said[host]) for host in jobs}


@pytest.mark.parametrize('host', [0, 1])
def test_a_dead_host_ends_the_others(place, killed, host):
  status, err = killed[host]
  assert status not in (0, None)
  assert f'error: host {host} ended with status 137' in err
  assert f'error: host {1 - host} ended with status' in err
  assert not (run_folder(place, f'killed-{host}') / 'record.json').exists()
  [log] = place.glob(f'killed-{host}/specjax-pod-*/1.log')
  assert re.search('one has died|another task died', err + log.read_text())
