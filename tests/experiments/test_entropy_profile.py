"""Laws under other settings, their tables, and the command."""

import json
import types

import commands
import jax.numpy as jnp
import numpy as np
import pytest
import reference_checkpoint
import reference_decode
import reference_measured as measured

from experiments import (
  curves,
  entropy_profile,
  figure_files,
  figures,
  records,
)
from experiments import study as study_lib
from experiments.profile import report as profile_report
from experiments.profile import tables as profile_tables
from specjax import sampling as sampling_lib
from specjax.checkpoint import resolve
from specjax.theory import entropy

Setting = entropy_profile.Setting
LIMIT = 7
SEED = 3


def test_settings_are_named_by_what_is_not_neutral():
  assert Setting(1.0).name == 'T=1'
  assert (
    Setting(0.6, 20, 0.9, 0.05).name == 'T=0.6,top_k=20,top_p=0.9,min_p=0.05'
  )


def test_texts_change_one_thing_and_the_grid_all():
  base = Setting(1.0, top_k=50)
  plan = entropy_profile.make_plan(base, ['0.5', '1'], ['top_p=0.9', 'top_k=2'])
  assert [s.name for s in plan.sampled] == [
    'T=1,top_k=50',
    'T=0.5,top_k=50',
    'T=1,top_k=50,top_p=0.9',
    'T=1,top_k=2',
  ]
  assert [s.name for s in plan.grid] == [
    f'T={warm},{cut}'
    for warm in ('1', '0.5')
    for cut in ('top_k=50', 'top_k=50,top_p=0.9', 'top_k=2')
  ]


@pytest.mark.parametrize(
  ('temperatures', 'cuts', 'message'),
  [
    (['hot'], [], 'such as .* got hot and $'),
    ([], ['top_p'], 'such as .*got  and top_p$'),
    ([], ['top_k=2.5'], 'such as'),
    ([], ['temperature=0.5'], 'such as'),
    (['-1'], [], 'temperature >= 0, got -1.0'),
    (['nan'], [], 'temperature >= 0, got nan'),
    ([], ['top_p=0'], r'top_p in \(0, 1\]'),
  ],
)
def test_a_change_that_is_none_is_an_error(temperatures, cuts, message):
  with pytest.raises(ValueError, match=message):
    entropy_profile.make_plan(Setting(1.0), temperatures, cuts)


@pytest.fixture(scope='module')
def study_fn(tiny, task, tmp_path_factory):
  """Makes studies of the prompts of `task`, in batches of three and two."""

  def make(setting):
    folder = tmp_path_factory.mktemp('study')
    return study_lib.Study(
      resolve.Checkpoint(
        tiny, types.SimpleNamespace(eos_ids=task.eos_ids), 'tiny'
      ),
      task.prompts,
      {},
      sampling_lib.make(len(task.prompts), *setting),
      records.Stages(folder, {}),
      seed=SEED,
      capacities=[1],
      max_new_tokens=LIMIT,
      max_length=128,
      batch_size=3,
    )

  return make


# The whole vocabulary is no cut; 0 leaves no entropy.
PLAN = entropy_profile.make_plan(
  Setting(1.0), ['0.7', '0'], ['top_k=23', 'top_p=0.6', 'min_p=0.2']
)


@pytest.fixture(scope='module')
def profile(study_fn):
  return entropy_profile.measure(PLAN, study_fn)


def test_moments_of_other_settings_are_those_at_the_places_of_the_base(
  tiny, task, profile
):
  texts, same = profile
  base = texts['T=1']
  assert list(same) == [setting.name for setting in PLAN.grid]
  for row, prompt in enumerate(task.prompts):
    count = int(base.num_tokens[row])
    output = np.asarray(base.tokens[row, :count]).tolist()
    logits = reference_decode.logits_after(tiny, [*prompt, *output])
    for setting in PLAN.grid:
      for place in range(count):
        law = reference_decode.slow_law(
          logits[len(prompt) + place - 1], *setting
        )
        cost = -np.log(np.where(law > 0, law, 1))
        found = same[setting.name]
        assert abs(found.mu[row, place] - law @ cost) < 1e-4
        assert abs(found.mu2[row, place] - law @ cost**2) < 1e-3


def test_texts_are_of_their_own_laws_and_share_the_noise(profile):
  texts, same = profile
  base, uncut = texts['T=1'], texts['T=1,top_k=23']
  np.testing.assert_array_equal(uncut.tokens, base.tokens)
  for name, own in texts.items():
    # Until texts part, an own context is one of the base.
    parted = np.cumsum(np.asarray(own.tokens != base.tokens), axis=1) > 0
    is_same = np.pad(~parted, ((0, 0), (1, 0)), constant_values=True)[:, :-1]
    is_same &= np.arange(LIMIT) < np.asarray(own.num_tokens)[:, None]
    np.testing.assert_allclose(
      np.asarray(own.laws.entropy)[is_same], same[name].mu[is_same], atol=1e-4
    )
    if name in ('T=1', 'T=1,top_k=23'):
      assert not parted.any()
    else:
      assert parted.any() and is_same.any()


def test_a_base_without_entropy_is_an_error(study_fn):
  plan = entropy_profile.make_plan(Setting(0.0), ['1'], [])
  with pytest.raises(ValueError, match='base that has entropy, got T=0 with'):
    entropy_profile.measure(plan, study_fn)


def make_texts(temperature, seed):
  """Texts of random laws, as `reference_measured` has them."""
  rng = np.random.default_rng(seed)
  shape = (measured.NUM_ROWS, measured.LENGTH, measured.VOCAB)
  logits = 2 * np.random.default_rng(0).normal(size=shape) / temperature
  logits -= logits.max(-1, keepdims=True)
  log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
  tokens = (log_p + rng.gumbel(size=shape)).argmax(-1)
  return entropy.Texts(
    laws=entropy.summarise(
      jnp.asarray(log_p), jnp.asarray(tokens), measured.VOCAB
    ),
    tokens=jnp.asarray(tokens),
    num_tokens=jnp.asarray(rng.integers(3, measured.LENGTH, len(logits))),
    eos_ids=jnp.zeros(0, jnp.int32),
  )


KINDS = ['chat', 'code', 'code', 'poem', 'code', 'code']


@pytest.fixture(scope='module')
def made():
  """Texts of a base, of a sharper setting and of one without entropy."""
  texts = {
    'T=1': make_texts(1.0, 0),
    'T=0.5': make_texts(0.5, 1),
    'T=0': make_texts(1e-9, 2),
  }
  same = {
    name: entropy.Moments(own.laws.entropy, own.laws.second_moment)
    for name, own in texts.items()
  }
  same['T=0.5,top_k=2'] = entropy.Moments(*(m / 2 for m in same['T=0.5']))
  return texts, same


@pytest.fixture(scope='module')
def record(made):
  table, facts = profile_tables.tabulate(
    *made, KINDS, measured.CAPACITIES, measured.SEED
  )
  return measured.record(
    entropy_profile.NAME,
    table,
    **facts | {'temperatures': ['T=1', 'T=0.5', 'T=0']},
  )


def pooled(values, num_tokens, rows):
  """The mean over the tokens of some texts."""
  parts = [np.asarray(values)[r, : int(num_tokens[r])] for r in rows]
  return np.concatenate(parts).mean()


def test_moments_pool_the_tokens_of_a_kind(made, record):
  texts, same = made
  rows = {
    kind: [r for r, other in enumerate(KINDS) if kind in (None, other)]
    for kind in (None, 'chat', 'code', 'poem')
  }
  base = texts['T=1'].num_tokens
  cases = [(name, 'own', own.num_tokens) for name, own in texts.items()]
  cases += [(name, 'T=1', base) for name in same]
  for name, contexts, lengths in cases:
    for moment, values in same[name]._asdict().items():
      for kind, members in rows.items():
        row = profile_tables.find(record, name, contexts, moment, kind)
        expected = pooled(values, lengths, members)
        np.testing.assert_allclose(row['value'], expected, atol=1e-5)
        if len(members) < 4:
          assert row['low'] is None and row['high'] is None
        else:
          assert row['low'] <= row['value'] <= row['high']
  assert len(record['moments']) == len(cases) * 2 * len(rows)
  assert profile_tables.find(record, 'T=0.5,top_k=2', 'own', 'mu') is None


def test_drifts_are_paired_differences(record):
  mu = lambda name, contexts: profile_tables.find(record, name, contexts, 'mu')
  drifts = {row['setting']: row for row in record['drifts']}
  assert list(drifts) == record['sampled'] == ['T=1', 'T=0.5', 'T=0']
  assert drifts['T=1'] == {'setting': 'T=1', 'value': 0, 'low': 0, 'high': 0}
  expected = mu('T=0.5', 'own')['value'] - mu('T=0.5', 'T=1')['value']
  np.testing.assert_allclose(drifts['T=0.5']['value'], expected, atol=1e-6)
  assert drifts['T=0.5']['low'] < expected < drifts['T=0.5']['high']


def test_stretches_cover_the_output_once():
  entropies = np.arange(24.0).reshape(2, 12)
  found = profile_tables.stretch_rows(entropies, np.array([10, 4]), seed=0)
  covered = [(row['first'], row['last']) for row in found]
  # The last stretch would begin behind all texts' ends.
  assert covered == [(1, 1), (2, 3), (4, 4), (5, 6), (7, 7), (8, 9), (10, 10)]
  for row in found:
    cells = [
      entropies[text, place]
      for text, length in enumerate([10, 4])
      for place in range(row['first'] - 1, min(row['last'], length))
    ]
    assert row['num_tokens'] == len(cells)
    np.testing.assert_allclose(row['value'], np.mean(cells), rtol=1e-6)


def test_gains_are_differences_of_limits(record):
  assert record['vacuous'] == ['T=0']
  names = dict.fromkeys(row['curve'] for row in record['table'])
  assert list(names) == [
    f'{bound}({name})'
    for name in ('T=1', 'T=0.5')
    for bound in ('printed', 'run', 'run_context')
  ]
  assert [r['curve'] for r in record['gains']] == ['T=0.5'] * 3
  for row in record['gains']:
    ours, theirs = (
      curves.find(record['table'], f'run_context({name})', row['capacity'])['D']
      for name in ('T=0.5', 'T=1')
    )
    np.testing.assert_allclose(row['D'], ours - theirs, atol=1e-5)
    assert row['low'] <= row['D'] <= row['high']


def test_advice_is_for_the_change_that_adds_the_most(record):
  base, more = (
    curves.find(record['table'], f'run_context({name})', 5)
    for name in ('T=1', 'T=0.5')
  )
  said = profile_report.advice(record)
  assert said.startswith(
    f'At capacity 5 runs under T=1 are limited to {base["D"]:.2f} ['
  )
  assert f'T=0.5 adds {more["D"] - base["D"]:.2f} [' in said
  assert 'sample under T=0.5: at capacity' in said
  assert 'No entropy is left by T=0.' in said
  unsure = [{**row, 'low': -0.1} for row in record['gains']]
  said = profile_report.advice({**record, 'gains': unsure})
  assert 'None is sure to add anything.' in said
  assert 'sample under' not in said


def test_advice_is_for_a_sure_change_where_the_largest_is_not(record):
  rows = [row for row in record['gains'] if row['capacity'] == 5]
  unsure = {'curve': 'T=2', 'D': 9.0, 'low': -1.0, 'high': 19.0}
  said = profile_report.advice(
    {**record, 'gains': [*rows, {'capacity': 5, **unsure}]}
  )
  assert said.index('T=2 adds 9.00 [-1.00, 19.00]') < said.index('T=0.5 adds')
  assert 'sample under T=0.5: at capacity' in said


def test_tables_have_a_line_a_setting(record):
  lines = profile_report.kinds_text(record, 'mu2').splitlines()
  assert lines[1].split() == ['all', 'chat', 'code', 'poem']
  assert [line.split()[0] for line in lines[2:]] == record['sampled']
  # One prompt, of chat and of poem, has no interval.
  assert [line.count('[') for line in lines[2:]] == [2] * 3
  lines = profile_report.contexts_text(record).splitlines()
  assert [line.split()[0] for line in lines[2:]] == record['grid']
  assert lines[-1].split().count('-') == 2


def test_panels_show_what_the_record_has(record):
  panels = figures.FIGURES[entropy_profile.NAME](record).axes
  assert len(panels) == 6
  for axes in panels:
    assert axes.get_title()
    assert axes.get_xlabel() or axes.get_ylabel()
  limits = {line.get_label(): line for line in panels[4].lines}
  for name in ('T=1', 'T=0.5'):
    np.testing.assert_array_equal(
      limits[name].get_ydata(),
      [
        curves.find(record['table'], f'run_context({name})', n)['D']
        for n in measured.CAPACITIES
      ],
    )
  looks = {(x.get_linestyle(), x.get_marker()) for x in limits.values()}
  assert len(looks) == len(record['sampled'])


def write_task(folder):
  """Writes a model of ours and prompts of two kinds."""
  config = reference_checkpoint.CASES['tied'] | {'vocab_size': 258}
  reference_checkpoint.save_model(folder / 'model', config)
  lines = [
    json.dumps({'id': text, 'kind': kind, 'prompt': text})
    for kind, text in [('a', 'Why?'), ('a', 'zzz'), ('b', 'x = x + 1')]
  ]
  (folder / 'prompts.jsonl').write_text('\n'.join(lines))


def run(folder):
  done = commands.run(
    entropy_profile.NAME,
    model=folder / 'model',
    prompts=folder / 'prompts.jsonl',
    results_dir=folder,
    run_name='small',
    top_k=9,
    temperatures='0.2',
    cuts='top_p=0.5',
    capacities='1,4',
    max_new_tokens=6,
    max_length=64,
  )
  assert done.returncode == 0, done.stderr
  return done.stdout


def test_the_command_leaves_its_files_and_takes_up_its_stages(tmp_path):
  write_task(tmp_path)
  out = run(tmp_path)
  folder = tmp_path / entropy_profile.NAME / 'small'
  assert {path.name for path in folder.iterdir()} == {
    'arrays.npz',
    'figure.pdf',
    'figure.png',
    'record.json',
    'texts',
  }
  record = records.load_record(folder / 'record.json')
  sampled = ['T=1,top_k=9', 'T=0.2,top_k=9', 'T=1,top_k=9,top_p=0.5']
  assert record['sampled'] == sampled
  assert record['grid'] == [
    *sampled[::2],
    sampled[1],
    'T=0.2,top_k=9,top_p=0.5',
  ]
  assert profile_report.advice(record) in out
  assert profile_report.contexts_text(record) in out
  with np.load(folder / 'arrays.npz') as file:
    for name in sampled:
      num_tokens = file[f'own/{name}/num_tokens']
      entropies = file[f'own/{name}/entropy']
      row = profile_tables.find(record, name, 'own', 'mu')
      expected = pooled(entropies, num_tokens, range(3))
      np.testing.assert_allclose(row['value'], expected, rtol=1e-5)
  # The figure is of the record alone.
  figure = figures.FIGURES[entropy_profile.NAME](record)
  figure_files.save(figure, tmp_path / 'again')
  for suffix in ('png', 'pdf'):
    again = (tmp_path / f'again.{suffix}').read_bytes()
    assert again == (folder / f'figure.{suffix}').read_bytes()
  stages = {
    path: path.stat().st_mtime_ns for path in folder.glob('texts/*/stages/*')
  }
  assert len(stages) == len(sampled) * 2 + 1
  run(tmp_path)
  assert stages == {path: path.stat().st_mtime_ns for path in stages}
