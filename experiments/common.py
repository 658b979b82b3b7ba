"""What the mains of experiments share: flags, their errors and the prompts.

The end of an experiment's file reads

  if __name__ == '__main__':
    common.run(main, drafters=..., defaults=..., quick=...)

and nothing is defined or parsed before: a test may import the file.
"""

import contextlib
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

from absl import app, flags, logging

from experiments import prompts as prompts_lib
from specjax import tokenizer as tokenizer_lib

FLAGS = flags.FLAGS

# Flags that say where results go, or who works on them, not what they are.
_BOOKKEEPING = (
  'coordinator',
  'host',
  'model_devices',
  'num_hosts',
  'parallel',
  'quick',
  'results_dir',
  'run_name',
)


def run(
  main: Callable[..., None],
  drafters: Sequence[str] = (),
  defaults: Mapping[str, object] | None = None,
  quick: Mapping[str, object] | None = None,
  shared: Sequence[str] | None = None,
  arguments: Sequence[str] = (),
) -> None:
  """Defines and parses the shared flags, calls `main` and exits.

  What the user can mend (a ValueError or an OSError) becomes one line on
  stderr and exit code 2; `--verbosity=1` shows where it came from.

  Args:
    main: called with what `arguments` names; reads `flags.FLAGS`.
    drafters: names that `--drafters` accepts, all of them its default.
    defaults: flag name -> default that suits this experiment better.
    quick: flag name -> value under `--quick`, unless the user gave one.
    shared: the shared flags that the experiment reads, all of them if none;
      there is no other then, but for those that say where results go.
    arguments: names of what the command line has beside flags.
  """
  _define_flags(drafters, shared)
  for name, value in (defaults or {}).items():
    FLAGS.set_default(name, value)

  def parse(argv):
    try:
      rest = FLAGS(argv)[1:]
    except flags.Error as error:
      _fail(error)
    if rest and not arguments:
      _fail(f'expected flags only, got {rest[0]!r}')
    if len(rest) != len(arguments):
      _fail(f'expected {" ".join(arguments)} beside flags, got {rest}')
    if (
      'prompts' in FLAGS
      and FLAGS.prompts
      and not FLAGS['prompts_per_kind'].present
    ):
      # All of the user's own prompts, whatever suits ours.
      FLAGS.prompts_per_kind = None
    if quick and FLAGS.quick:
      # Touches no flag that the user gave.
      for name, value in (quick or {}).items():
        FLAGS.set_default(name, value)
    return rest

  def guarded_main(rest):
    if not FLAGS['verbosity'].present:
      # JAX tells at length which backends it did not find.
      logging.set_verbosity(logging.WARNING)
    try:
      main(*rest)
    except (ValueError, OSError) as error:
      logging.debug('raised here:', exc_info=True)
      _fail(error)

  app.run(guarded_main, flags_parser=parse)


@contextlib.contextmanager
def flags_of_main() -> Iterator[None]:
  """Makes the flags that are defined within it flags of the main that runs.

  Mains so define what they share, before `run`: a test may import all of them.
  """
  before = set(FLAGS)
  yield
  for name in set(FLAGS) - before:
    FLAGS.register_key_flag_for_module(sys.argv[0], FLAGS[name])


def flag_values() -> dict[str, object]:
  """Gives the flags that results depend on, the experiment's own included.

  Returns:
    Flag name -> value.
  """
  own_and_shared = FLAGS.get_key_flags_for_module(sys.argv[0])
  return {
    flag.name: flag.value
    for flag in sorted(own_and_shared, key=lambda flag: flag.name)
    if flag.name not in _BOOKKEEPING
  }


def load_prompts(
  tokenizer: tokenizer_lib.Tokenizer,
  path: str | None,
  prompts_per_kind: int | None,
  max_length: int,
) -> tuple[list[prompts_lib.Prompt], list[list[int]]]:
  """Reads prompts and puts them as the model's chat wants them.

  Args:
    tokenizer: the model's tokenizer.
    path: a prompt file, None for our own set.
    prompts_per_kind: how many of each kind, None for all.
    max_length: tokens that prompt and answer may have together.

  Returns:
    The prompts, and the ids of each.

  Raises:
    ValueError: a bad file, or a prompt that leaves no room for an answer.
  """
  prompts = prompts_lib.load(path, prompts_per_kind)
  ids = [
    tokenizer.chat([{'role': 'user', 'content': prompt.text}])
    for prompt in prompts
  ]
  for prompt, tokens in zip(prompts, ids, strict=True):
    if len(tokens) >= max_length:
      raise ValueError(
        f'expected prompts shorter than --max_length={max_length} tokens, '
        f'got {prompt.id} with {len(tokens)}'
      )
  return prompts, ids


def corpus(tokenizer: tokenizer_lib.Tokenizer) -> list[list[int]]:
  """Gives our own prompts as ids, for drafters that count.

  Args:
    tokenizer: the model's tokenizer.
  """
  return [tokenizer.encode(prompt.text) for prompt in prompts_lib.load()]


def _define_flags(
  drafters: Sequence[str], shared: Sequence[str] | None
) -> None:
  """Defines the flags that experiments share, or some of them."""
  before = set(FLAGS)
  flags.DEFINE_string(
    'model',
    'smollm2-135m',
    'smollm2-135m, a .gguf file, a Hugging Face folder or a folder of ours.',
  )
  flags.DEFINE_string('prompts', None, 'File of prompts; our own set if none.')
  _define_int('prompts_per_kind', None, 'Prompts of each kind; all if none.')
  flags.DEFINE_enum(
    'dtype', 'float32', ['float32', 'bfloat16'], 'Type of the arithmetic.'
  )
  flags.DEFINE_enum(
    'weights',
    'values',
    ['values', 'blocks'],
    'How matrices are kept: as values, or in the blocks of a GGUF file, Q4_1 '
    'or Q8_0, which a product takes apart: fewer bytes and the same numbers.',
  )
  flags.DEFINE_enum(
    'order',
    'in_out',
    ['auto', 'in_out', 'out_in', 'both'],
    'How matrices are stored: as several rows are fast with, or as one row is, '
    'or both, which takes twice the memory; auto tries it out.',
  )
  flags.DEFINE_float(
    'temperature', 1.0, 'Of sampling; 0 takes the best token.', lower_bound=0
  )
  flags.DEFINE_integer(
    'top_k', 0, 'Sample from the best top_k tokens; 0 is all.', lower_bound=0
  )
  flags.DEFINE_float(
    'top_p',
    1.0,
    'Sample from the best tokens that hold this mass, above 0.',
    lower_bound=0,
    upper_bound=1,
  )
  flags.DEFINE_float(
    'min_p',
    0.0,
    'Sample from tokens with this share of the best probability.',
    lower_bound=0,
    upper_bound=1,
  )
  flags.DEFINE(
    _CapacityParser(),
    'capacities',
    [1, 2, 4, 8, 16, 32, 64],
    'Tree sizes in tokens of a verifier pass, the root included.',
    serializer=flags.ListSerializer(','),
  )
  flags.DEFINE(
    _NameParser(drafters),
    'drafters',
    list(drafters),
    f'Drafters to run, of {", ".join(drafters)}.',
    serializer=flags.ListSerializer(','),
  )
  _define_int('max_new_tokens', 32, 'Tokens of an answer at most.')
  flags.DEFINE_integer(
    'max_length', 512, 'Tokens of prompt and answer at most.', lower_bound=2
  )
  _define_int('batch_size', 8, 'Prompts decoded at a time.')
  flags.DEFINE_integer('seed', 0, 'Of all that is random.', lower_bound=0)
  flags.DEFINE_string('run_name', None, 'Name of the run; the time if none.')
  flags.DEFINE_string('results_dir', 'results', 'Folder of all results.')
  flags.DEFINE_bool('quick', False, 'Less of everything, for a first look.')
  for name in ('temperature', 'top_p', 'min_p'):  # 'nan' passes all bounds.
    flags.register_validator(name, math.isfinite, 'expected a finite number')
  flags.register_validator('top_p', lambda mass: mass > 0, 'expected above 0')
  for name in set(FLAGS) - before:
    if shared is None or name in (*shared, 'results_dir', 'run_name'):
      # An experiment's --help shows these too.
      FLAGS.register_key_flag_for_module(sys.argv[0], FLAGS[name])
    else:
      delattr(FLAGS, name)


def _define_int(name: str, default: int | None, text: str) -> None:
  flags.DEFINE_integer(name, default, text, lower_bound=1)


class _CapacityParser(flags.ArgumentParser):
  """Parses `1,4,16` into a rising list of ints."""

  def parse(self, argument):
    parts = argument.split(',') if isinstance(argument, str) else argument
    try:
      sizes = sorted({int(part) for part in parts})
    except ValueError:
      sizes = []
    if not sizes or sizes[0] < 1:
      raise ValueError('expected whole numbers of at least 1, such as 1,4,16')
    return sizes

  def flag_type(self):
    return 'comma separated whole numbers'


class _NameParser(flags.ArgumentParser):
  """Parses `a,b` into a list of known names, each once."""

  def __init__(self, known):
    self._known = known

  def parse(self, argument):
    parts = argument.split(',') if isinstance(argument, str) else argument
    unknown = [part for part in parts if part not in self._known]
    if unknown:
      raise ValueError(
        f'expected some of {",".join(self._known)}, got {unknown[0]!r}'
      )
    return list(dict.fromkeys(parts))

  def flag_type(self):
    return 'comma separated names'


def _fail(error: object) -> None:
  print('error:', ' '.join(str(error).split()), file=sys.stderr)
  sys.exit(2)
