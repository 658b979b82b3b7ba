"""The command says what the library says, and adds it up."""

import os
import re

import commands
import jax.numpy as jnp
import pytest
import reference_checkpoint

from specjax import sampling as sampling_lib
from specjax import tokenizer as tokenizer_lib
from specjax.checkpoint import configs, orbax_store, weights
from specjax.decode import generate

CONFIG = reference_checkpoint.CASES['tied'] | {
  'vocab_size': 258,
  'max_position_embeddings': 256,
}
TOKENIZER = tokenizer_lib.byte_level()
QUESTION = 'aaab aaab'


@pytest.fixture(scope='module')
def params():
  named = reference_checkpoint.tensors(CONFIG)
  source = weights.Source('hf', frozenset(named), named.get)
  return weights.assemble(configs.from_hf(CONFIG), source, jnp.float32)


def plain(params, prompt):
  [found] = generate.generate(
    params,
    [prompt],
    eos_ids=TOKENIZER.eos_ids,
    max_new_tokens=20,
    max_length=1024,
    sampling=sampling_lib.make(1, 0.0),
    tokenizer=TOKENIZER,
  )
  return found


def test_a_conversation_is_that_of_plain_decoding(params, tmp_path):
  orbax_store.save(tmp_path / 'model', params, TOKENIZER, {})
  done = commands.run(
    'generate',
    *(f'--prompt={QUESTION}', '--prompt=Why?'),
    model=tmp_path / 'model',
    max_new_tokens=20,
    capacities=4,
  )
  assert done.returncode == 0, done.stderr
  messages, rest, reused = [], done.stdout, 0
  for question in (QUESTION, 'Why?'):
    messages.append({'role': 'user', 'content': question})
    ids = TOKENIZER.chat(messages)
    answer = plain(params, ids)
    messages.append({'role': 'assistant', 'content': answer.text})
    head = f'> {question}\n\n{answer.text}\n\n'
    assert rest.startswith(head)
    count = len(answer.tokens)
    said, rest = rest.removeprefix(head).split('\n\n', maxsplit=1)
    steps = int(re.match(rf'{count} tokens in (\d+) iterations', said)[1])
    assert f'D = {count / steps:.2f}, ' in said
    assert f'ended by {answer.finish_reason}' in said
    before = re.search(r'before it (\d+) tokens, (\d+) of them not read', said)
    assert [int(x) for x in before.groups()] == [len(ids), reused]
    split = re.findall(r'(\w+) [\d.]+ ms \((\d+)%\)', said)
    assert [name for name, _ in split] == ['draft', 'verify', 'overhead']
    assert abs(sum(int(share) for _, share in split) - 100) <= 2
    rows = re.findall(r'^ +(\d+) +(\d+) +(\d+) +(\d+)$', said, re.MULTILINE)
    accepted = sum(int(row[-1]) for row in rows)
    assert accepted + steps >= count >= steps + accepted - 1
    # All but the last token has been read; broken characters are said anew.
    whole = [*ids, *answer.tokens]
    again = TOKENIZER.chat([*messages, {'role': 'user', 'content': 'Why?'}])
    reused = min(len(os.path.commonprefix([whole, again])), len(whole) - 1)


@pytest.mark.parametrize(
  ('flags', 'message'),
  [
    ({}, 'a question, such as'),
    (
      {'prompt': 'a', 'drafters': 'lookup,suffix'},
      'one drafter .* got lookup, s',
    ),
    (
      {'prompt': 'a', 'capacities': '1,2'},
      'one .* one capacity, got lookup and \\[1, 2\\]',
    ),
  ],
)
def test_bad_flags_are_named_before_a_model_is_read(flags, message):
  done = commands.run('generate', model='/no such model', **flags)
  assert done.returncode == 2
  assert re.match(f'error: expected {message}', done.stderr.splitlines()[-1])
