"""SmolLM2 decodes by speculation what it decodes plainly."""

import json

import commands
import numpy as np
import pytest

from experiments import records, token_identity
from specjax import tokenizer
from specjax.checkpoint import gguf_file, resolve

TEXTS = (
  'Explain why the sky is blue in a few sentences.',
  'Repeat after me: one two three, one two three, one two three.',
  'Write a Python function that adds two numbers.',
)
ANSWER = (
  'The sky is blue in a few sentences because of a process called '
  'Rayleigh scattering'
)
DRAFTERS = ('lookup', 'bigram', 'eagle', 'oracle')
NUM_NEW = 20

# This model runs longer than its programs compile.
XLA_FLAGS = (
  '--xla_backend_optimization_level=1 --xla_cpu_parallel_codegen_split_count=1'
)


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  """Of a run that compares the texts of all drafters with the plain ones."""
  place = tmp_path_factory.mktemp('place')
  lines = [json.dumps({'id': text, 'prompt': text}) for text in TEXTS]
  (place / 'prompts.jsonl').write_text('\n'.join(lines))
  job = commands.start(
    token_identity.NAME,
    xla_flags=XLA_FLAGS,
    prompts=place / 'prompts.jsonl',
    prompts_per_kind=len(TEXTS),
    results_dir=place,
    run_name='real',
    drafters=','.join(DRAFTERS),
    trees='best_first',
    capacities=4,
    batch_sizes=len(TEXTS),
    max_new_tokens=NUM_NEW,
    max_length=128,
  )
  _, err = job.communicate()
  assert job.returncode == 0, err
  return place / token_identity.NAME / 'real'


def test_the_greedy_answer_is_the_known_one(folder):
  metadata = gguf_file.read(resolve.embedded_file()).metadata
  with np.load(folder / 'stages' / 'plain-0.npz') as file:
    tokens = file['tokens'][0]
  assert tokenizer.from_gguf(metadata).decode(tokens).startswith(ANSWER)


def test_speculation_emits_the_plain_texts(folder):
  table = records.load_record(folder / 'record.json')['table']
  assert len(table) == 2 * len(DRAFTERS)
  for row in table:
    assert row['prompts'] == len(TEXTS) and row['failures'] == 0
    assert row['D'] > 1, row
