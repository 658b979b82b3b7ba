"""What the mains of experiments share: flags, their errors and the prompts.

The end of an experiment's file reads

  if __name__ == '__main__':
    common.run(main, drafters=..., defaults=..., quick=...)

and nothing is defined or parsed before: a test may import the file.
"""

import atexit
import contextlib
import pathlib
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence

import jax
from absl import app, flags, logging

from experiments import prompts as prompts_lib
from experiments import records, shared_flags
from specjax import tokenizer as tokenizer_lib

FLAGS = flags.FLAGS

# Flags that say where results go, or who works on them, not what they are.
_BOOKKEEPING = (
  'coordinator',
  'host',
  'model_devices',
  'num_hosts',
  'parallel',
  'profile',
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
  shared_flags.define(drafters, shared)
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
    logging.info('main begins')
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


def open_run(experiment: str) -> pathlib.Path:
  """Opens the folder of the run; `--profile` traces all that comes after.

  Args:
    experiment: name of the experiment.

  Returns:
    The folder, as `records.open_run` gives it.

  Raises:
    ValueError: as `records.open_run`.
  """
  folder = records.open_run(FLAGS.results_dir, experiment, FLAGS.run_name)
  if FLAGS.profile:
    options = jax.profiler.ProfileOptions()
    # Calls of Python would bury all else.
    options.python_tracer_level = 0
    jax.profiler.start_trace(folder / 'profile', profiler_options=options)
    atexit.register(jax.profiler.stop_trace)
  return folder


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


def _fail(error: object) -> None:
  print('error:', ' '.join(str(error).split()), file=sys.stderr)
  sys.exit(2)
