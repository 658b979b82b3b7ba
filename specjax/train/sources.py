"""Records by name: TFDS folders, and texts of our own built into one offline.

TensorFlow is not needed: all data lie in array_record files, which are read by
`tfds.core.DatasetBuilder.as_data_source`.
"""

import hashlib
import json
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow_datasets as tfds
from tensorflow_datasets.core import read_only_builder

from specjax.train import continuations
from specjax.train import stdlib as stdlib_lib

# How a catalogue dataset gets into a folder.  Some are known to TFDS only after
# these imports.
_PREPARE = (
  'python -c "import tensorflow_datasets as tfds, '
  'tensorflow_datasets.question_answering, tensorflow_datasets.summarization, '
  'tensorflow_datasets.text, tensorflow_datasets.translate; '
  "tfds.builder('{name}', data_dir='{folder}', file_format='array_record')"
  '.download_and_prepare()"'
)

# One text in so many is for validation, and as many are for the last test.
_NUM_PARTS = 20


class Text(NamedTuple):
  """A text of our own.

  Attributes:
    id: name, unique in its set.
    kind: what it is, such as 'chat' or 'source'.
    text: the words.
  """

  id: str
  kind: str
  text: str


class Texts(tfds.core.GeneratorBasedBuilder):
  """Texts of our own as a TFDS dataset, the splits by a hash of their names."""

  VERSION = tfds.core.Version('1.0.0')

  def __init__(
    self, name: str, texts: Sequence[Text], data_dir: str | pathlib.Path | None
  ):
    """Names the dataset by what it holds, so that it is never out of date.

    Args:
      name: of the set.
      texts: all of them.
      data_dir: folder of datasets; that of TFDS if None.
    """
    self._texts = texts
    content = hashlib.sha256(json.dumps(texts).encode()).hexdigest()
    super().__init__(
      config=tfds.core.BuilderConfig(
        name=f'{name}-{content[:12]}', version=self.VERSION
      ),
      data_dir=data_dir,
      file_format='array_record',
    )

  def _info(self):
    features = {name: tfds.features.Text() for name in Text._fields}
    return tfds.core.DatasetInfo(
      builder=self, features=tfds.features.FeaturesDict(features)
    )

  def _split_generators(self, dl_manager):
    del dl_manager  # There is nothing to download.
    splits = sorted({split_of(text.id) for text in self._texts})
    return {split: self._generate_examples(split) for split in splits}

  def _generate_examples(self, split):
    for text in self._texts:
      if split_of(text.id) == split:
        yield text.id, text._asdict()


def split_of(name: str) -> str:
  """Returns the split of a text: 'train' (90 %), 'validation' or 'test'.

  Args:
    name: of the text, on which alone its split depends.
  """
  digest = hashlib.sha256(name.encode()).digest()
  part = int.from_bytes(digest[:4], 'big') % _NUM_PARTS
  return {0: 'test', 1: 'validation'}.get(part, 'train')


def of_texts(
  name: str,
  texts: Sequence[Text],
  split: str,
  data_dir: str | pathlib.Path | None = None,
) -> Sequence:
  """Returns texts of our own, built if they are not there yet.

  Args:
    name: of the set.
    texts: all of them.
    split: 'train', 'validation', 'test', 'all', or a slice as TFDS writes it,
      such as 'train[:10%]'.
    data_dir: folder of datasets; that of TFDS if None.

  Returns:
    Records `{'id', 'kind', 'text'}`, as bytes, in an order of TFDS's own.

  Raises:
    ValueError: a split that has no text.
  """
  builder = Texts(name, texts, data_dir)
  builder.download_and_prepare()
  return builder.as_data_source(split=split)


def stdlib(split: str, data_dir: str | pathlib.Path | None = None) -> Sequence:
  """Returns the modules of the standard library, as `of_texts` does.

  Args:
    split: of them.
    data_dir: folder of datasets; that of TFDS if None.
  """
  texts = [Text(name, 'source', text) for name, text in stdlib_lib.sources()]
  return of_texts('stdlib', texts, split, data_dir)


def docstrings(
  split: str, data_dir: str | pathlib.Path | None = None
) -> Sequence:
  """Returns what documents the standard library, as `of_texts` does.

  A text is all that documents a module; it is in the module's split.

  Args:
    split: of them.
    data_dir: folder of datasets; that of TFDS if None.
  """
  texts = []
  for source in stdlib_lib.sources():
    found = [passage.text for passage in stdlib_lib.docstrings(source)]
    if found:
      texts.append(Text(source.name, 'docstring', '\n\n'.join(found)))
  return of_texts('docstrings', texts, split, data_dir)


def written(
  folder: str | pathlib.Path, split: str
) -> list[continuations.Continuation]:
  """Returns what a model wrote itself.

  Args:
    folder: of the files.
    split: 'train', 'validation' or 'test', by the names of the prompts; or
      'all'.

  Raises:
    ValueError: no files, or no text in the split.
  """
  source = continuations.Source(folder)
  texts = [text for text in source if split in ('all', split_of(text.id))]
  if not texts:
    raise ValueError(f'expected texts of the split {split!r} in {folder}')
  return texts


def catalogue(
  name: str, split: str, data_dir: str | pathlib.Path | None = None
) -> Sequence:
  """Returns a dataset of the TFDS catalogue that was prepared before.

  Args:
    name: as TFDS writes it, such as 'lm1b' or 'cnn_dailymail/3.4.0'.
    split: of it, or a slice such as 'train[:10%]'.
    data_dir: folder of datasets; that of TFDS if None.

  Returns:
    Records with the fields of the dataset; texts are bytes.

  Raises:
    ValueError: it is not there, which says how to prepare it, or not in
      array_record files; no such split.
  """
  folder = pathlib.Path(data_dir or tfds.core.constants.DATA_DIR).expanduser()
  try:
    builder = read_only_builder.builder_from_files(name, data_dir=str(folder))
  except tfds.core.DatasetNotFoundError as error:
    raise ValueError(_how_to_prepare(name, folder, 'none')) from error
  file_format = builder.info.file_format
  if file_format != tfds.core.FileFormat.ARRAY_RECORD:
    found = f'files of the format {file_format.value}'
    raise ValueError(_how_to_prepare(name, folder, found))
  return builder.as_data_source(split=split)


def _how_to_prepare(name, folder, found):
  command = _PREPARE.format(name=name, folder=folder)
  return (
    f'expected the dataset {name} in array_record files in {folder}, got '
    f'{found}; prepare it with: {command}'
  )
