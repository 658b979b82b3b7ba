"""Tests of specjax.train.stdlib: what is taken, and by whose licence."""

import ast
import heapq
import inspect
import pathlib
import sysconfig

from specjax.train import stdlib


def write(folder, files):
  for name, text in files.items():
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode('latin-1'))


def test_files_with_a_notice_tests_and_tables_are_left_out(
  tmp_path, monkeypatch
):
  write(
    tmp_path,
    {
      'b.py': 'x = 1\n',
      'a/__init__.py': '"""Doc."""\n',
      'a/empty.py': ' \n',
      'a/notice.py': '# Copyright (c) 1999 Somebody\n',
      'a/spelt.py': '# Licensed to us\n',
      'a/rights.py': '# ALL RIGHTS RESERVED\n',
      'a/other_encoding.py': "x = '\xe9'\n",
      'test/c.py': 'x = 2\n',
      'a/tests/c.py': 'x = 2\n',
      'lib2to3/c.py': 'x = 2\n',
      'site-packages/c.py': 'x = 2\n',
      '_sysconfigdata_linux.py': 'x = 2\n',
      'text.txt': 'x',
    },
  )
  monkeypatch.setattr(sysconfig, 'get_path', lambda name: str(tmp_path))
  found = stdlib.sources.__wrapped__()
  assert found == (('a/__init__.py', '"""Doc."""\n'), ('b.py', 'x = 1\n'))


def test_the_library_of_this_python():
  found = dict(stdlib.sources())
  assert list(found) == sorted(found)
  assert len(found) > 200 and sum(map(len, found.values())) > 3e6
  path = pathlib.Path(sysconfig.get_path('stdlib'), 'heapq.py')
  assert found['heapq.py'] == path.read_text('utf-8')


def test_documentation_and_functions_of_a_module():
  source = stdlib.Passage('heapq.py', inspect.getsource(heapq))
  docs = dict(stdlib.docstrings(source))
  assert docs['heapq.py:'] == inspect.cleandoc(heapq.__doc__)
  assert docs['heapq.py:merge'] == inspect.getdoc(heapq.merge)
  functions = dict(stdlib.functions(source))
  assert functions['heapq.py:merge'] == inspect.getsource(heapq.merge).rstrip()
  for text in functions.values():
    [node] = ast.parse(text).body
    assert isinstance(node, ast.FunctionDef)
