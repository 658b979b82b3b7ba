"""What a Llama is trained on, by the name that a flag gives.

prompts, docstrings, stdlib   our own prompts; what documents the standard
                              library of Python; its sources
FILE.jsonl                    prompts in any layout of `experiments.prompts`
FOLDER                        texts that `make_self_data` wrote
lm1b, gsm8k, ...              a dataset of the TFDS catalogue, in a folder
                              that the user has prepared
"""

import pathlib
from collections.abc import Sequence
from typing import NamedTuple

from experiments import prompts as prompts_lib
from specjax import tokenizer as tokenizer_lib
from specjax.train import documents, sources

# Fields of datasets in the catalogue: a text, or a question and its answer.
_FIELDS = {
  'cnn_dailymail': ('article', 'highlights'),
  'gsm8k': ('question', 'answer'),
  'samsum': ('dialogue', 'summary'),
  'xsum': ('document', 'summary'),
}
_DEFAULT_FIELDS = ('text',)


class Dataset(NamedTuple):
  """What `specjax.train.data.batches` is told.

  Attributes:
    source: the records.
    document_fn: makes documents of them.
  """

  source: Sequence
  document_fn: documents.DocumentFn


def load(
  name: str,
  tokenizer: tokenizer_lib.Tokenizer,
  split: str,
  *,
  data_dir: str | None = None,
  fields: Sequence[str] = (),
) -> Dataset:
  """Finds a dataset; what is made of our own texts is built if it is absent.

  Args:
    name: as the head of this module says.
    tokenizer: of the model.
    split: 'train', 'validation', 'test', 'all', or a slice as TFDS writes it.
    data_dir: folder of TFDS datasets; that of TFDS if None.
    fields: for the catalogue, one field with texts, or two with questions and
      answers; none for those that are known, else `text`.

  Raises:
    ValueError: no such dataset, with the command that prepares it; a split
      without texts; more than two fields; texts of a model of more tokens.
  """
  path = pathlib.Path(name).expanduser()
  if name == 'stdlib':
    source, fields = sources.stdlib(split, data_dir), ['text']
  elif name == 'docstrings':
    source, fields = sources.docstrings(split, data_dir), ['text']
  elif name == 'prompts' or path.suffix == '.jsonl':
    source, fields = _prompts(name, path, split, data_dir), ['text']
  elif path.is_dir():
    return Dataset(_written(path, split, tokenizer), documents.of_continuation)
  else:
    source = sources.catalogue(name, split, data_dir)
    fields = fields or _FIELDS.get(name.split('/')[0], _DEFAULT_FIELDS)
  return Dataset(source, _document_fn(tokenizer, fields))


def _prompts(name, path, split, data_dir):
  """Returns our own prompts, or those of a file."""
  found = prompts_lib.load(None if name == 'prompts' else path)
  texts = [sources.Text(*prompt) for prompt in found]
  return sources.of_texts(path.stem, texts, split, data_dir)


def _written(path, split, tokenizer):
  """Returns what a model wrote, if it was in tokens of the tokenizer."""
  texts = sources.written(path, split)
  most = max(max(*text.prompt_ids, *text.answer_ids) for text in texts)
  if most >= tokenizer.vocab_size:
    raise ValueError(
      f'expected texts in {path} in tokens below {tokenizer.vocab_size}, those '
      f'of the vocabulary that is trained, got {most}'
    )
  return texts


def _document_fn(tokenizer, fields):
  match fields:
    case [text]:
      return documents.of_text(tokenizer, text)
    case [prompt, answer]:
      return documents.of_chat(tokenizer, prompt, answer)
  raise ValueError(f'expected one field or two, got {list(fields)}')
