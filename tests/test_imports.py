"""Imports run one way: every file may import only what its row allows."""

import ast
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]

# A room of specjax -> what it may import of specjax besides itself.  A room is
# a file or a folder; a name with a dot is one file of a folder.
ALLOWED = {
  '__init__': (),
  'edits': (),
  'filters': (),
  'noise': (),
  'sampling': ('edits', 'filters', 'noise'),
  'parallel': (),
  'programs': (),
  'hosts': (),
  'vocabulary': (),
  'tokenizer': ('vocabulary',),
  'trees': (),
  'llama': ('programs',),
  'plotting': (),
  'checkpoint': ('llama', 'tokenizer', 'parallel'),
  'theory': ('trees', 'sampling', 'parallel'),
  'draft': ('trees', 'sampling', 'noise', 'llama', 'checkpoint'),
  'decode': (
    'draft',
    'trees',
    'sampling',
    'edits',
    'noise',
    'llama',
    'tokenizer',
    'parallel',
    'programs',
    'theory.planner',
  ),
  'train': (
    'draft.eagle',
    'llama',
    'checkpoint',
    'tokenizer',
    'sampling',
    'parallel',
  ),
}


def module_name(path):
  return '.'.join(path.relative_to(ROOT).with_suffix('').parts)


def imported(source):
  """Lists the dotted names that a source imports, wherever in the file.

  `from a import b` gives `a.b`: whether b is a module or a name in one does not
  matter here, because rows name folders and files.
  """
  names = []
  for node in ast.walk(ast.parse(source)):
    if isinstance(node, ast.Import):
      names += [alias.name for alias in node.names]
    elif isinstance(node, ast.ImportFrom):
      names += [
        f'{"." * node.level}{node.module or ""}.{alias.name}'
        for alias in node.names
      ]
  return names


def is_within(name, room):
  return name == room or name.startswith(room + '.')


def faults(module, source):
  """Lists the imports that the module's row does not allow."""
  own, *rest = module.split('.')
  found = []
  for name in imported(source):
    if name.startswith('.'):
      found.append(f'{module} imports {name}: expected an absolute import')
    elif own == 'specjax' and is_within(name, 'experiments'):
      found.append(f'{module} imports {name}: libraries know no experiment')
    elif own == 'launch' and name.split('.')[0] in ('specjax', 'experiments'):
      found.append(f'{module} imports {name}: launch only runs commands')
    elif own == 'specjax' and is_within(name, 'specjax'):
      rooms = (rest[0], *ALLOWED.get(rest[0], ()))
      if not any(is_within(name, f'specjax.{room}') for room in rooms):
        found.append(f'{module} imports {name}: expected one of {rooms}')
  return found


FILES = [
  path
  for folder in ('specjax', 'experiments', 'launch')
  for path in sorted((ROOT / folder).rglob('*.py'))
]


def test_every_file_keeps_to_its_row():
  found = [
    fault
    for path in FILES
    for fault in faults(module_name(path), path.read_text('utf-8'))
  ]
  assert not found, '\n'.join(found)


def test_every_room_has_a_row():
  names = [module_name(path).split('.') for path in FILES]
  rooms = {name[1] for name in names if name[0] == 'specjax'}
  assert 'tokenizer' in rooms
  assert rooms <= set(ALLOWED)


def test_the_table_has_no_cycle():
  def rooms_below(room, above=()):
    assert room not in above, f'cycle: {above} {room}'
    for lower in ALLOWED[room]:
      rooms_below(lower.split('.')[0], (*above, room))

  for room in ALLOWED:
    rooms_below(room)


@pytest.mark.parametrize(
  'module, source',
  [
    ('specjax.trees.tree', 'from specjax.llama import model'),
    ('specjax.trees.tree', 'import specjax'),
    ('specjax.trees.tree', 'from specjax import llama as trees'),
    ('specjax.llama.model', 'def late():\n  import specjax.trees.tree'),
    ('specjax.llama.model', 'from .. import trees'),
    ('specjax.decode.loop', 'from specjax.theory import bounds'),
    ('specjax.train.fit', 'from specjax.draft import lookup'),
    ('specjax.theory.brw', 'from experiments import common'),
    ('specjax.newroom', 'from specjax import trees'),
    ('launch.sweep', 'import specjax.trees'),
  ],
)
def test_a_planted_fault_is_found(module, source):
  assert len(faults(module, source)) == 1


@pytest.mark.parametrize(
  'module, source',
  [
    ('specjax.trees.tree', 'import jax\nfrom specjax.trees import shapes'),
    ('specjax.decode.loop', 'from specjax.theory import planner'),
    ('specjax.decode.loop', 'from specjax.draft import base, lookup'),
    ('specjax.train.fit', 'from specjax.draft import eagle'),
    ('experiments.a', 'from specjax.decode import loop'),
    ('launch.sweep', 'import subprocess'),
  ],
)
def test_what_is_allowed_passes(module, source):
  assert faults(module, source) == []


def test_experiments_can_be_imported_together():
  names = sorted(
    module_name(path) for path in (ROOT / 'experiments').glob('*.py')
  )
  done = subprocess.run(
    [sys.executable, '-c', f'import {", ".join(names)}'],
    cwd=ROOT,
    capture_output=True,
    text=True,
  )
  # Flags of one name in two of them would raise.
  assert done.returncode == 0, done.stderr
