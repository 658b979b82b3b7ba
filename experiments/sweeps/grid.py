"""A grid of flags in a text file -> the runs of a sweep.

  # A hash begins a comment; a line that ends in a backslash goes on.
  model = small,large
  data = chat,code

  speed_of_light --model=models/{model} --prompts={data}.jsonl --seed={0,1}
  where_tokens_go --run_name={model}+{data}+seed=0 \\
    after=speed_of_light/{model}+{data}+seed=0
  plan --curves={results}/speed_of_light/small+chat+seed=0/record.json \\
    after=speed_of_light/small+chat+seed=0

`NAME = a,b` is an axis.  Any other line is an experiment with its flags and
stands for a run at every combination of what its braces hold: the values of an
axis, or some of its own.  An axis that is named twice in a line has one value
at a time.  The values of the last braces change fastest.

A run is called by the values that were chosen for it, `small+chat+seed=0`, or
by its `--run_name`; so no name changes when the grid grows.  `after=` asks for
runs of the lines above to be finished first; an axis that only `after=` names
means all its values.  `{results}` is the folder that all runs write into.
"""

import fnmatch
import itertools
import pathlib
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

# In flags: the folder that all runs write into.
RESULTS = '{results}'
_RESULTS = RESULTS[1:-1]

_AXIS = re.compile(r'(\w+)\s*=\s*(.*)')
_BRACES = re.compile(r'\{([^{}]*)\}')
_AFTER = 'after='
_RUN_NAME = '--run_name='

# What a run without a choice is called.
_ONLY = 'run'


class Run(NamedTuple):
  """One run of a sweep.

  Attributes:
    experiment: its name.
    name: of the run, unique in its experiment.
    flags: as the command line has them, without those that say where results
      go; `RESULTS` in them is the folder of all runs.
    after: paths of the runs that have to be finished before.
  """

  experiment: str
  name: str
  flags: tuple[str, ...]
  after: tuple[str, ...] = ()

  @property
  def path(self) -> str:
    """Experiment and name: the run's folder, and its name in the grid."""
    return f'{self.experiment}/{self.name}'


def load(path: str | pathlib.Path) -> list[Run]:
  """Reads a grid file.

  Args:
    path: of the file.

  Returns:
    The runs, in the order of the file.

  Raises:
    ValueError: a file that cannot be read or is no grid; names the line.
  """
  try:
    text = pathlib.Path(path).read_text('utf-8')
  except (OSError, UnicodeDecodeError) as error:
    reason = getattr(error, 'strerror', None) or error
    raise ValueError(f'expected a grid file, got {path}: {reason}') from error
  try:
    return parse(text)
  except ValueError as error:
    raise ValueError(f'in {path}, {error}') from error


def parse(text: str) -> list[Run]:
  """Makes the runs of a grid.

  Args:
    text: as the head of this module says.

  Returns:
    The runs, in the order of the text.

  Raises:
    ValueError: a text that is no grid; names the line.
  """
  axes: dict[str, list[str]] = {}
  runs: dict[str, Run] = {}
  for number, line in _lines(text):
    try:
      if axis := _AXIS.fullmatch(line):
        axes[_new(axis[1], axes)] = _values(axis[2])
        continue
      for run in _runs_of(line, axes):
        if missing := [path for path in run.after if path not in runs]:
          raise ValueError(f'expected a run of the lines above: {missing[0]}')
        if run.path in runs:
          raise ValueError(
            f'expected runs of different names, got {run.path} twice; '
            f'{_RUN_NAME}... tells them apart'
          )
        runs[run.path] = run
    except ValueError as error:
      raise ValueError(f'line {number}: {error}') from error
  if not runs:
    raise ValueError('expected a line with an experiment, got none')
  return list(runs.values())


def shard(runs: Sequence[Run], number: int, count: int) -> list[Run]:
  """Returns one part of the runs, with all that they come after.

  Every run belongs to one shard; what runs of several shards come after is in
  all of these.

  Args:
    runs: all of them.
    number: of the shard, from 1 on.
    count: of shards.

  Raises:
    ValueError: there is no such shard.
  """
  if not 1 <= number <= count:
    raise ValueError(f'expected a shard of 1/{count} on, got {number}/{count}')
  return _with_earlier(runs, runs[number - 1 :: count])


def matching(runs: Sequence[Run], pattern: str) -> list[Run]:
  """Returns the runs whose path matches, with all that they come after.

  Args:
    runs: all of them.
    pattern: such as `*llama*`, as shells have them.

  Raises:
    ValueError: none matches.
  """
  found = [run for run in runs if fnmatch.fnmatchcase(run.path, pattern)]
  if not found:
    raise ValueError(f'expected a pattern that a run matches, got {pattern!r}')
  return _with_earlier(runs, found)


def _with_earlier(runs, found):
  wanted = {run.path for run in found}
  for run in reversed(runs):  # What comes after others stands below them.
    if run.path in wanted:
      wanted.update(run.after)
  return [run for run in runs if run.path in wanted]


def _lines(text: str) -> Iterator[tuple[int, str]]:
  """Yields lines without comments, joined where they go on, by number."""
  whole, first = '', 1
  for number, line in enumerate(text.splitlines(), start=1):
    line = re.sub(r'(^|\s)#.*', '', line).strip()
    first = first if whole else number
    whole += line.removesuffix('\\')
    if not line.endswith('\\') and whole:
      yield first, whole.strip()
      whole = ''
  if whole:
    raise ValueError(f'line {first}: expected a line after its backslash')


def _runs_of(line: str, axes: Mapping[str, Sequence[str]]) -> Iterator[Run]:
  experiment, *words = shlex.split(line)
  axes, flags, after = dict(axes), [], []
  for word in words:
    if word.startswith(_AFTER):
      after.append(word.removeprefix(_AFTER).partition('/')[::2])
    elif word.startswith('--'):
      flags.append(_with_axis_of_its_own(word, axes))
    else:
      raise ValueError(f'expected --FLAG=VALUE or {_AFTER}RUN, got {word!r}')
  for chosen in _products(flags, axes):
    found = [_fill(flag, chosen) for flag in flags]
    named = [flag for flag in found if flag.startswith(_RUN_NAME)]
    parts = [axis * axis.endswith('=') + chosen[axis] for axis in chosen]
    name = named[-1].removeprefix(_RUN_NAME) if named else '+'.join(parts)
    yield Run(
      experiment,
      _plain(name or _ONLY),
      tuple(flag for flag in found if flag not in named),
      tuple(
        f'{earlier}/{_plain(_fill(name, {**chosen, **others}))}'
        for earlier, name in after
        for others in _products([_fill(name, chosen)], axes)
      ),
    )


def _with_axis_of_its_own(word: str, axes: dict[str, Sequence[str]]) -> str:
  """Puts the values that a flag has in its braces among the axes, as `FLAG=`.

  Args:
    word: the flag.
    axes: changed.

  Returns:
    The flag with the axis in its braces.
  """
  name = word.removeprefix('--').split('=')[0] + '='

  def replacement(braces):
    held = braces[1]
    if ',' not in held:
      return braces[0]
    axes[_new(name, axes)] = _values(held)
    return f'{{{name}}}'

  return _BRACES.sub(replacement, word)


def _products(
  words: Sequence[str], axes: Mapping[str, Sequence[str]]
) -> Iterator[dict[str, str]]:
  """Yields a value of each axis in words, in all combinations."""
  named = dict.fromkeys(
    axis for word in words for axis in _BRACES.findall(word)
  )
  named.pop(_RESULTS, None)
  if unknown := [axis for axis in named if axis not in axes]:
    raise ValueError(
      f'expected {RESULTS}, values such as {{a,b}} or an axis of {list(axes)} '
      f'in braces, got {{{unknown[0]}}}'
    )
  for values in itertools.product(*(axes[axis] for axis in named)):
    yield dict(zip(named, values, strict=True))


def _fill(word: str, chosen: Mapping[str, str]) -> str:
  return _BRACES.sub(lambda braces: chosen.get(braces[1], braces[0]), word)


def _plain(name: str) -> str:
  """Makes the name of a run of any text: models may be paths."""
  return re.sub(r'[^\w.,=+-]', '-', name)


def _values(text: str) -> list[str]:
  values = [value.strip() for value in text.split(',')]
  if not all(values) or len(set(values)) < len(values):
    raise ValueError(f'expected different values such as a,b, got {text!r}')
  return values


def _new(name: str, axes: Mapping[str, Sequence[str]]) -> str:
  if name in axes or name == _RESULTS:
    raise ValueError(f'expected a name that is not taken, got {name}')
  return name
