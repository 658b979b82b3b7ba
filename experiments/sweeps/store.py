"""Where workers meet: named contents that can be created once.

A store is a folder on a disk that all workers mount, or a bucket.  It rests on
one promise: of all that create a name at the same time, one succeeds.  A disk
keeps it by hard links; Google Cloud Storage by a generation of 0 that the
object must have, which gcsfs asks for.  Other buckets are refused, since not
every library of theirs asks.
"""

import contextlib
import os
import pathlib
import tempfile
from collections.abc import Iterator
from typing import Protocol

import fsspec

# Those whose library creates conditionally; memory is for tests.
_BUCKETS = ('gs', 'gcs', 'memory')


class Store(Protocol):
  """What a folder and a bucket have in common; names are relative paths."""

  is_local: bool

  def read(self, name: str) -> bytes | None:
    """Returns the content of a name, None without one."""

  def create(self, name: str, content: bytes) -> bool:
    """Gives a name its first content, which is visible whole or not at all.

    Args:
      name: that has none.
      content: told apart from what others would write, if it matters who did.

    Returns:
      Whether the name has this content: False if another was earlier.
    """

  def write(self, name: str, content: bytes) -> None:
    """Gives a name a content, whatever it had."""

  def remove(self, name: str, content: bytes) -> None:
    """Takes the content of a name away, unless it has another by now."""

  def names(self, prefix: str) -> list[str]:
    """Returns the names below a folder, sorted."""


class Folder:
  """A store on a disk that has hard links."""

  is_local = True

  def __init__(self, root: str | pathlib.Path):
    """Binds the folder, which need not be there yet."""
    self._root = pathlib.Path(root)

  def read(self, name: str) -> bytes | None:
    """See `Store.read`."""
    try:
      return (self._root / name).read_bytes()
    except FileNotFoundError:
      return None

  def create(self, name: str, content: bytes) -> bool:
    """See `Store.create`."""
    path = self._root / name
    with self._beside(path, content) as temporary:
      try:
        os.link(temporary, path)
      except FileExistsError:
        # A network disk may have lost its answer to us.
        return self.read(name) == content
    return True

  def write(self, name: str, content: bytes) -> None:
    """See `Store.write`."""
    path = self._root / name
    with self._beside(path, content) as temporary:
      os.replace(temporary, path)

  def remove(self, name: str, content: bytes) -> None:
    """See `Store.remove`."""
    path = self._root / name
    with self._beside(path, b'') as temporary:
      try:
        os.replace(path, temporary)
      except FileNotFoundError:
        return
      if temporary.read_bytes() != content:  # It was made anew meanwhile.
        with contextlib.suppress(FileExistsError):
          os.link(temporary, path)

  def names(self, prefix: str) -> list[str]:
    """See `Store.names`."""
    return sorted(
      path.relative_to(self._root).as_posix()
      for path in (self._root / prefix).rglob('*')
      if path.is_file() and not path.name.startswith('.')
    )

  @contextlib.contextmanager
  def _beside(self, path: pathlib.Path, content: bytes) -> Iterator:
    """Yields a file of that content, gone afterwards, on the same disk."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f'.{path.name}.')
    try:
      with os.fdopen(handle, 'wb') as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
      os.chmod(name, 0o644)  # mkstemp gives 0o600.
      yield pathlib.Path(name)
    finally:
      pathlib.Path(name).unlink(missing_ok=True)


class Bucket:
  """A store in a bucket, through fsspec.

  `remove` looks and then removes: only the holder of a claim may call it.
  """

  is_local = False

  def __init__(self, url: str):
    """Binds a place in a bucket.

    Args:
      url: such as `gs://bucket/folder`.

    Raises:
      ValueError: a place that cannot be created in conditionally, or whose
        library is missing.
    """
    scheme = url.split('://')[0]
    if scheme not in _BUCKETS:
      raise ValueError(f'expected a folder or a gs:// bucket, got {url}')
    try:
      self._files, root = fsspec.core.url_to_fs(url)
    except ImportError as error:
      raise ValueError(
        f'expected the library of {url}, got: {error}'
      ) from error
    self._root = root.rstrip('/') + '/'

  def read(self, name: str) -> bytes | None:
    """See `Store.read`."""
    try:
      return self._files.cat_file(self._root + name)
    except FileNotFoundError:
      return None

  def create(self, name: str, content: bytes) -> bool:
    """See `Store.create`."""
    try:
      self._files.pipe_file(self._root + name, content, mode='create')
    except FileExistsError:
      # The library asks again when an answer was lost.
      return self.read(name) == content
    return True

  def write(self, name: str, content: bytes) -> None:
    """See `Store.write`."""
    self._files.pipe_file(self._root + name, content)

  def remove(self, name: str, content: bytes) -> None:
    """See `Store.remove`."""
    if self.read(name) == content:
      self._files.rm_file(self._root + name)

  def names(self, prefix: str) -> list[str]:
    """See `Store.names`."""
    self._files.invalidate_cache()  # Others write too.
    found = self._files.find(self._root + prefix)
    return sorted(path.removeprefix(self._root) for path in found)


def open_store(place: str) -> Store:
  """Returns the store at a place.

  Args:
    place: a folder, or the URL of a bucket.

  Raises:
    ValueError: as `Bucket` does.
  """
  return Bucket(place) if '://' in place else Folder(place)


def put_folder(store: Store, folder: pathlib.Path, prefix: str) -> None:
  """Copies the files of a folder into a store.

  Args:
    store: where to.
    folder: that they are in, at any depth.
    prefix: what goes before their names.
  """
  for path in sorted(folder.rglob('*')):
    if path.is_file():
      name = path.relative_to(folder).as_posix()
      store.write(f'{prefix}/{name}', path.read_bytes())


def get_folder(store: Store, prefix: str, folder: pathlib.Path) -> None:
  """Copies what `put_folder` left, over files of the same names.

  Args:
    store: where from.
    prefix: what goes before their names.
    folder: made if it is not there.
  """
  for name in store.names(prefix):
    path = folder / name.removeprefix(f'{prefix}/')
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(store.read(name))
