"""Tests of experiments.make_self_data: a killed run ends as an unkilled one."""

import json
import signal
import time

import commands
import jax.numpy as jnp
import pytest

from experiments import make_self_data, prompts
from specjax import sampling, tokenizer
from specjax.checkpoint import orbax_store
from specjax.decode import generate
from specjax.train import continuations

NUM_PROMPTS, NUM_TOKENS = 24, 24


@pytest.fixture(scope='module')
def place(tmp_path_factory, tiny_bytes):
  """A model, and prompts so unlike in length that programs differ."""
  folder = tmp_path_factory.mktemp('place')
  orbax_store.save(folder / 'model', tiny_bytes, tokenizer.byte_level(), {})
  excluded = {'id': 'out', 'prompt': prompts.load()[0].text}
  lines = [json.dumps(excluded)]
  for i in range(NUM_PROMPTS):
    text = chr(97 + i) * (1 + 33 * (i % 4))
    lines.append(json.dumps({'id': f'p{i}', 'kind': 'x', 'prompt': text}))
  (folder / 'prompts.jsonl').write_text('\n'.join(lines))
  return folder


@pytest.fixture(scope='module')
def flags(place):
  return {
    'model': place / 'model',
    'prompts': place / 'prompts.jsonl',
    'results_dir': place,
    'run_name': 'run',
    'batch_size': 3,
    'max_new_tokens': NUM_TOKENS,
    'seed': 7,
  }


@pytest.fixture(scope='module')
def folder(place):
  """Where the run keeps its texts."""
  return place / make_self_data.NAME / 'run' / 'texts'


@pytest.fixture(scope='module')
def killed(flags, folder):
  """What a run had that was killed at its first file: name -> content."""
  process = commands.start(make_self_data.NAME, **flags)
  while process.poll() is None and not list(folder.glob('[0-9]*')):
    time.sleep(0.01)
  process.send_signal(signal.SIGKILL)
  process.communicate()
  return {path.name: path.read_bytes() for path in folder.glob('[0-9]*')}


@pytest.fixture(scope='module')
def resumed(flags, folder, killed):
  done = commands.run(make_self_data.NAME, **flags)
  assert done.returncode == 0, done.stderr
  return done.stdout, list(continuations.Source(folder))


def test_a_killed_run_goes_on(folder, killed, resumed):
  _, texts = resumed
  assert 0 < len(killed) < NUM_PROMPTS // 3
  for name, content in killed.items():
    assert (folder / name).read_bytes() == content
  assert sorted(text.id for text in texts) == sorted(
    f'p{i}' for i in range(NUM_PROMPTS)
  )


def test_the_answers_are_those_of_plain_decoding(resumed, tiny_bytes):
  _, texts = resumed
  texts = texts[::5]
  temperatures = jnp.asarray([text.temperature for text in texts])
  answers = generate.generate(
    tiny_bytes,
    [tokenizer.byte_level().chat([{'content': t.prompt}]) for t in texts],
    eos_ids=(257,),
    max_new_tokens=NUM_TOKENS,
    sampling=sampling.make(len(texts)).replace(temperature=temperatures),
    seeds=[text.seed for text in texts],
  )
  assert {text.temperature for text in texts} == {0.0, 1.0}
  for text, answer in zip(texts, answers, strict=True):
    assert text.answer_ids == answer.tokens


def test_the_report_counts(folder, resumed):
  out, texts = resumed
  num_tokens = sum(len(text.answer_ids) for text in texts)
  assert out.endswith(f'{num_tokens} tokens in {folder}\n')
  record = json.loads((folder.parent / 'record.json').read_text())
  assert [
    (row['kind'], row['temperature'], row['texts']) for row in record['table']
  ] == [('x', 0.0, NUM_PROMPTS // 2), ('x', 1.0, NUM_PROMPTS // 2)]
  assert sum(row['tokens'] for row in record['table']) == num_tokens


def test_a_run_of_other_flags_is_refused(flags, resumed):
  done = commands.run(make_self_data.NAME, **flags | {'seed': 8})
  assert done.returncode == 2 and '--seed=7 (now 8)' in done.stderr


def text_of(name, temperature, size):
  return continuations.Continuation(
    name, 'x', '', [0] * size, [], temperature, 0
  )


def test_batches_are_alike_and_complete():
  texts = [text_of(str(i), i % 2, 1 + i * 7 % 30) for i in range(96)]
  batches = make_self_data.plan(texts, 4)
  assert sorted(sum(batches, [])) == sorted(texts)
  for batch in batches:
    sizes = [len(text.prompt_ids) for text in batch]
    assert len(batch) == 4 and len({t.temperature for t in batch}) == 1
    assert max(sizes) - min(sizes) < 10  # Of 29 among all.
  uneven = make_self_data.plan(texts[:95], 4)
  assert sorted(sum(uneven, [])) == sorted(texts[:95])
  assert uneven[:12] == batches[:12]  # A stretch depends on its own texts.


def test_requests_differ_in_seed_and_take_turns_at_temperatures():
  asked = [prompts.Prompt(str(i), 'ab'[i // 3 % 2], 'x') for i in range(12)]
  texts = make_self_data.unanswered(
    tokenizer.byte_level(), asked, [0.0, 0.5], 3
  )
  assert len({text.seed for text in texts}) == 12
  for kind in 'ab':
    own = [text.temperature for text in texts if text.kind == kind]
    assert own == [0.0, 0.5] * 3
