"""Text to token ids and back, and chat messages to the prompt a model knows.

Three doors lead to one class: `from_gguf` (the vocabulary inside a GGUF file),
`from_json` (a Hugging Face folder, or one written by `Tokenizer.save`) and
`byte_level` (an id is a byte; for small Llamas trained here).
"""

import datetime
import json
import pathlib
from collections.abc import Mapping, Sequence

import jinja2
import jinja2.ext
import jinja2.sandbox
import tokenizers

from specjax import vocabulary


class Tokenizer:
  """A vocabulary with its rules: text <-> ids, end ids and chat template.

  Attributes:
    eos_ids: ids that end a text, possibly several, possibly none.
    bos_id: id that begins a text, or None.
    chat_template: jinja2 source of the chat template, or None.
  """

  def __init__(
    self,
    backend: tokenizers.Tokenizer,
    eos_ids: Sequence[int] = (),
    bos_id: int | None = None,
    chat_template: str | None = None,
  ):
    size = backend.get_vocab_size()
    for token in [*eos_ids, *([] if bos_id is None else [bos_id])]:
      if not 0 <= token < size:
        raise ValueError(
          f'expected special ids below the vocabulary size {size}, got {token}'
        )
    self._backend = backend
    self.eos_ids = tuple(dict.fromkeys(eos_ids))
    self.bos_id = bos_id
    self.chat_template = chat_template

  @property
  def vocab_size(self) -> int:
    """Number of ids, special tokens included."""
    return self._backend.get_vocab_size()

  def encode(self, text: str, add_special: bool = False) -> list[int]:
    """Turns text into ids.

    Args:
      text: any text; special tokens written in it are recognised.
      add_special: whether to add what the model wants around a whole text
        (most often the begin token).

    Returns:
      The ids.
    """
    return self._backend.encode(text, add_special_tokens=add_special).ids

  def decode(self, ids: Sequence[int], skip_special: bool = True) -> str:
    """Turns ids into text; bytes that are no UTF-8 become U+FFFD.

    Args:
      ids: token ids, a list or an integer array of one axis.
      skip_special: whether to leave special tokens out of the text.

    Returns:
      The text.
    """
    return self._backend.decode(
      [int(i) for i in ids], skip_special_tokens=skip_special
    )

  def chat(self, messages: Sequence[Mapping[str, str]]) -> list[int]:
    """Turns a conversation into the ids after which the model answers.

    A tokenizer without a chat template belongs to a model that never saw a
    conversation: there the contents, parted by empty lines, are a plain text.

    Args:
      messages: `{'role': ..., 'content': ...}`, the oldest first.

    Returns:
      The ids of the prompt.

    Raises:
      ValueError: when the template is broken or refuses the conversation.
    """
    if self.chat_template is None:
      plain = '\n\n'.join(message['content'] for message in messages)
      return self.encode(plain, add_special=True)
    try:
      text = (
        _environment()
        .from_string(self.chat_template)
        .render(
          messages=messages,
          tools=None,
          documents=None,
          add_generation_prompt=True,
          bos_token=self._token(self.bos_id),
          eos_token=self._token(self.eos_ids[0] if self.eos_ids else None),
        )
      )
    except jinja2.TemplateError as error:
      raise ValueError(
        f'expected a conversation that suits the chat template, got: {error}'
      ) from error
    return self.encode(text)

  def save(self, folder: str | pathlib.Path) -> None:
    """Writes the three Hugging Face files that `from_json` reads.

    Args:
      folder: where to write; made when it is absent.
    """
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    self._backend.save(str(folder / 'tokenizer.json'))
    settings = {
      'tokenizer_class': 'PreTrainedTokenizerFast',
      'bos_token': self._token(self.bos_id) or None,
      'chat_template': self.chat_template,
    }
    ends = {'bos_token_id': self.bos_id, 'eos_token_id': list(self.eos_ids)}
    for name, content in (
      ('tokenizer_config.json', settings),
      ('generation_config.json', ends),
    ):
      (folder / name).write_text(json.dumps(content, indent=2), 'utf-8')

  def _token(self, token: int | None) -> str:
    return '' if token is None else self._backend.id_to_token(token)


def byte_level() -> Tokenizer:
  """Builds the tokenizer whose ids 0..255 are the bytes of the UTF-8 text.

  Returns:
    A tokenizer of 258 ids; 256 begins a text and 257 ends it.
  """
  return Tokenizer(vocabulary.byte_level(), eos_ids=(257,), bos_id=256)


def from_gguf(metadata: Mapping[str, object]) -> Tokenizer:
  """Builds the tokenizer that a GGUF file describes.

  Args:
    metadata: the file's keys and values; those that begin with `tokenizer.`
      are read.  See https://github.com/ggml-org/ggml/blob/master/docs/gguf.md

  Returns:
    The tokenizer.

  Raises:
    ValueError: for a kind of vocabulary that is not known, a missing key, and
      special ids outside of the vocabulary.
  """
  ends = [
    metadata.get(f'tokenizer.ggml.{name}_token_id')
    for name in ('eos', 'eot', 'eom')
  ]
  return Tokenizer(
    vocabulary.from_gguf(metadata),
    eos_ids=[token for token in ends if token is not None],
    bos_id=metadata.get('tokenizer.ggml.bos_token_id'),
    chat_template=metadata.get('tokenizer.chat_template'),
  )


def from_json(folder: str | pathlib.Path) -> Tokenizer:
  """Reads the tokenizer of a Hugging Face model folder.

  `tokenizer.json` holds vocabulary and rules.  Begin and end ids come from
  `generation_config.json`, else `config.json`, else from the names in
  `tokenizer_config.json`; the chat template from `chat_template.jinja`, else
  from `tokenizer_config.json`.

  Args:
    folder: the model folder.

  Returns:
    The tokenizer.

  Raises:
    ValueError: when `tokenizer.json` is missing or a file is malformed.
  """
  folder = pathlib.Path(folder)
  path = folder / 'tokenizer.json'
  if not path.is_file():
    raise ValueError(f'expected a tokenizer.json in {folder}, got none')
  try:
    backend = tokenizers.Tokenizer.from_file(str(path))
  except Exception as error:  # The library raises nothing narrower.
    raise ValueError(f'expected a tokenizer in {path}, got: {error}') from error
  settings = _read_json(folder / 'tokenizer_config.json')
  sources = [
    _read_json(folder / 'generation_config.json'),
    _read_json(folder / 'config.json'),
    _named_ids(backend, settings),
  ]
  ends = _first(sources, 'eos_token_id', [])
  return Tokenizer(
    backend,
    eos_ids=[ends] if isinstance(ends, int) else ends,
    bos_id=_first(sources, 'bos_token_id', None),
    chat_template=_read_template(folder, settings),
  )


def _named_ids(
  backend: tokenizers.Tokenizer, settings: Mapping[str, object]
) -> dict[str, int | None]:
  """Finds the ids of the tokens that `tokenizer_config.json` names."""
  ids = {}
  for name in ('bos_token', 'eos_token'):
    token = settings.get(name)
    if isinstance(token, dict):  # Written out with its stripping rules.
      token = token['content']
    ids[f'{name}_id'] = token and backend.token_to_id(token)
  return ids


def _first(
  sources: Sequence[Mapping[str, object]], key: str, default: object
) -> object:
  found = [source[key] for source in sources if source.get(key) is not None]
  return found[0] if found else default


def _read_json(path: pathlib.Path) -> dict[str, object]:
  """Reads a JSON object; a file that is not there is an empty one."""
  if not path.is_file():
    return {}
  try:
    content = json.loads(path.read_text('utf-8'))
  except ValueError as error:
    raise ValueError(f'expected JSON in {path}, got: {error}') from error
  if not isinstance(content, dict):
    raise ValueError(f'expected a JSON object in {path}, got {type(content)}')
  return content


def _read_template(
  folder: pathlib.Path, settings: Mapping[str, object]
) -> str | None:
  """Finds the chat template; of several named ones the `default`."""
  path = folder / 'chat_template.jinja'
  if path.is_file():
    return path.read_text('utf-8')
  template = settings.get('chat_template')
  if isinstance(template, list):
    named = {entry['name']: entry['template'] for entry in template}
    template = named.get('default')
  return template


def _environment() -> jinja2.Environment:
  """Makes the sandbox in which published chat templates expect to run.

  Source: `transformers.utils.chat_template_utils`.
  """

  def raise_exception(message):
    raise jinja2.TemplateError(message)

  def tojson(value, indent=None):
    # jinja2's own filter escapes for HTML.
    return json.dumps(value, ensure_ascii=False, indent=indent)

  environment = jinja2.sandbox.ImmutableSandboxedEnvironment(
    trim_blocks=True, lstrip_blocks=True, extensions=[jinja2.ext.loopcontrols]
  )
  environment.filters['tojson'] = tojson
  environment.globals['raise_exception'] = raise_exception
  environment.globals['strftime_now'] = lambda layout: (
    datetime.datetime.now().strftime(layout)
  )
  return environment
