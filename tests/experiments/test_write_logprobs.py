"""Logs of our decoder say of its texts what the main job's functions say."""

import commands
import jax.numpy as jnp
import numpy as np
import pytest
import reference_checkpoint

from experiments import bound_from_logprobs, curves, write_logprobs
from specjax.theory import entropy, run_bounds

CONFIG = reference_checkpoint.CASES['tied'] | {'vocab_size': 258}
CAPACITIES, VOCAB, SEED = [1, 2, 5, 16], 258, 5
TEXTS = ['aaab aaab', 'one, two, three', 'x = x + 1', 'Why?', 'zzz']


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  """The logs of a small model; three tokens have all mass."""
  place = tmp_path_factory.mktemp('place')
  reference_checkpoint.save_model(place / 'model', CONFIG)
  lines = [f'{{"id": "p{i}", "prompt": "{t}"}}' for i, t in enumerate(TEXTS)]
  (place / 'prompts.jsonl').write_text('\n'.join(lines))
  done = commands.run(
    write_logprobs.NAME,
    model=place / 'model',
    prompts=place / 'prompts.jsonl',
    results_dir=place,
    run_name='run',
    top_k=3,
    top_logprobs=5,
    max_new_tokens=24,
    max_length=64,
    seed=SEED,
  )
  assert done.returncode == 0, done.stderr
  found = place / write_logprobs.NAME / 'run'
  for name in write_logprobs.FORMATS:
    assert str(found / name) in done.stdout
  return found


@pytest.fixture(scope='module')
def measured(folder):
  """The laws that the main job bounds by, as they were measured."""
  with np.load(folder / 'stages' / 'laws-0.npz') as laws:
    summary = entropy.LawSummary(**{k: jnp.asarray(laws[k]) for k in laws})
  with np.load(folder / 'stages' / 'plain-0.npz') as plain:
    return summary, plain['num_tokens']


def read(path):
  stream = bound_from_logprobs.Stream(CAPACITIES, 'e', VOCAB, 1000, None, SEED)
  stream.read([str(path)])
  stream.check()
  return stream


def check(table, name, interval):
  for i, capacity in enumerate(CAPACITIES):
    row = curves.find(table, name, capacity)
    found = [row['D'], row['low'], row['high']]
    np.testing.assert_allclose(found, [x[i] for x in interval], rtol=2e-5)


@pytest.mark.parametrize('name', ['chat.jsonl', 'plain.jsonl.gz'])
def test_bounds_are_those_of_the_main_job(folder, measured, name):
  laws, num_tokens = measured
  stream = read(folder / name)
  table, facts = stream.tabulate()
  np.testing.assert_array_equal(stream.rows.num_tokens, num_tokens)
  assert stream.bad_lines.count == 0
  has_tops = not name.startswith('plain')
  moments = (
    entropy.moments_of_laws(laws, num_tokens)
    if has_tops
    else entropy.moments_of_surprisals(laws.surprisal, num_tokens)
  )
  assert stream.heads.are_known == has_tops
  exact = {key: float(value) for key, value in moments._asdict().items()}
  for key, value in exact.items():
    assert facts['moments'][key]['value'] == pytest.approx(value, rel=1e-5)
  sizes = np.array(CAPACITIES)
  limits = {
    'run': run_bounds.run(laws.surprisal, num_tokens, sizes, VOCAB, SEED),
    'run_context': run_bounds.run_context(laws, num_tokens, sizes, SEED),
  }
  for key in ('run', 'run_context')[: 1 + has_tops]:
    check(table, key, run_bounds.rate(limits[key], num_tokens, sizes, SEED))
  for key, bound_fn in curves.IID.items():
    found = [curves.find(table, key, n)['D'] for n in CAPACITIES]
    np.testing.assert_allclose(found, bound_fn(*moments, sizes), rtol=2e-5)
  if has_tops:
    # Nothing is missing, so that both sides are the law's own.
    assert facts['missing']['value'] == pytest.approx(0.0, abs=1e-5)
    for side in facts['limits'].values():
      for key, value in exact.items():
        assert side[key]['value'] == pytest.approx(value, rel=1e-3)


def test_all_formats_keep_the_same(folder):
  streams = {name: read(folder / name) for name in write_logprobs.FORMATS}
  chat = streams['chat.jsonl']
  for name, stream in streams.items():
    assert stream.num_texts == len(TEXTS)
    assert stream.num_cut == chat.num_cut
    assert stream.heads.are_known == (not name.startswith('plain'))
    for key, array in stream.arrays().items():
      np.testing.assert_array_equal(array, chat.arrays()[key])


def test_a_text_ends_where_its_last_token_does():
  log_p = np.log(np.array([[[0.5, 0.3, 0.2]] * 3] * 2))
  tokens = np.array([[1, 0, 2], [1, 1, 1]])
  texts = entropy.Texts(
    entropy.summarise(jnp.asarray(log_p), jnp.asarray(tokens), 3),
    jnp.asarray(tokens),
    jnp.asarray([3, 2]),
    jnp.asarray([2]),
  )
  (one, ids), (other, _) = write_logprobs.texts_of(texts, 2)
  assert ids == [1, 0, 2]
  assert one.finish_reason == 'stop'
  assert other.finish_reason == 'length'
  np.testing.assert_allclose(np.exp(one.log_probs), [0.3, 0.5, 0.2])
  assert [list(top) for top in other.tops] == [['token_id:0', 'token_id:1']] * 2
  listed = write_logprobs.completion(one)['choices'][0]['logprobs']
  assert list(listed['top_logprobs'][2]) == [f'token_id:{i}' for i in range(3)]
