"""Flags that hold lists of numbers, such as `--temperatures=0,1`."""

from collections.abc import Sequence

from absl import flags

# They belong to the module that asks for them.
flags.disclaim_key_flags()


class _ListParser(flags.ArgumentParser):
  """Parses `0,1` into a list without repetition, each part by its parser."""

  def __init__(self, parser: flags.ArgumentParser):
    self._parser = parser

  def parse(self, argument: str | Sequence) -> list:
    """Returns the parts, each as its parser reads it."""
    parts = argument.split(',') if isinstance(argument, str) else argument
    return list(dict.fromkeys(map(self._parser.parse, parts)))

  def flag_type(self) -> str:
    """Returns what `--help` says of the flag."""
    return 'comma separated numbers'


def define_integers(
  name: str, default: Sequence[int] | None, text: str, lower_bound: int = 1
) -> flags.FlagHolder:
  """Defines a flag of whole numbers.

  Args:
    name: of the flag.
    default: its value.
    text: what `--help` says of it.
    lower_bound: of each number.

  Returns:
    What holds its value.
  """
  parser = flags.IntegerParser(lower_bound=lower_bound)
  return _define(name, parser, default, text)


def define_floats(
  name: str, default: Sequence[float] | None, text: str
) -> flags.FlagHolder:
  """Defines a flag of numbers of at least 0.

  Args:
    name: of the flag.
    default: its value.
    text: what `--help` says of it.

  Returns:
    What holds its value.
  """
  return _define(name, flags.FloatParser(lower_bound=0), default, text)


def _define(name, parser, default, text):
  return flags.DEFINE(
    _ListParser(parser),
    name,
    default,
    text,
    serializer=flags.ListSerializer(','),
  )
