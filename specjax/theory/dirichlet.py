"""The random environment that draws a Dirichlet law at every node.

Gamma variables of shapes `a_i`, divided by their sum.  `Gamma(a)` is `Gamma(a +
1) U^(1/a)` for a uniform U, and the logarithm of `Gamma(a + 1)` is a smooth
function of the normal variable of equal rank.  A polynomial gives it to 1e-5:
rejection, the usual way, would stall array code.
"""

import flax
import jax
import jax.numpy as jnp
import numpy as np
from scipy import special

from specjax.theory import entropy as entropy_lib
from specjax.theory import environment
from specjax.theory import offers as offers_lib

# Of the polynomial in a normal variable; float32 ones stay below 5.5.
_DEGREE = 18
_LARGEST_NORMAL = 5.6


@flax.struct.dataclass
class Dirichlet:
  """An `environment.Environment` with a new law at every node.

  Attributes:
    concentration: `[V]` positive, the shapes `a`.
    coefficients: `[K, V]` of the polynomials, the highest power first.
  """

  concentration: jax.Array
  coefficients: jax.Array

  @property
  def vocab_size(self) -> int:
    """`V`."""
    return self.concentration.shape[0]

  @property
  def bytes_to_read(self) -> int:
    """Measured on compiled programs, with something to spare."""
    return 10 * self.concentration.dtype.itemsize * self.vocab_size

  def root(self, key: jax.Array) -> environment.State:
    """Draws the state of a start."""
    return environment.State(
      key=environment.root_bits(key), regime=jnp.zeros((), jnp.int32)
    )

  def log_law(self, state: environment.State) -> jax.Array:
    """Returns the law `[V]` after a node."""
    shape, dtype = self.concentration.shape, self.concentration.dtype
    # Two numbers that are no token.
    key_normal, key_boost = (
      jax.random.wrap_key_data(environment.hashed(state.key, shape[0] + use))
      for use in range(2)
    )
    normal = jax.random.normal(key_normal, shape, dtype) / _LARGEST_NORMAL
    boost = jax.random.exponential(key_boost, shape, dtype) / self.concentration
    return jax.nn.log_softmax(jnp.polyval(self.coefficients, normal) - boost)

  def child(
    self, state: environment.State, token: jax.Array
  ) -> environment.State:
    """Returns the state of a node's child."""
    return state.replace(key=environment.hashed(state.key, token))

  def offers(
    self,
    states: environment.State,
    costs: jax.Array,
    low: jax.Array,
    high: jax.Array,
  ) -> offers_lib.Offers:
    """Finds the children of nodes `[W]` that cost between two limits."""
    return offers_lib.of_rows(jax.vmap(self.log_law)(states), costs, low, high)

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


def make(concentration: np.ndarray) -> Dirichlet:
  """Returns the environment.

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
