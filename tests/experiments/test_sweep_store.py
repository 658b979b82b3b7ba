"""Stores: of all that create a name at once, one succeeds."""

import os
import threading
import uuid

import pytest

from experiments.sweeps import store as store_lib


@pytest.fixture(params=['folder', 'bucket'])
def store(request, tmp_path):
  is_folder = request.param == 'folder'
  return store_lib.open_store(
    str(tmp_path / 'deep' / 'folder')
    if is_folder
    else f'memory://{uuid.uuid4().hex}/folder'
  )


def test_a_name_is_created_once(store):
  assert store.read('a/b.json') is None
  assert store.create('a/b.json', b'one')
  assert not store.create('a/b.json', b'two')
  assert store.read('a/b.json') == b'one'
  # An answer may be lost: it is ours still.
  assert store.create('a/b.json', b'one')


def test_a_name_is_written_and_listed(store):
  assert store.names('a') == []
  store.write('a/c.json', b'1')
  store.write('a/b/c.json', b'2')
  store.write('ab/c.json', b'3')
  store.write('a/c.json', b'4')
  assert store.read('a/c.json') == b'4'
  assert store.names('a') == ['a/b/c.json', 'a/c.json']


def test_a_content_is_removed_if_it_is_still_there(store):
  store.create('a', b'half')
  store.remove('a', b'other')
  assert store.read('a') == b'half'
  store.remove('a', b'half')
  assert store.read('a') is None
  store.remove('a', b'half')
  assert store.create('a', b'whole')


def test_folders_go_there_and_back(store, tmp_path):
  source, target = tmp_path / 'source', tmp_path / 'target'
  (source / 'stages').mkdir(parents=True)
  (source / 'stages' / '0.npz').write_bytes(b'\0\1')
  (source / 'log.txt').write_bytes(b'said')
  store_lib.put_folder(store, source, 'work/run')
  store_lib.get_folder(store, 'work/run', target)
  store_lib.get_folder(store, 'work/nothing', target)
  found = {path.name: path.read_bytes() for path in target.rglob('*.*')}
  assert found == {'0.npz': b'\0\1', 'log.txt': b'said'}


def test_of_many_that_create_one_succeeds(tmp_path):
  store = store_lib.Folder(tmp_path)
  barrier = threading.Barrier(8)
  won = []

  def create(number):
    for turn in range(20):
      barrier.wait()
      if store.create(f'{turn}', b'%d' % number):
        won.append((turn, number))

  threads = [threading.Thread(target=create, args=(i,)) for i in range(8)]
  for thread in threads:
    thread.start()
  for thread in threads:
    thread.join()
  assert sorted(turn for turn, _ in won) == list(range(20))
  assert all(store.read(f'{turn}') == b'%d' % number for turn, number in won)
  assert sorted(os.listdir(tmp_path)) == store.names('')  # Nothing is left.


def test_what_cannot_create_once_is_refused():
  with pytest.raises(ValueError, match='a gs:// bucket, got http://x/y'):
    store_lib.open_store('http://x/y')


def test_a_disk_without_hard_links_is_an_error(tmp_path, monkeypatch):
  def fail(*_):
    raise PermissionError(1, 'Operation not permitted')

  monkeypatch.setattr(os, 'link', fail)
  with pytest.raises(OSError, match='not permitted'):
    store_lib.Folder(tmp_path).create('a', b'1')
  assert os.listdir(tmp_path) == []
