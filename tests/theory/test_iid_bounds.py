import jax.numpy as jnp
import numpy as np
import pytest
import reference_theory as reference
from hypothesis import given, settings
from hypothesis import strategies as st

from specjax.theory import iid_bounds

BOUNDS = (
  iid_bounds.printed,
  iid_bounds.lorden,
  iid_bounds.lorden_dual,
  iid_bounds.achievable,
  iid_bounds.sharp,
)


@pytest.mark.parametrize('arity', [2, 3, 7])
def test_optimum_for_uniform_laws_is_linear_between_complete_trees(arity):
  curve = reference.optimum(np.full(arity, 1 / arity), 200)
  n = np.arange(8)
  sizes = (arity ** (n + 1) - 1) // (arity - 1)
  expected = np.interp(np.arange(1, 201), sizes, n + 1)
  np.testing.assert_allclose(curve, expected, rtol=1e-9)
  # The lattice asymptote is exact here up to O(1 / N).
  span = np.log(arity)
  lattice = iid_bounds.sharp_lattice(span, span**2, np.arange(1, 201), span)
  np.testing.assert_array_less(
    np.abs(lattice - curve)[9:] * np.arange(10, 201), 3.0
  )


def test_optimum_for_the_zipf_law():
  sizes = np.array([2, 5, 17, 61, 257, 1025, 4097, 20000])
  curve = reference.optimum(reference.ZIPF, 20000)
  expected = [1.4290, 1.8473, 2.3661, 2.8978, 3.5155, 4.1261, 4.7276, 5.4138]
  np.testing.assert_allclose(curve[sizes - 1], expected, atol=5e-5)
  sharp = iid_bounds.sharp(*reference.moments(reference.ZIPF), sizes)
  np.testing.assert_allclose(sharp[-3:], expected[-3:], atol=0.02)


def test_sharp_is_reached_slowly_by_the_peaked_law():
  curve = reference.optimum(reference.PEAKED, 4097)
  sharp = iid_bounds.sharp(*reference.moments(reference.PEAKED), 4097)
  np.testing.assert_allclose(curve[-1], 11.63, atol=5e-3)
  np.testing.assert_allclose(sharp, 11.27, atol=5e-3)


@settings(max_examples=25, deadline=None)
@given(
  seed=st.integers(0, 10**6),
  vocab=st.integers(1, 20),
  concentration=st.floats(0.05, 5.0),
)
def test_order_of_bounds_for_random_laws_at_every_capacity(
  seed, vocab, concentration
):
  law = np.random.default_rng(seed).dirichlet(np.full(vocab, concentration))
  law = np.maximum(law, 1e-4) / np.sum(np.maximum(law, 1e-4))
  sizes = np.arange(1, 151)
  nodes = reference.node_probabilities(law, 400)
  curve = np.cumsum(nodes)[:150]
  mu, mu2 = reference.moments(law)
  lower = iid_bounds.achievable(mu, mu2, sizes)
  upper_dual = iid_bounds.lorden_dual(mu, mu2, sizes)
  upper = iid_bounds.lorden(mu, mu2, sizes)
  slack = 1e-4 * sizes  # float32, and mu near 0
  assert np.all(lower <= curve + slack)
  assert np.all(curve <= upper_dual + slack)
  assert np.all(upper_dual <= upper + slack)
  for size in sizes[::10]:
    own = -np.log(nodes[size - 1])
    np.testing.assert_allclose(
      reference.exact_dual(nodes, size, own), curve[size - 1], rtol=1e-9
    )
    for t in np.linspace(0.0, -np.log(nodes[-1]), 7):
      dual = reference.exact_dual(nodes, size, t)
      counting = reference.exact_counting(nodes, size, t)
      assert curve[size - 1] <= dual + 1e-9 <= counting + 2e-9


def test_achievable_is_above_its_simpler_form():
  mu, mu2 = reference.moments(reference.ZIPF)
  sizes = np.arange(1, 300)
  simpler = (np.log(sizes) - np.log((mu + mu2) / mu**2)) / mu
  assert np.all(iid_bounds.achievable(mu, mu2, sizes) >= simpler)


def test_printed_has_the_papers_slope():
  mu, mu2 = reference.moments(reference.ZIPF)
  slope = iid_bounds.printed(mu, mu2, np.e) - 1.0
  np.testing.assert_allclose(slope, (mu + mu2) / mu**2, rtol=1e-5)
  assert slope > 1.0 / mu  # the optimum's


def test_lorden_fails_for_the_mean_over_starts_of_unlike_prompts():
  easy = np.array([0.97] + 30 * [0.001])
  hard = np.full(20, 0.05)
  nodes = [reference.node_probabilities(law, 3000) for law in (easy, hard)]
  optima = np.array([np.sum(n[:129]) for n in nodes])
  np.testing.assert_allclose(optima, [32.68, 2.27], atol=5e-3)
  np.testing.assert_allclose(optima.mean(), 17.47, atol=1e-2)
  mu, mu2 = np.mean([reference.moments(law) for law in (easy, hard)], axis=0)
  pooled = iid_bounds.lorden(mu, mu2, 129)
  np.testing.assert_allclose(pooled, 5.99, atol=5e-3)
  assert pooled < optima.mean()
  # Total tokens over total calls, at equal tokens a prompt, stays below.
  harmonic = 1.0 / np.mean(1.0 / optima)
  np.testing.assert_allclose(harmonic, 4.25, atol=5e-3)
  assert harmonic < pooled
  # The dual needs no i.i.d. positions: one t for both laws bounds the mean.
  for t in np.linspace(0.0, -np.log(max(n[-1] for n in nodes)), 30):
    duals = [reference.exact_dual(n, 129, t) for n in nodes]
    assert np.mean(duals) >= optima.mean() - 1e-9


@settings(max_examples=30, deadline=None)
@given(
  mu=st.one_of(st.just(0.0), st.floats(1e-6, 12.0)),
  ratio=st.floats(1.0, 1e3),
  capacity=st.sampled_from([1, 2, 3, 1000, 10**6]),
)
def test_no_bound_is_nan_and_limits_hold(mu, ratio, capacity):
  mu2 = ratio * mu**2
  values = [float(fn(mu, mu2, capacity)) for fn in BOUNDS]
  values.append(float(iid_bounds.sharp_lattice(mu, mu2, capacity, 1.0)))
  assert not np.any(np.isnan(values))
  assert all(value >= 1.0 for value in values)
  assert all(value <= capacity for value in values[1:3] + values[4:])
  if capacity == 1:
    assert values[:3] == [1.0, 1.0, 1.0]


def test_bounds_broadcast():
  mu = jnp.array([0.0, 1.0, 2.0])[:, None]
  for fn in BOUNDS:
    assert fn(mu, 2.0 * mu**2, jnp.arange(1, 5)).shape == (3, 4)
