"""Stands for an experiment in tests of sweeps: three stages and a record.

  reference_run.py EXPERIMENT --seed=3 --run_name=NAME --results_dir=FOLDER

It sleeps instead of working.  --fails=N: the first N calls fail; --halves=N:
they leave half a record; --deaf=1: SIGTERM is not heard.  Nothing of the
project is imported, so that hundreds of runs cost little.
"""

import json
import os
import pathlib
import signal
import sys
import time
import uuid


def write(path, text):
  """Writes a file whole or not at all."""
  temporary = path.with_name(f'.{uuid.uuid4().hex}')
  temporary.write_text(text)
  os.replace(temporary, path)


def main(experiment, *flags):
  """Goes on where an earlier call stopped."""
  given = dict(flag.removeprefix('--').split('=', 1) for flag in flags)
  if 'deaf' in given:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
  folder = pathlib.Path(given['results_dir']) / experiment / given['run_name']
  folder.mkdir(parents=True, exist_ok=True)
  with (folder / 'calls.txt').open('a') as file:
    file.write('called\n')
  num_calls = len((folder / 'calls.txt').read_text().split())
  print(f'call {num_calls} of {experiment}', flush=True)
  seed = int(given['seed'])
  table = []
  for stage in range(3):
    path = folder / f'stage-{stage}.json'
    if not path.exists():
      time.sleep(float(given.get('sleep', 0.02)))
      write(path, json.dumps({'stage': stage, 'value': seed * 10 + stage}))
    table.append(json.loads(path.read_text()))
  if num_calls <= int(given.get('fails', 0)):
    sys.exit('out of luck')
  record = {
    'schema': 1,
    'experiment': experiment,
    'flags': {'seed': seed},
    'seed': seed,
    'versions': {},
    'device': {},
    'commit': 'none',
    # Tells the calls apart, as times do.
    'started': uuid.uuid4().hex,
    'finished': '2026-01-01T00:00:00+00:00',
    'table': table,
  }
  text = json.dumps(record)
  if num_calls <= int(given.get('halves', 0)):
    text = text[: len(text) // 2]
  write(folder / 'record.json', text)


if __name__ == '__main__':
  main(*sys.argv[1:])
