"""Next-token laws by name, and environments of finitely many laws.

`Regimes` has a table of laws and a rule for which one comes next.  It serves
for one fixed law, prompts that each keep their own, measured laws drawn at
random, and sources that switch.  `dirichlet` draws a new law at every node.
"""

import flax
import jax
import jax.numpy as jnp
import numpy as np

from specjax.theory import entropy as entropy_lib
from specjax.theory import environment
from specjax.theory import offers as offers_lib

# Squarings of a transition matrix: 2^40 steps are a long run.
_NUM_SQUARINGS = 40


@flax.struct.dataclass
class Regimes:
  """An `environment.Environment` of finitely many laws.

  Attributes:
    log_p: `[G, V]` the laws.
    edges: `[G, V]` nats, `-log_p` of each law in rising order.
    tokens: `[G, V]` int32, the tokens in that order.
    initial: `[G]` chance of each at a start, cumulated.
    switch: `[G, G]`, row g the chances after regime g, cumulated; `[1, G]` if
      they are the same after all; None if a start keeps its regime for ever.
  """

  log_p: jax.Array
  edges: jax.Array
  tokens: jax.Array
  initial: jax.Array
  switch: jax.Array | None

  @property
  def vocab_size(self) -> int:
    """`V`."""
    return self.log_p.shape[1]

  @property
  def bytes_to_read(self) -> int:
    """Measured on compiled programs, with something to spare."""
    return 100

  def root(self, key: jax.Array) -> environment.State:
    """Draws the state of a start."""
    return _draw(environment.root_bits(key), self.initial)

  def log_law(self, state: environment.State) -> jax.Array:
    """Returns the law `[V]` after a node."""
    return self.log_p[state.regime]

  def child(
    self, state: environment.State, token: jax.Array
  ) -> environment.State:
    """Returns the state of a node's child."""
    if self.switch is None:
      return state
    row = jnp.minimum(state.regime, self.switch.shape[0] - 1)
    return _draw(environment.hashed(state.key, token), self.switch[row])

  def offers(
    self,
    states: environment.State,
    costs: jax.Array,
    low: jax.Array,
    high: jax.Array,
  ) -> offers_lib.Offers:
    """Finds the children of nodes `[W]` that cost between two limits."""
    return offers_lib.of_sorted(
      self.edges, self.tokens, states.regime, costs, low, high
    )

  def moments(self) -> entropy_lib.Moments:
    """Returns `mu` and `mu2` over the positions of a long run."""
    share = _long_run(self.initial, self.switch)
    log_p = np.asarray(self.log_p, np.float64)
    surprisal = -np.where(np.isneginf(log_p), 0.0, log_p)
    weights = share[:, None] * np.exp(log_p)
    return entropy_lib.Moments(
      mu=np.sum(weights * surprisal), mu2=np.sum(weights * surprisal**2)
    )


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


def _draw(bits, cumulated):
  """Returns the state of a node with these random bits."""
  # The bits are a hash already: half of them are used as they are.  24 are all
  # that a float32 holds, and give both precisions the same regimes.
  uniform = (bits[1] >> 8).astype(cumulated.dtype) / 2**24
  regime = jnp.searchsorted(
    cumulated[:-1], uniform, side='right', method='scan_unrolled'
  )
  return environment.State(key=bits, regime=regime.astype(jnp.int32))


def _regimes(p, initial, transition):
  log_p = jnp.log(jnp.asarray(_checked('laws', p), float))
  tokens = jnp.argsort(-log_p, axis=1, stable=True).astype(jnp.int32)
  return Regimes(
    log_p=log_p,
    edges=-jnp.take_along_axis(log_p, tokens, axis=1),
    tokens=tokens,
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
