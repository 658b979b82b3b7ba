"""Texts that every Python installation holds: its standard library.

Sources and documentation strings of the running Python, which differ a little
from release to release.  The library is under the licence of the Python
Software Foundation; a file that carries any notice of its own is left out.
"""

import ast
import functools
import pathlib
import re
import sysconfig
import textwrap
from collections.abc import Iterator
from typing import NamedTuple

# Folders that hold others' code, tests, or tables instead of text.
_LEFT_OUT = frozenset(
  (
    'encodings',
    'ensurepip',
    'idle_test',
    'lib2to3',
    'site-packages',
    'test',
    'tests',
  )
)
_NOTICE = re.compile(r'copyright|licen[sc]|all rights reserved', re.IGNORECASE)


class Passage(NamedTuple):
  """A piece of a file.

  Attributes:
    name: where it stands, such as 'heapq.py:merge'.
    text: without the indentation that all of its lines share.
  """

  name: str
  text: str


@functools.cache
def sources() -> tuple[Passage, ...]:
  """Returns the modules of the standard library that may be used.

  Returns:
    Whole files under their names from the library's folder, in the order of
    the names.
  """
  root = pathlib.Path(sysconfig.get_path('stdlib'))
  found = []
  for path in sorted(root.rglob('*.py')):
    name = path.relative_to(root)
    if _LEFT_OUT & set(name.parts) or name.name.startswith('_sysconfigdata'):
      continue
    try:
      text = path.read_text('utf-8')
    except UnicodeDecodeError:  # A few old files name another encoding.
      continue
    if text.strip() and not _NOTICE.search(text):
      found.append(Passage(name.as_posix(), text))
  return tuple(found)


@functools.cache  # To parse the whole library takes seconds.
def docstrings(source: Passage) -> tuple[Passage, ...]:
  """Returns the documentation strings of a module, in their order.

  Args:
    source: a module.
  """
  documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
  return tuple(
    Passage(f'{source.name}:{getattr(node, "name", "")}', text)
    for node in ast.walk(ast.parse(source.text))
    if isinstance(node, documented) and (text := ast.get_docstring(node))
  )


def functions(source: Passage) -> Iterator[Passage]:
  """Gives the functions and methods of a module, in their order.

  Args:
    source: a module.
  """
  lines = source.text.splitlines()
  for node in ast.walk(ast.parse(source.text)):
    if isinstance(node, ast.FunctionDef):
      text = '\n'.join(lines[node.lineno - 1 : node.end_lineno])
      yield Passage(f'{source.name}:{node.name}', textwrap.dedent(text))
