"""The flags that experiments share, and what reads their values."""

import math
import sys
from collections.abc import Sequence

from absl import flags

FLAGS = flags.FLAGS

# What every experiment has.
_ALWAYS = ('profile', 'results_dir', 'run_name')


def define(drafters: Sequence[str], shared: Sequence[str] | None) -> None:
  """Defines the shared flags of the main that runs.

  Args:
    drafters: names that `--drafters` accepts, all of them its default.
    shared: those that the experiment reads, all of them if none; those that
      say where results go it always has.
  """
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
    'auto',
    ['auto', 'in_out', 'out_in', 'both'],
    'How matrices are stored: as several rows are fast with, or as one row is, '
    'or both, which takes twice the memory; auto tries out what is fast here, '
    'and keeps it in a run that goes on.',
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
  flags.DEFINE_bool(
    'profile',
    False,
    'Trace a short run into profile/ of its folder, for ui.perfetto.dev or '
    'TensorBoard.',
  )
  for name in ('temperature', 'top_p', 'min_p'):  # 'nan' passes all bounds.
    flags.register_validator(name, math.isfinite, 'expected a finite number')
  flags.register_validator('top_p', lambda mass: mass > 0, 'expected above 0')
  for name in set(FLAGS) - before:
    if shared is None or name in (*shared, *_ALWAYS):
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
