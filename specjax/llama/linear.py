"""How stored weights are multiplied: the only file that knows.

A matrix is stored as `storage` says; float16 is storage only, and computes in
float32, as blocks do.  What is fast on a CPU:

A few rows are multiplied by a matrix `[out, in]` in a loop that reads it once,
as fast as memory gives it, and takes blocks apart on its way.  It has to add in
another order than numbers stand in (see `programs`).  Where it may not, that
holds for one row alone, by a loop of XLA's own.  A loop computes its input anew
for every output, unless that is done before.  Matrices of the same input share
a loop, for to start one on several cores takes time.  Twice as many rows take
two loops, of which the second finds most of the matrix in the cache.

More rows are multiplied by a matrix in the cache, `[in, out]`, and each should
pass through the cache once.  A scan over layers copies every matrix out of its
stack, and since none of these copies needs another, XLA makes all of them
before the first product: too many for the cache.  So a matrix of a stack is an
`Entry`, which is read no sooner than its input is there.
"""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from specjax import programs
from specjax.llama import storage

# Rows that a loop takes, and sums that it holds: more outgrow the registers.
_LOOP_ROWS = 8
_LOOP_SUMS = 32
# Places of the matrices that a loop reads at a time.
_NUM_PLACES = 4
# Rows for which loops are faster than a product.
_FEW_ROWS = 16

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
  x: jax.Array, w: storage.Stored | storage.Matrix | Entry
) -> jax.Array:
  """`x w`, summed in float32.

  Args:
    x: `[..., in]`, in the compute type of `w`.
    w: `[in, out]`.

  Returns:
    `[..., out]`, of the type of `x`.
  """
  [product] = matmuls(x, [w])
  return product


def matmuls(
  x: jax.Array, matrices: Sequence[storage.Stored | storage.Matrix | Entry]
) -> list[jax.Array]:
  """`x w` for several matrices, as `matmul`, in less time than one by one.

  Args:
    x: `[..., in]`, in the compute type of the matrices.
    matrices: `[in, out]` each, stored in the same order.
  """
  pairs = [w if isinstance(w, Entry) else (w, None) for w in matrices]

  def products():
    found = []
    for w, number in pairs:
      # One after the other, so that no matrix is read too soon.
      found.append(_product(x, w, number, after=found[-1] if found else x))
    return found

  def loop():
    stored = [_entry(w.out_in, number) for w, number in pairs]
    return [y.astype(x.dtype) for y in _loop(x, stored)]

  if not all(isinstance(w, storage.Matrix) for w, _ in pairs):
    return products()
  return _by_loop_or(products, loop, x)


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
    return _by_loop_or(product, lambda: _loop(x, [part])[0], x)

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
    number = _behind(number, after)
  w = storage.values(_entry(w, number))
  return _dot(x, w.T if is_turned else w).astype(x.dtype)


def _loop(x, matrices):
  """`x wᵀ` of each in float32, in loops over the inputs."""
  num_halves = _num_halves(matrices[0])
  if any(_num_halves(w) != num_halves for w in matrices):
    return [_loop(x, [w])[0] for w in matrices]
  rows = x.reshape(-1, x.shape[-1]).astype(jnp.float32)
  rows = _computed(_halves(rows, num_halves))
  if len(rows) <= _LOOP_ROWS:
    found = _sums(rows, matrices)
  else:
    starts = range(0, len(rows), _LOOP_ROWS)
    groups = [rows[start : start + _LOOP_ROWS] for start in starts]
    found = [
      jnp.concatenate([_sums(group, [w])[0] for group in groups])
      for w in matrices
    ]
  return [y.reshape(*x.shape[:-1], y.shape[-1]) for y in found]


def _sums(rows, matrices):
  """`rows wᵀ` of each, in one loop for all rows where registers suffice.

  Rows come as bytes of the matrices hold them, `[rows, halves, in / halves]`.
  Memory gives more to who reads in several places at a time.  They are as many
  pieces of the matrices, all of one size; the last of a matrix may overlap the
  one before.
  """
  sizes = [w.shape[0] for w in matrices]
  num_places = _NUM_PLACES
  if len(rows) > _LOOP_ROWS // 2:
    # Registers hold the numbers of a byte besides.
    num_places //= rows.shape[1]
  size = min(*sizes, -(-sum(sizes) // num_places))
  counts = [-(-num_outputs // size) for num_outputs in sizes]
  if len(matrices) > 1 and sum(counts) * len(rows) > _LOOP_SUMS:
    return [_sums(rows, [w])[0] for w in matrices]
  pieces = [piece for w in matrices for piece in _pieces(w, size)]
  terms = [
    sum(map(jnp.multiply, halves, row)) for halves in pieces for row in rows
  ]
  sums = lax.reduce(
    terms,
    [jnp.float32(0)] * len(terms),
    lambda xs, ys: [x + y for x, y in zip(xs, ys, strict=True)],
    (1,),
  )
  parts = iter(zip(*[iter(sums)] * len(rows), strict=True))  # of all rows each
  found = []
  for count, num_outputs in zip(counts, sizes, strict=True):
    *whole, last = (jnp.stack(next(parts)) for _ in range(count))
    last = last[:, count * size - num_outputs :]
    found.append(jnp.concatenate([*whole, last], axis=1))
  return found


def _pieces(w, size):
  """Gives a matrix `[out, in]` in float32, so many outputs at a time.

  Each comes as what one half of its bytes holds and the other, or whole.
  """
  num_outputs = w.shape[0]
  for place in range(0, num_outputs, size):
    start = min(place, num_outputs - size)
    cut = lambda y, start=start: lax.slice_in_dim(y, start, start + size)
    piece = jax.tree.map(cut, w)
    if _num_halves(w) == 1:
      yield [storage.values(piece).astype(jnp.float32)]
    else:
      yield [piece.half(number) for number in range(2)]


def _halves(rows, num_halves):
  """Returns the numbers that meet the same half of a byte side by side."""
  if num_halves == 1:
    return rows[:, None]
  blocked = rows.reshape(len(rows), -1, num_halves, storage.BLOCK // num_halves)
  return blocked.swapaxes(1, 2).reshape(len(rows), num_halves, -1)


def _num_halves(w):
  return w.num_halves if isinstance(w, storage.Blocks) else 1


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
