"""How stored weights are multiplied: the only file that knows.

A matrix is stored as `storage` says; float16 is storage only, and computes in
float32, as blocks do.  What is fast on a CPU:

A few rows are multiplied by a matrix `[out, in]` in one loop that reads it
once, as fast as memory gives it, and takes blocks apart on its way.  It has to
add in another order than numbers stand in (see `programs`).  Where it may not,
that holds for one row alone, by a loop of XLA's own.  A loop computes its input
anew for every output, unless that is done before.

More rows are multiplied by a matrix in the cache, `[in, out]`, and each should
pass through the cache once.  A scan over layers copies every matrix out of its
stack, and since none of these copies needs another, XLA makes all of them
before the first product: too many for the cache.  So a matrix of a stack is an
`Entry`, which is read no sooner than its input is there.
"""

from collections.abc import Mapping
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from specjax import programs
from specjax.llama import storage

# Rows that one loop takes: for more, numbers that are summed outgrow registers.
_FEW_ROWS = 8

# Values of a head in blocks that are taken apart at a time: 4 MB.
_CHUNK = 2**20


class Entry(NamedTuple):
  """A matrix of a stack that is not read yet.

  Attributes:
    stack: `[L, in, out]`.
    number: int32 in `[0, L)`.
  """

  stack: storage.Stored | storage.Matrix
  number: jax.Array


def compute_dtype(dtype: jnp.dtype) -> jnp.dtype:
  """The type of activations that go with a type of weights.

  Args:
    dtype: of the weights.

  Returns:
    bfloat16 for bfloat16, else float32.
  """
  return jnp.bfloat16 if dtype == jnp.bfloat16 else jnp.float32


def entries(
  stacks: Mapping[str, storage.Stored | storage.Matrix], number: jax.Array
) -> dict[str, jax.Array | Entry]:
  """One layer's weights, of which the matrices are yet to be read.

  Args:
    stacks: of all layers, vectors `[L, size]` and matrices `[L, in, out]`.
    number: int32 of the layer.

  Returns:
    Vectors, and an `Entry` for each matrix.
  """
  return {
    name: Entry(stack, number) if stack.ndim == 3 else stack[number]
    for name, stack in stacks.items()
  }


def matmul(
  x: jax.Array,
  w: storage.Stored | storage.Matrix | Entry,
  after: jax.Array | None = None,
) -> jax.Array:
  """`x w`, summed in float32.

  Args:
    x: `[..., in]`, in the compute type of `w`.
    w: `[in, out]`.
    after: what an `Entry` waits for in place of `x`: the product before this
      one, where both have the same input.

  Returns:
    `[..., out]`, of the type of `x`.
  """
  w, number = w if isinstance(w, Entry) else (w, None)
  product = lambda: _product(x, w, number, after)
  if not isinstance(w, storage.Matrix):
    return product()
  loop = lambda: _loop(_computed(x), _entry(w.out_in, number)).astype(x.dtype)
  return _by_loop_or(product, loop, x)


def matmul_rows(x: jax.Array, w: storage.Stored) -> jax.Array:
  """`x wᵀ` for a matrix stored by output, kept in float32.

  Args:
    x: `[..., in]`, in the compute type of `w`.
    w: `[out, in]`.

  Returns:
    `[..., out]` float32.
  """
  if _is_row(x) or _is_for_loop(x):
    x = _computed(x)

  def multiply(part):
    product = lambda: _dot(x, storage.values(part).T)
    return _by_loop_or(product, lambda: _loop(x, part), x)

  if isinstance(w, storage.Blocks):
    return _by_chunks(multiply, w)
  return multiply(w)


def _by_loop_or(product_fn, loop_fn, x):
  """Multiplies `x` in a loop where that is fast, else by a product."""
  if not _is_for_loop(x):
    return product_fn()
  return lax.platform_dependent(cpu=loop_fn, default=product_fn)


def _product(x, w, number, after):
  """`x w` by XLA's own products."""
  w, is_turned = _choose(w, is_row=_is_row(x))
  if is_turned and _is_row(x):
    x = _computed(x)
  elif number is not None:
    number = _behind(number, x if after is None else after)
  w = storage.values(_entry(w, number))
  return _dot(x, w.T if is_turned else w).astype(x.dtype)


def _loop(x, w):
  """`x wᵀ` in float32, in one loop over the inputs for all rows.

  Memory gives more to who reads in several places at a time.
  """
  num_outputs, num_inputs = w.shape
  num_places = 2 if isinstance(w, storage.Blocks) else 4
  size = -(-num_outputs // num_places)
  places = range(0, size * num_places, size)
  # The last ones may overlap those before.
  starts = [min(place, num_outputs - size) for place in places]
  rows = x.reshape(-1, num_inputs).astype(jnp.float32)
  terms = [part * row for part in _parts(w, starts, size) for row in rows]
  sums = lax.reduce(
    terms,
    [jnp.float32(0)] * len(terms),
    lambda xs, ys: [x + y for x, y in zip(xs, ys, strict=True)],
    (1,),
  )
  late = [place - start for place, start in zip(places, starts, strict=True)]
  out = [
    jnp.concatenate(
      [
        part[skip:]
        for part, skip in zip(sums[row :: len(rows)], late, strict=True)
      ]
    )
    for row in range(len(rows))
  ]
  return jnp.stack(out).reshape(*x.shape[:-1], num_outputs)


def _parts(w, starts, size):
  """Gives some outputs of a matrix `[out, in]` from each start on, float32."""
  for start in starts:
    cut = lambda y, start=start: lax.slice_in_dim(y, start, start + size)
    yield storage.values(jax.tree.map(cut, w)).astype(jnp.float32)


def _entry(w, number):
  """Returns a matrix of a stack; one that is none as it is."""
  return w if number is None else jax.tree.map(lambda x: x[number], w)


def _choose(w, is_row):
  """Returns what is to be multiplied, and whether it is `[out, in]`."""
  if not isinstance(w, storage.Matrix):
    return w, False
  if is_row or w.in_out is None:
    return w.out_in, True
  return w.in_out, False


def _is_for_loop(x):
  """Whether a loop may take the rows; it is then fast on a CPU."""
  return programs.may_reorder() and x.size <= _FEW_ROWS * x.shape[-1]


def _is_row(x):
  return x.size == x.shape[-1]


def _computed(x):
  """Returns `x`, on a CPU as an array that is ready before it is used."""

  def by_branch():
    # The branch that is never taken keeps XLA from merging what makes `x` into
    # what uses it; an optimization_barrier would be removed before.
    return lax.cond(_false(x), jnp.zeros_like, lambda x: x, x)

  return lax.platform_dependent(cpu=by_branch, default=lambda: x)


def _behind(number, x):
  """Returns `number`, on a CPU no sooner than `x` is there."""

  def wait():
    return number + _false(x).astype(number.dtype)

  return lax.platform_dependent(cpu=wait, default=lambda: number)


def _false(x):
  """Compares one number of `x`, which it takes; XLA does not foresee it."""
  return x[(0,) * x.ndim] > jnp.inf


def _by_chunks(multiply_fn, w):
  """Returns products with all of `w`, some outputs after the other."""
  num_outputs, num_inputs = w.shape
  size = min(max(_CHUNK // num_inputs, 1), num_outputs)

  def chunk(start):
    cut = lambda y: lax.dynamic_slice_in_dim(y, start, size, axis=0)
    return multiply_fn(jax.tree.map(cut, w))

  def step(i, out):
    # The last chunk overlaps the one before.
    start = jnp.minimum(i * size, num_outputs - size)
    return lax.dynamic_update_slice_in_dim(out, chunk(start), start, axis=-1)

  lead = jax.eval_shape(chunk, 0).shape[:-1]
  out = jnp.zeros((*lead, num_outputs), jnp.float32)
  return lax.fori_loop(0, -(-num_outputs // size), step, out)


def _dot(x, w):
  return lax.dot_general(
    x,
    w.astype(x.dtype),
    (((x.ndim - 1,), (0,)), ((), ())),
    precision=lax.Precision.HIGHEST,
    preferred_element_type=jnp.float32,
  )
