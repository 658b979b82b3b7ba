"""Levels of a hand-made run against loops over its iterations."""

import jax.numpy as jnp
import numpy as np
import pytest
import reference_measured as measured

from experiments import levels
from specjax.theory import entropy, prices, run_bounds

WANTED = [3, 5]
COUNTS = np.array([[1, 1, 1, 1, 1, 1], [0, 3, 1, 0, 2, 0]]).T


@pytest.fixture(scope='module')
def arrays():
  return measured.arrays()


def find(arrays):
  return levels.find(
    arrays,
    'lookup',
    measured.CAPACITIES,
    WANTED,
    measured.LIMIT,
    measured.SEED,
  )


@pytest.fixture(scope='module')
def found(arrays):
  """Name -> level, of all prompts and of a resample."""
  return {k: np.asarray(v(COUNTS)) for k, v in find(arrays).items()}


def iterations(arrays, run, counts):
  """Every iteration that a resample draws: its row, place and depth."""
  for row, count in enumerate(counts):
    for step in range(arrays[f'{run}/num_steps'][row]):
      place, depth = (
        arrays[f'{run}/{k}'][row, step] for k in ('place', 'depth')
      )
      yield from [(row, place, depth)] * count


def loops(arrays, capacity, counts):
  """The levels of runs, written out."""
  lookup, oracle = f'lookup-{capacity}', f'oracle_run-{capacity}'
  index = measured.CAPACITIES.index(capacity)
  lengths = np.minimum(measured.NUM_TOKENS, measured.LIMIT)
  steps = lambda run: list(iterations(arrays, run, counts))
  value = lambda run: np.mean(
    [arrays['oracle/value'][row, place, index] for row, place, _ in steps(run)]
  )
  won = [
    min(depth + 1, measured.NUM_TOKENS[row] - place)
    for row, place, depth in steps(lookup)
  ]
  return {
    'oracle_run': lengths @ counts / len(steps(oracle)),
    'oracle_at(oracle_run)': value(oracle),
    'oracle_at(lookup)': value(lookup),
    'won_at(lookup)': np.mean(won),
    'lookup': lengths @ counts / len(steps(lookup)),
  }


def test_levels_of_runs_are_sums_over_their_iterations(arrays, found):
  for i, capacity in enumerate(WANTED):
    for j, counts in enumerate(COUNTS.T):
      for name, expected in loops(arrays, capacity, counts).items():
        np.testing.assert_allclose(found[name][i, j], expected, rtol=1e-5)


def test_the_printed_bound_is_that_of_the_tokens_drawn(arrays, found):
  for j, counts in enumerate(COUNTS.T):
    places = [
      (row, place)
      for row, count in enumerate(counts)
      for place in [*range(min(measured.NUM_TOKENS[row], measured.LIMIT))]
      * count
    ]
    mu, mu2 = (
      np.mean([arrays[f'laws/{name}'][at] for at in places])
      for name in ('entropy', 'second_moment')
    )
    expected = 1 + (mu + mu2) * np.log(WANTED) / mu**2
    np.testing.assert_allclose(found['printed'][:, j], expected, rtol=1e-5)


def trees_at(arrays, lengths):
  """The trees at the places of runs, one after another."""
  places = [(r, t) for r, end in enumerate(lengths) for t in range(end)]
  values = [
    np.array([arrays[f'oracle/{name}'][place] for place in places])
    for name in ('p', 'notes', 'is_read')
  ]
  return prices.Trees(np.array([row for row, _ in places]), *values)


def test_older_runs_are_refused(arrays):
  older = {k: v for k, v in arrays.items() if k != 'oracle/notes'}
  with pytest.raises(ValueError, match='nodes of the best trees, got an older'):
    find(older)


def limits(arrays, vocab_size):
  """The limits of a job that knows its vocabulary."""
  names = ('surprisal', 'entropy', 'second_moment', 'top_log_p', 'top_tokens')
  laws = entropy.LawSummary(
    **{name: jnp.asarray(arrays[f'laws/{name}']) for name in names}
  )
  lengths = np.minimum(measured.NUM_TOKENS, measured.LIMIT)
  seed, sizes = measured.SEED, np.array(WANTED)[:, None]
  calls = {
    'run': run_bounds.run(laws.surprisal, lengths, WANTED, vocab_size, seed),
    'run_context': run_bounds.run_context(laws, lengths, WANTED, seed),
    'run_priced': prices.run_priced(trees_at(arrays, lengths), 6, WANTED, seed),
  }
  rate = lambda each: (lengths @ COUNTS) / (np.asarray(each) @ COUNTS)
  return {name: np.minimum(rate(each), sizes) for name, each in calls.items()}


def test_limits_are_those_of_a_job_that_knows_its_vocabulary(arrays, found):
  for name, expected in limits(arrays, 49152).items():
    np.testing.assert_allclose(found[name], expected, rtol=1e-5)


def test_levels_come_from_above(found):
  assert list(found) == [
    'printed',
    'run',
    'run_context',
    'run_priced',
    'oracle_run',
    'oracle_at(oracle_run)',
    'oracle_at(lookup)',
    'won_at(lookup)',
    'lookup',
  ]
  assert (found['run'] <= np.array(WANTED)[:, None]).all()


def test_starts_behind_a_parting_are_left_out(arrays):
  parted = {k: v.copy() for k, v in arrays.items()}
  parted['lookup-5/tokens'][0, 0] += 1
  got = find(parted)['won_at(lookup)'](COUNTS[:, :1])[1, 0]
  steps = list(iterations(arrays, 'lookup-5', COUNTS[:, 0]))
  won = [
    min(depth + 1, measured.NUM_TOKENS[row] - place)
    for row, place, depth in steps
    if row > 0 or place == 0
  ]
  np.testing.assert_allclose(got, np.mean(won), rtol=1e-6)


@pytest.mark.parametrize('name', ['oracle', 'oracle_run-5', 'lookup-3'])
def test_what_was_not_measured_is_named(arrays, name):
  others = {k: v for k, v in arrays.items() if not k.startswith(f'{name}/')}
  with pytest.raises(ValueError, match=f"a run that measured '{name}'"):
    find(others)
