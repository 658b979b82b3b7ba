import jax
import numpy as np
import pytest
import reference_theory as reference

from specjax.theory import iid_bounds, laws, process, renewal

DYADIC = np.array([0.5, 0.25, 0.25])
SPAN = np.log(2.0)


def test_lattice_law_is_exact_at_every_size():
  env = laws.fixed(DYADIC)
  curve = renewal.on_grid(*renewal.steps(env), 12.0, SPAN)
  sizes = np.arange(1, 5001)
  optimum = reference.optimum(DYADIC, 5000)
  np.testing.assert_allclose(
    renewal.mean_budget(curve, sizes), optimum, rtol=1e-6
  )
  # A finer grid of the same lattice has the same points.
  finer = renewal.on_grid(*renewal.steps(env), 12.0, SPAN / 4)
  np.testing.assert_allclose(finer.value[::4], curve.value, rtol=1e-6)
  np.testing.assert_allclose(finer.size[::4], curve.size, rtol=1e-6)


def test_lattice_corrections():
  env = laws.fixed(DYADIC)
  mu, mu2 = env.moments()
  curve = renewal.on_grid(*renewal.steps(env), 14.0, SPAN)
  t = curve.t[-1]
  value = t / mu + (mu2 + SPAN * mu) / (2 * mu**2)
  np.testing.assert_allclose(curve.value[-1], value, atol=1e-5)
  size = SPAN * np.exp(t) / (mu * -np.expm1(-SPAN))
  np.testing.assert_allclose(curve.size[-1], size, rtol=1e-4)
  sizes = np.arange(1000, 20000, 7)
  np.testing.assert_allclose(
    iid_bounds.sharp_lattice(mu, mu2, sizes, SPAN),
    renewal.mean_budget(curve, sizes),
    atol=2e-3,
  )


def test_uniform_law():
  curve = renewal.on_grid([np.log(3.0)], [1.0], 8.0, np.log(3.0))
  depths = np.arange(len(curve.t)) + 1
  np.testing.assert_allclose(curve.value, depths, rtol=1e-9)
  np.testing.assert_allclose(curve.size, (3.0**depths - 1) / 2, rtol=1e-6)


@pytest.mark.parametrize(('step', 'error'), [(1e-2, 1e-3), (1e-3, 1e-4)])
def test_law_off_the_lattice_at_all_sizes(step, error):
  env = laws.fixed(reference.ZIPF)
  curve = renewal.on_grid(*renewal.steps(env), 12.0, step)
  optimum = reference.optimum(reference.ZIPF, 20000)
  found = renewal.mean_budget(curve, np.arange(1, 20001))
  np.testing.assert_allclose(found, optimum, atol=error)
  mu, mu2 = env.moments()
  limit = curve.t[-1] / mu + mu2 / (2 * mu**2)
  np.testing.assert_allclose(curve.value[-1], limit, atol=5e-3)
  np.testing.assert_allclose(
    curve.size[-1] * mu, np.exp(curve.t[-1]), rtol=0.02
  )


@pytest.mark.parametrize(
  'rows',
  [
    reference.ZIPF[None],
    reference.PEAKED[None],
    np.random.default_rng(1).dirichlet(np.full(12, 0.3), 6),
    np.array([[1.0, 0.0, 0.0], [0.1, 0.4, 0.5]]),
  ],
)
def test_sampled_walks_agree_with_the_grid(rows):
  # Impossible tokens and repeated rows change nothing: one shape is compiled.
  rows = np.pad(rows, ((0, 0), (0, 50 - rows.shape[1])))
  env = laws.independent(np.resize(rows, (6, 50)))
  sample = process.sample(env, jax.random.key(0), 4000, 160, 1)
  surprisals = np.asarray(sample.texts.laws.surprisal)
  # Between the atoms of U, where a grid smears them.
  t = np.linspace(0.317, 5.3, 9)
  walks = renewal.from_walks(surprisals, t)
  exact = renewal.on_grid(*renewal.steps(env), 6.0, 1e-3)
  place = np.round(t / 1e-3).astype(int)
  positions = np.cumsum(surprisals, axis=1)[:, None]
  is_visited = positions <= t[:, None]
  for found, curve, each in (
    (walks.value, exact.value, is_visited),
    (walks.size, exact.size, is_visited * np.exp(np.minimum(positions, 9.0))),
  ):
    error = each.sum(axis=2).std(axis=0) / np.sqrt(len(positions))
    smear = curve[place + 2] - curve[place - 2]
    assert np.all(np.abs(found - curve[place]) <= 4 * error + smear + 1e-9)


def test_walks_count_the_root_and_ties():
  walks = np.array([[0.0, 1.0, 2.0], [1.0, 1.0, 1.5]])
  curve = renewal.from_walks(walks, np.array([0.0, 1.0, 2.5]))
  np.testing.assert_allclose(curve.value, [1.5, 2.5, 3.0])
  e = np.e
  size = [1.5, 1.5 + e, 1.5 + e + e**2 / 2]
  np.testing.assert_allclose(curve.size, size)


def test_bad_input_is_named():
  with pytest.raises(ValueError, match='past t = 2.0, got 1 of 2 that end'):
    renewal.from_walks(np.array([[1.0, 2.0], [1.0, 0.5]]), np.array([2.0]))
  with pytest.raises(ValueError, match='expected 0 < step <= limit'):
    renewal.on_grid([1.0], [1.0], 1.0, 0.0)
  with pytest.raises(ValueError, match='not sure'):
    renewal.on_grid(*renewal.steps(laws.fixed([1.0, 0.0])), 1.0, 0.1)
  with pytest.raises(ValueError, match='independent positions'):
    renewal.steps(laws.mixture(np.full((2, 2), 0.5)))
  curve = renewal.on_grid([1.0], [1.0], 3.0, 1.0)
  with pytest.raises(ValueError, match='raise its limit'):
    renewal.mean_budget(curve, np.array([1, 1000]))
