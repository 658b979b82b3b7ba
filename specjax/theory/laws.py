"""Environments: the law that stands at every node of a branching random walk.

An environment is a frozen struct with three methods, written for one node:

  root(key) -> State           the state of a start; the key is consumed
  log_law(state) -> [V]        log-probabilities after the node, in nats
  child(state, token) -> State

and `moments()`, its `mu` and `mu2`, exact.  What is random about a child is
drawn from its parent's key and its token, so whoever comes back to a node, by
whatever way, finds the law that was there before.

`Regimes` has finitely many laws and a rule for which one comes next.  It serves
for one fixed law, prompts that each keep their own, measured laws drawn at
random, and sources that switch.  `Dirichlet` draws a new law at every node.
"""

import flax
import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from specjax.theory import entropy as entropy_lib

# Squarings of a transition matrix: 2^40 steps are a long run.
_NUM_SQUARINGS = 40
# Of the polynomial in a normal variable; float32 ones stay below 5.5.
_DEGREE = 18
_LARGEST_NORMAL = 5.6


@flax.struct.dataclass
class State:
  """All that the future of a node depends on.

  Attributes:
    key: `[2]` uint32, data of the PRNG key of the node and all below it.
    regime: `[]` int32, which of the environment's laws stands here.
  """

  key: jax.Array
  regime: jax.Array


@flax.struct.dataclass
class Regimes:
  """Finitely many laws, of which one stands at each node.

  Attributes:
    log_p: `[G, V]` the laws.
    initial: `[G]` chance of each at a start, cumulated.
    switch: `[G, G]`, row g the chances after regime g, cumulated; `[1, G]` if
      they are the same after all; None if a start keeps its regime for ever.
  """

  log_p: jax.Array
  initial: jax.Array
  switch: jax.Array | None

  def root(self, key: jax.Array) -> State:
    """Draws the state of a start."""
    data = jax.random.key_data(key)
    return State(key=data, regime=self._draw(data, self.initial))

  def log_law(self, state: State) -> jax.Array:
    """Returns the law `[V]` after a node."""
    return self.log_p[state.regime]

  def child(self, state: State, token: jax.Array) -> State:
    """Returns the state of a node's child."""
    if self.switch is None:
      return state
    data = _child_key(state.key, token)
    row = jnp.minimum(state.regime, self.switch.shape[0] - 1)
    return State(key=data, regime=self._draw(data, self.switch[row]))

  def moments(self) -> entropy_lib.Moments:
    """Returns `mu` and `mu2` over the positions of a long run."""
    share = _long_run(self.initial, self.switch)
    log_p = np.asarray(self.log_p, np.float64)
    surprisal = -np.where(np.isneginf(log_p), 0.0, log_p)
    weights = share[:, None] * np.exp(log_p)
    return entropy_lib.Moments(
      mu=np.sum(weights * surprisal), mu2=np.sum(weights * surprisal**2)
    )

  def _draw(self, data, cumulated):
    if cumulated.shape[0] == 1:
      return jnp.zeros((), jnp.int32)
    # A number that is no token.
    key = jax.random.wrap_key_data(_child_key(data, self.log_p.shape[1]))
    uniform = jax.random.uniform(key, dtype=cumulated.dtype)
    regime = jnp.searchsorted(cumulated[:-1], uniform, side='right')
    return regime.astype(jnp.int32)


@flax.struct.dataclass
class Dirichlet:
  """A new law at every node, drawn from a Dirichlet law.

  Gamma variables of shapes `a_i`, divided by their sum.  `Gamma(a)` is
  `Gamma(a + 1) U^(1/a)` for a uniform U, and the logarithm of `Gamma(a + 1)` is
  a smooth function of the normal variable of equal rank.  A polynomial gives it
  to 1e-5: rejection, the usual way, would stall array code.

  Attributes:
    concentration: `[V]` positive, the shapes `a`.
    coefficients: `[K, V]` of the polynomials, the highest power first.
  """

  concentration: jax.Array
  coefficients: jax.Array

  def root(self, key: jax.Array) -> State:
    """Draws the state of a start."""
    return State(key=jax.random.key_data(key), regime=jnp.zeros((), jnp.int32))

  def log_law(self, state: State) -> jax.Array:
    """Returns the law `[V]` after a node."""
    shape, dtype = self.concentration.shape, self.concentration.dtype
    # Two numbers that are no token.
    key_normal, key_boost = (
      jax.random.wrap_key_data(_child_key(state.key, shape[0] + use))
      for use in range(2)
    )
    normal = jax.random.normal(key_normal, shape, dtype) / _LARGEST_NORMAL
    boost = jax.random.exponential(key_boost, shape, dtype) / self.concentration
    return jax.nn.log_softmax(jnp.polyval(self.coefficients, normal) - boost)

  def child(self, state: State, token: jax.Array) -> State:
    """Returns the state of a node's child."""
    return state.replace(key=_child_key(state.key, token))

  def moments(self) -> entropy_lib.Moments:
    """Returns `mu` and `mu2` over the laws.

    A token drawn from a drawn law has `p ~ Beta(a_i + 1, A - a_i)` with
    probability `a_i / A`, `A = sum a`; the moments of the logarithm of a Beta
    variable are differences of polygamma functions.
    """
    a = np.asarray(self.concentration, np.float64)
    total = a.sum()
    mean = special.digamma(total + 1.0) - special.digamma(a + 1.0)
    variance = special.polygamma(1, a + 1.0)
    variance = variance - special.polygamma(1, total + 1.0)
    return entropy_lib.Moments(
      mu=np.sum(a * mean) / total, mu2=np.sum(a * (variance + mean**2)) / total
    )


Environment = Regimes | Dirichlet


def uniform(size: int) -> np.ndarray:
  """Returns the law `[V]` with `p_i = 1 / V`."""
  return np.full(size, 1.0 / size)


def geometric(ratio: float, size: int) -> np.ndarray:
  """Returns the law `[V]` with `p_i` proportional to `ratio^i`."""
  return _normalised(float(ratio) ** np.arange(size))


def zipf(exponent: float, size: int) -> np.ndarray:
  """Returns the law `[V]` with `p_i` proportional to `(i + 1)^-exponent`."""
  return _normalised(np.arange(1.0, size + 1.0) ** -exponent)


def fixed(p: np.ndarray) -> Regimes:
  """Returns the environment with one law `[V]` at every node.

  Raises:
    ValueError: `p` is no law.
  """
  return mixture(np.asarray(p)[None])


def mixture(p: np.ndarray, weights: np.ndarray | None = None) -> Regimes:
  """Returns prompts that each have one law for ever.

  Args:
    p: `[G, V]` laws.
    weights: `[G]` share of the prompts of each law; equal if None.

  Raises:
    ValueError: a row is no law.
  """
  return _regimes(p, _or_equal(weights, len(p)), None)


def independent(p: np.ndarray, weights: np.ndarray | None = None) -> Regimes:
  """Returns the random environment that draws a row anew at every node.

  With the rows that a model gave at sampled positions it is the empirical law
  of next-token laws.

  Args:
    p: `[G, V]` laws.
    weights: `[G]` chance of each; equal if None.

  Raises:
    ValueError: a row is no law.
  """
  weights = _or_equal(weights, len(p))
  return _regimes(p, weights, weights[None])


def switching(
  p: np.ndarray, transition: np.ndarray, initial: np.ndarray | None = None
) -> Regimes:
  """Returns the source whose regimes are a Markov chain, whatever the tokens.

  Args:
    p: `[G, V]` law of each regime.
    transition: `[G, G]`, row g the chances of the regime after g.
    initial: `[G]` chances of the first regime; equal if None.

  Raises:
    ValueError: a row is no law.
  """
  return _regimes(p, _or_equal(initial, len(p)), transition)


def dirichlet(concentration: np.ndarray) -> Dirichlet:
  """Returns the random environment of Dirichlet laws.

  Args:
    concentration: `[V]` positive.

  Raises:
    ValueError: a concentration is not positive.
  """
  a = np.asarray(concentration, np.float64)
  if a.ndim != 1 or not np.all((a > 0.0) & np.isfinite(a)):
    raise ValueError(f'expected positive concentrations [V], got {a}')
  distinct, place = np.unique(a, return_inverse=True)
  fits = np.stack([_log_gamma_polynomial(shape + 1.0) for shape in distinct], 1)
  return Dirichlet(
    concentration=jnp.asarray(a, float),
    coefficients=jnp.asarray(fits[:, place], float),
  )


def _log_gamma_polynomial(shape):
  """Returns `[K]`: the log quantile of Gamma(shape) at a normal variable."""

  def log_quantile(x):
    normal = x * _LARGEST_NORMAL
    below = special.gammaincinv(shape, special.ndtr(np.minimum(normal, 0.0)))
    above = special.gammainccinv(shape, special.ndtr(-np.maximum(normal, 0.0)))
    return np.log(np.where(normal < 0.0, below, above))

  fit = np.polynomial.chebyshev.chebinterpolate(log_quantile, _DEGREE)
  return np.polynomial.chebyshev.cheb2poly(fit)[::-1]


def _child_key(data, number):
  key = jax.random.wrap_key_data(data)
  return jax.random.key_data(jax.random.fold_in(key, number))


def _regimes(p, initial, transition):
  p = _checked('laws', p)
  return Regimes(
    log_p=jnp.log(jnp.asarray(p, float)),
    initial=_cumulated('initial chances', initial),
    switch=(
      None if transition is None else _cumulated('transitions', transition)
    ),
  )


def _checked(name, p):
  p = np.asarray(p, np.float64)
  if not (np.all(p >= 0.0) and np.allclose(p.sum(axis=-1), 1.0, atol=1e-5)):
    raise ValueError(f'expected {name} >= 0 of sum 1, got {p}')
  return _normalised(p)


def _cumulated(name, p):
  return jnp.asarray(np.cumsum(_checked(name, p), axis=-1), float)


def _long_run(initial, switch):
  """Returns `[G]`: the share of each regime in a long run."""
  share = np.diff(np.asarray(initial, np.float64), prepend=0.0)
  if switch is None:
    return share
  transition = np.diff(np.asarray(switch, np.float64), prepend=0.0)
  if len(transition) == 1:
    return transition[0]
  # A chain that stays where it is every other step has the same long run, and
  # no period.
  transition = (transition + np.eye(len(share))) / 2.0
  for _ in range(_NUM_SQUARINGS):
    transition = _normalised(transition @ transition)
  return share @ transition


def _or_equal(weights, size):
  return np.asarray(uniform(size) if weights is None else weights)


def _normalised(p):
  return p / np.sum(p, axis=-1, keepdims=True)
