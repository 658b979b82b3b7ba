"""Runs a grid of flags, alone or with other workers; killed, it goes on.

  launch/sweep.py --grid=launch/sweeps/paper_smoke.txt
  launch/sweep.py --grid=... --dry_run           only says what it would run
  launch/sweep.py --grid=... --status            only says where runs stand
  launch/sweep.py --grid=... --shard=2/8         the second of eight parts
  launch/sweep.py --grid=... --only='*70B*'      what this machine is for
  launch/sweep.py --grid=... --store=gs://BUCKET/FOLDER
  launch/sweep.py --grid=... --figures           draws at the end

The head of experiments/sweeps/grid.py says how a grid is written.  Any number
of workers may be started, at any time, on machines that share the folder of
results or a bucket (with gcsfs installed): each takes runs that nobody has.
SIGTERM gives a run back; a worker that is silent for --lost_after loses its
run.  Whoever takes it goes on where it stopped.  A run whose record was
published never runs again; one that fails is tried --retries times more, and
its log is kept.  Machines that share nothing take a --shard each.

Writes results/sweeps/NAME/, NAME being --run_name or the grid's: grid.txt;
records/, the published ones; claims/, who had what, with the logs of failures;
work/, where runs write.  With --store all but the last are there, and a copy of
that.  --figures writes figures/, from all records that there are by then, as
`launch/run.sh figures --results_dir=results/sweeps/NAME` does at any time; from
a bucket they come to results/ first.
"""

import functools
import pathlib
import re
import shlex
import signal
import subprocess
import sys

from absl import flags

from experiments import common
from experiments.paper import cells
from experiments.sweeps import claims, grid, table
from experiments.sweeps import store as store_lib
from experiments.sweeps import worker as worker_lib

FLAGS = flags.FLAGS

_GRID = flags.DEFINE_string('grid', None, 'File of the grid.')
_STORE = flags.DEFINE_string(
  'store', None, 'Where workers meet, such as gs://BUCKET/FOLDER.'
)
_ONLY = flags.DEFINE_string(
  'only', '*', 'Runs whose EXPERIMENT/NAME is like this, and what they need.'
)
_SHARD = flags.DEFINE_string('shard', '1/1', 'I/N: every Nth run, from Ith on.')
_RETRIES = flags.DEFINE_integer(
  'retries', 2, 'How often a run that failed is tried again.', lower_bound=0
)
_LOST_AFTER = flags.DEFINE_float(
  'lost_after',
  120.0,
  'Seconds after which a silent worker has lost its run.',
  lower_bound=0.1,
)
_COMMAND = flags.DEFINE_string(
  'command', None, 'What EXPERIMENT and its flags are put behind.'
)
_DRY_RUN = flags.DEFINE_bool('dry_run', False, 'Only say what would be run.')
_STATUS = flags.DEFINE_bool('status', False, 'Only say where runs stand.')
_FIGURES = flags.DEFINE_bool(
  'figures', False, 'Draw all figures and tables when no run is left.'
)


def main():
  """Runs what is left to run, and says what came of all."""
  if _GRID.value is None:
    raise ValueError('expected --grid=FILE, got none')
  runs = grid.matching(grid.load(_GRID.value), _ONLY.value)
  runs = grid.shard(runs, *parse_shard(_SHARD.value))
  name = FLAGS.run_name or pathlib.Path(_GRID.value).stem
  root = pathlib.Path(FLAGS.results_dir) / 'sweeps' / name
  place = _STORE.value or str(root)
  store = store_lib.open_store(place)
  patience = {'retries': _RETRIES.value, 'lost_after': _LOST_AFTER.value}
  worker = worker_lib.Worker(
    store,
    root / 'work',
    _COMMAND.value,
    **patience,
    say_fn=functools.partial(print, flush=True),
  )
  if _DRY_RUN.value:
    print('\n'.join(shlex.join(worker.argv(run)) for run in runs))
    return
  if _STATUS.value:
    standings = claims.Queue(store, **patience).standings(runs)
    print(table.table_text(runs, standings))
    print(table.sentence(standings))
    return
  # What figures are drawn from: cells that have no record are named as well.
  store.write(cells.GRID, pathlib.Path(_GRID.value).read_bytes())
  worker.stop.install()
  standings = worker.work(runs)
  print(table.sentence(standings), flush=True)
  if worker.stop.is_asked:
    sys.exit(128 + signal.SIGTERM)
  if said := table.failures_text(standings):
    print(said, file=sys.stderr)
  if _FIGURES.value:
    draw(store, pathlib.Path(place) if store.is_local else root)
  if said:
    sys.exit(1)


def draw(store: store_lib.Store, folder: pathlib.Path) -> None:
  """Draws figures and tables from what was published, and says so.

  Args:
    store: of the sweep.
    folder: of the sweep on this machine.

  Raises:
    ValueError: figures that could not be drawn.
  """
  if not store.is_local:
    store_lib.get_folder(store, cells.RECORDS, folder / cells.RECORDS)
    (folder / cells.GRID).write_bytes(store.read(cells.GRID))
  command = [sys.executable, '-P', '-m', 'experiments.figures']
  if subprocess.run([*command, f'--results_dir={folder}']).returncode:
    raise ValueError(f'expected figures of {folder}, got the error above')


def parse_shard(text: str) -> tuple[int, int]:
  """Returns the number and the count of `I/N`.

  Args:
    text: the flag.

  Raises:
    ValueError: it is not of that form.
  """
  if not (parts := re.fullmatch(r'(\d+)/(\d+)', text)):
    raise ValueError(f'expected --shard=I/N, got {text!r}')
  return int(parts[1]), int(parts[2])


if __name__ == '__main__':
  common.run(main, shared=[])
