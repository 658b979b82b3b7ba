"""Run folders: where a number came from, and how a killed run goes on.

  results/<experiment>/<run>/
    flags.json      the flags that results depend on, written at the start
    stages/*.npz    arrays of finished stages
    record.json     schema, flags, seed, versions, device, commit and `table`

Every file appears whole or not at all.
"""

import contextlib
import datetime
import hashlib
import importlib.metadata
import json
import os
import pathlib
import re
import subprocess
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence

import jax
import numpy as np

SCHEMA = 1
# Raised when a stage of any run comes to hold something else than it did.
_STAGES = 2

FIELDS = {
  'schema': int,
  'experiment': str,
  'flags': dict,
  'seed': int,
  'versions': dict,
  'device': dict,
  'commit': str,
  'started': str,
  'finished': str,
  'table': list,
}
_PACKAGES = ('specjax', 'jax', 'jaxlib', 'flax', 'numpy')


def open_run(
  results_dir: str | pathlib.Path, experiment: str, run_name: str | None = None
) -> pathlib.Path:
  """Makes the folder of a run, or finds the one of an earlier start.

  Args:
    results_dir: the folder of all results.
    experiment: name of the experiment.
    run_name: name of the run; None for the date and time.

  Returns:
    `results_dir/experiment/run_name`.

  Raises:
    ValueError: a run name that is no plain name, or a folder that cannot be
      written.
  """
  run_name = run_name or datetime.datetime.now().strftime('%Y%m%d-%H%M%S')
  if not re.fullmatch(r'\w[\w.,=+-]*', run_name):
    raise ValueError(
      f'expected a run name of letters, digits and _.,=+-, got {run_name!r}'
    )
  folder = pathlib.Path(results_dir) / experiment / run_name
  try:
    folder.mkdir(parents=True, exist_ok=True)
    tempfile.TemporaryFile(dir=folder).close()
  except OSError as error:
    raise ValueError(
      f'expected a folder that can be written, got {folder}: {error.strerror}'
    ) from error
  return folder


def write_json(path: pathlib.Path, content: object) -> None:
  """Writes JSON, whole or not at all.

  Args:
    path: the file.
    content: what `json` can write; NumPy and JAX values become lists and
      numbers.

  Raises:
    ValueError: for NaN and infinities, which JSON does not have.
  """
  text = json.dumps(content, indent=2, allow_nan=False, default=_plain)
  with _replacing(path) as file:
    file.write(text.encode() + b'\n')


def write_npz(path: pathlib.Path, **arrays: np.ndarray) -> None:
  """Writes named arrays, whole or not at all.

  Args:
    path: the file, `.npz`.
    **arrays: arrays of any shape, by name.
  """
  with _replacing(path) as file:
    np.savez_compressed(file, **arrays)


def digest(content: object) -> str:
  """Names content in 16 hexadecimal digits.

  Args:
    content: what `json` can write.
  """
  text = json.dumps(content, sort_keys=True)
  return hashlib.sha256(text.encode()).hexdigest()[:16]


def digest_files(path: str | pathlib.Path) -> str:
  """Names what a file, or a folder with all below it, holds in 16 digits.

  Args:
    path: of the file or the folder.

  Raises:
    OSError: a file that cannot be read.
  """
  path = pathlib.Path(path).expanduser()
  files = filter(pathlib.Path.is_file, path.rglob('*'))
  found = sorted(files) if path.is_dir() else [path]
  contents = []
  for file in found:
    with file.open('rb') as opened:
      content = hashlib.file_digest(opened, 'sha256').hexdigest()
    contents.append((str(file.relative_to(path)), content))
  return digest(contents)


def new_record(experiment: str, flags: Mapping[str, object]) -> dict:
  """Begins the record of a run.

  Args:
    experiment: name of the experiment.
    flags: name and value of each flag; `seed` among them.

  Returns:
    All fields of a record but `finished` and `table`.
  """
  device = jax.devices()[0]
  return {
    'schema': SCHEMA,
    'experiment': experiment,
    'flags': dict(flags),
    'seed': flags['seed'],
    'versions': {name: importlib.metadata.version(name) for name in _PACKAGES},
    'device': {
      'kind': device.device_kind,
      'count': jax.device_count(),
      'host_cores': os.cpu_count(),
    },
    'commit': _commit(),
    'started': _now(),
  }


def finish_record(
  folder: pathlib.Path,
  record: Mapping[str, object],
  table: Sequence[Mapping[str, object]],
  **facts: object,
) -> None:
  """Writes `record.json`: the record, the time and the results.

  Args:
    folder: the run's folder.
    record: what `new_record` gave.
    table: one mapping a row.
    **facts: further results by name.
  """
  write_json(
    folder / 'record.json',
    {**record, 'finished': _now(), **facts, 'table': list(table)},
  )


def select(rows: Sequence[Mapping], **wanted: object) -> list[Mapping]:
  """Returns the rows that hold what is wanted, such as `temperature=0`."""
  return [row for row in rows if wanted.items() <= row.items()]


def load_record(path: pathlib.Path, columns: Sequence[str] = ()) -> dict:
  """Reads a record and checks it.

  Args:
    path: a `record.json`.
    columns: what every row of its table must have.

  Returns:
    The record.

  Raises:
    ValueError: when it is missing, not of this schema, or lacks a field.
  """
  return parse_record(_read(path), path, columns)


def parse_record(
  content: str | bytes, place: object, columns: Sequence[str] = ()
) -> dict:
  """Reads a record from what its file holds and checks it.

  Args:
    content: of a `record.json`.
    place: where it comes from.
    columns: what every row of its table must have.

  Returns:
    The record.

  Raises:
    ValueError: when it is not of this schema, or lacks a field.
  """
  record = _parse_json(content, place)
  if not isinstance(record, dict) or record.get('schema') != SCHEMA:
    found = record.get('schema') if isinstance(record, dict) else 'no record'
    raise ValueError(f'expected schema {SCHEMA} in {place}, got {found}')
  for name, kind in FIELDS.items():
    if not isinstance(record.get(name), kind):
      raise ValueError(
        f'expected {name!r} of type {kind.__name__} in {place}, '
        f'got {record.get(name)!r}'
      )
  for number, row in enumerate(record['table']):
    if missing := [name for name in columns if name not in row]:
      raise ValueError(
        f'expected the columns {list(columns)} in {place}, '
        f'got row {number} without {missing}'
      )
  return record


def begun_with(folder: pathlib.Path, flag: str) -> object | None:
  """Finds the value of a flag in an earlier start of a run, None without one.

  Args:
    folder: the run's folder; stages may lie in folders of it.
    flag: name of the flag.

  Raises:
    ValueError: a `flags.json` that is none.
  """
  for path in sorted(folder.rglob('flags.json')):
    values = _read_json(path)
    if isinstance(values, dict) and flag in values:
      return values[flag]
  return None


def standing(folder: pathlib.Path) -> str | None:
  """Says in a line how far an earlier start of a run came, None if not far.

  Args:
    folder: the run's folder.
  """
  if (folder / 'record.json').exists():
    return f'{folder} is finished; its results are made anew from its stages.'
  if num_done := len(list(folder.glob('stages/*.npz'))):
    return f'{folder} goes on where it stopped, with {num_done} stages done.'
  return None


class Stages:
  """The finished stages of a run, kept so that a killed run can go on."""

  def __init__(self, folder: pathlib.Path, flags: Mapping[str, object]):
    """Binds a run's folder to what its results depend on.

    Args:
      folder: the run's folder.
      flags: name and value of each such flag, or of anything else.

    Raises:
      ValueError: when the folder was begun with other flags, which are named,
        or by a version whose stages held something else.
    """
    self._folder = folder / 'stages'
    flags = {'stages': _STAGES, **flags}
    path = folder / 'flags.json'
    if path.exists():
      _check_same(_read_json(path), json.loads(json.dumps(flags)), folder)
    else:
      write_json(path, flags)
    self._folder.mkdir(exist_ok=True)

  def arrays(
    self, name: str, compute: Callable[[], Mapping[str, np.ndarray]]
  ) -> dict[str, np.ndarray]:
    """Gives a stage's arrays, computed now or by an earlier start.

    Args:
      name: name of the stage, unique in the run.
      compute: called without arguments when the stage is not there yet.

    Returns:
      The arrays by name, as they are on disk.
    """
    path = self._folder / f'{name}.npz'
    if not path.exists():
      write_npz(path, **compute())
    try:
      return _read_npz(path)
    except (OSError, ValueError, EOFError, zipfile.BadZipFile):
      # The disk lost what was written whole: it is computed again.
      write_npz(path, **compute())
      return _read_npz(path)


def _read_npz(path: pathlib.Path) -> dict[str, np.ndarray]:
  with np.load(path, allow_pickle=False) as file:
    return dict(file)


def _check_same(
  before: Mapping[str, object], now: Mapping[str, object], folder: pathlib.Path
) -> None:
  if before.get('stages') != now['stages']:
    raise ValueError(
      f'expected stages of version {now["stages"]} in {folder}, got '
      f'{before.get("stages", "older ones")}; choose another --run_name'
    )
  changed = [
    f'--{name}={before.get(name)} (now {now.get(name)})'
    for name in sorted({*before, *now})
    if before.get(name) != now.get(name)
  ]
  if changed:
    raise ValueError(
      f'expected the flags with which {folder} was begun, '
      f'{", ".join(changed)}, or another --run_name'
    )


@contextlib.contextmanager
def _replacing(path: pathlib.Path) -> Iterator:
  """Opens a file that takes the place of `path` once it is complete."""
  handle, name = tempfile.mkstemp(dir=path.parent, prefix=f'.{path.name}.')
  try:
    with os.fdopen(handle, 'wb') as file:
      yield file
    os.chmod(name, 0o644)  # mkstemp gives 0o600.
    os.replace(name, path)
  except BaseException:
    os.unlink(name)
    raise


def _read_json(path: pathlib.Path) -> object:
  return _parse_json(_read(path), path)


def _read(path: pathlib.Path) -> bytes:
  try:
    return path.read_bytes()
  except OSError as error:
    raise ValueError(f'expected {path}, got: {error.strerror}') from error


def _parse_json(content: str | bytes, place: object) -> object:
  try:
    return json.loads(content)
  except ValueError as error:
    raise ValueError(f'expected JSON in {place}, got: {error}') from error


def _plain(value: object) -> object:
  return np.asarray(value).tolist()


def _now() -> str:
  return datetime.datetime.now(datetime.UTC).isoformat(timespec='seconds')


def _commit() -> str:
  """Names the commit that runs, '-dirty' when files differ from it."""
  describe = 'git describe --always --dirty --abbrev=40 --exclude=*'
  try:
    result = subprocess.run(
      describe.split(),
      cwd=pathlib.Path(__file__).parent,
      capture_output=True,
      text=True,
      check=True,
    )
  except (OSError, subprocess.CalledProcessError):  # No git, or no clone.
    return 'unknown'
  return result.stdout.strip()
