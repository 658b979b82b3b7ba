"""Programs whose sums may be taken in any order, which lets a CPU be fast.

A CPU adds the products of a row and a column eight at a time only if it may
add them in another order than they stand in.  XLA grants that to a whole
program by an option of its compilation, so whoever writes a product has to know
which program it will be part of.

The option is XLA's fast math with all that it can be denied.  Infinities, NaN,
quotients and functions stay what they are, but a zero may come out with either
sign, and `x - x` and `0 x` are 0 even of an infinite x.  A CPU that can add
sixteen at a time is allowed that, too.
"""

import contextvars
import functools
from collections.abc import Callable

import jax

_OPTIONS = {
  'xla_cpu_enable_fast_math': True,
  'xla_cpu_fast_math_honor_division': True,
  'xla_cpu_fast_math_honor_functions': True,
  'xla_cpu_fast_math_honor_infs': True,
  'xla_cpu_fast_math_honor_nans': True,
  'xla_cpu_prefer_vector_width': 512,  # bits; 256 where it is not given
}

_may_reorder = contextvars.ContextVar('may_reorder', default=False)


def jit(fn: Callable, **options: object) -> Callable:
  """Compiles a function as `jax.jit` does; for a CPU it may reorder sums.

  As a part of a program that is compiled otherwise it is as that one is.

  Args:
    fn: the function.
    **options: of `jax.jit`, but for `compiler_options`.

  Returns:
    The compiled function, with the method `lower`.
  """

  @functools.wraps(fn)
  def reordering(*args, **kwargs):
    token = _may_reorder.set(_is_on_cpu())
    try:
      return fn(*args, **kwargs)
    finally:
      _may_reorder.reset(token)

  @functools.cache
  def whole():
    # Not before the first call: to ask for the backend is to choose it.
    chosen = _OPTIONS if _is_on_cpu() else None
    return jax.jit(reordering, compiler_options=chosen, **options)

  part = jax.jit(fn, **options)

  @functools.wraps(fn)
  def call(*args, **kwargs):
    leaves = jax.tree.leaves((args, kwargs))
    is_part = any(isinstance(leaf, jax.core.Tracer) for leaf in leaves)
    return (part if is_part else whole())(*args, **kwargs)

  call.lower = lambda *args, **kwargs: whole().lower(*args, **kwargs)
  return call


def may_reorder() -> bool:
  """Whether what is traced now is part of a program of `jit` for a CPU."""
  return _may_reorder.get()


def _is_on_cpu():
  return jax.default_backend() == 'cpu'
