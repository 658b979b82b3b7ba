"""A model of the time of a pass: what it reads, what it computes, what it
waits for.

A pass of a Llama over `N` nodes in each of `b` rows, behind `S` tokens of
context, reads all weights once and the keys and values of every row, and
computes with every weight at every node:

  bytes = W w + 2 L K H v b (S + N)
  flops = 2 (W - V E) b N + 2 V E b M + 4 L Q H b N (S + N)

with `W` the weights of all matrices of the layers and of the head, `w` and `v`
the bytes of a weight and of a key's or value's entry, and `M` the nodes of a
row at which the head runs.  Norms, embeddings and activations are left out.

  seconds = overhead + max(bytes / bandwidth, flops / peak)   'max'
  seconds = overhead + bytes / bandwidth + flops / peak       'sum'

The first is the roofline of S. Williams, A. Waterman and D. Patterson,
"Roofline: an insightful visual performance model", 2009, where reading and
computing overlap; the second is for machines where they do not.

`n` chips that share every matrix read and compute a part each.  Twice a layer
they add up their parts of the rows' vectors, as a ring: every chip sends
`2 (n - 1) / n` times `b N E v` bytes, at the speed of its links.  What such a
step costs however little is sent belongs to the overhead.
"""

from typing import NamedTuple

import numpy as np
from scipy import optimize

BLENDS = ('max', 'sum')


class Sizes(NamedTuple):
  """Sizes of a Llama, as its configuration has them, and of its storage.

  Attributes:
    num_layers: `L`.
    width: `E`.
    ffn_width: `F`.
    num_heads: `Q`.
    num_kv_heads: `K`.
    head_dim: `H`.
    vocab_size: `V`.
    weight_bytes: of one weight, in the mean.
    value_bytes: of one entry of keys, values and activations.
  """

  num_layers: int
  width: int
  ffn_width: int
  num_heads: int
  num_kv_heads: int
  head_dim: int
  vocab_size: int
  weight_bytes: float = 2.0
  value_bytes: float = 2.0


class Work(NamedTuple):
  """What a pass has to do, all of one shape.

  Attributes:
    read: bytes from memory.
    flops: multiplications and additions.
    sent: bytes that chips which share the matrices have to add up.
  """

  read: np.ndarray
  flops: np.ndarray
  sent: np.ndarray


class Machine(NamedTuple):
  """What does the work.

  Attributes:
    bandwidth: of the memory of one chip, bytes a second.
    peak: operations a second of one chip.
    overhead: seconds of a pass beside reading, computing and sending.
    link: what a chip can send, bytes a second.
    num_chips: that share every matrix.
    blend: one of `BLENDS`.
  """

  bandwidth: float
  peak: float
  overhead: float = 0.0
  link: float = np.inf
  num_chips: int = 1
  blend: str = 'max'


class Fit(NamedTuple):
  """A machine that was inferred from measured times.

  Attributes:
    machine: the better of both blends.
    errors: by blend the root of the mean square of `model / measured - 1`.
  """

  machine: Machine
  errors: dict[str, float]


def num_weights(sizes: Sizes) -> int:
  """Returns `W`, the weights that a pass reads: layers and head.

  Args:
    sizes: of the model.
  """
  heads = 2 * (sizes.num_heads + sizes.num_kv_heads) * sizes.head_dim
  a_layer = sizes.width * (heads + 3 * sizes.ffn_width)
  return sizes.num_layers * a_layer + sizes.vocab_size * sizes.width


def kept_bytes(sizes: Sizes, batch: int, context: int) -> float:
  """Returns the bytes of memory of weights, embedding, keys and values.

  Args:
    sizes: of the model; its embedding is counted beside its head.
    batch: rows.
    context: tokens of a row.
  """
  weights = num_weights(sizes) + sizes.vocab_size * sizes.width
  return weights * sizes.weight_bytes + _row_bytes(sizes) * batch * context


def work(
  sizes: Sizes,
  num_nodes: np.ndarray,
  batch: np.ndarray,
  context: np.ndarray,
  num_logits: np.ndarray,
) -> Work:
  """Returns what a pass has to do; see the head of this file.

  Args:
    sizes: of the model.
    num_nodes: `[...]`, `N` nodes of a row.
    batch: `[...]`, `b` rows.
    context: `[...]`, `S` tokens of a row before the nodes.
    num_logits: `[...]`, `M` nodes of a row at which the head runs.
  """
  num_nodes, batch, context, num_logits = np.broadcast_arrays(
    *(np.asarray(x, float) for x in (num_nodes, batch, context, num_logits))
  )
  head = sizes.vocab_size * sizes.width
  weights = num_weights(sizes)
  queries = sizes.num_layers * sizes.num_heads * sizes.head_dim
  seen = context + num_nodes
  multiplied = (weights - head) * num_nodes + head * num_logits
  attended = queries * num_nodes * seen
  vector = sizes.width * sizes.value_bytes
  return Work(
    read=weights * sizes.weight_bytes + _row_bytes(sizes) * batch * seen,
    flops=batch * (2 * multiplied + 4 * attended),
    sent=2 * sizes.num_layers * vector * batch * num_nodes,
  )


def seconds(machine: Machine, done: Work) -> np.ndarray:
  """Returns the seconds of passes, `[...]`; see the head of this file.

  Args:
    machine: what does the work.
    done: the work, `[...]`.

  Raises:
    ValueError: an unknown blend.
  """
  if machine.blend not in BLENDS:
    raise ValueError(f'expected a blend of {BLENDS}, got {machine.blend!r}')
  chips = machine.num_chips
  reading = done.read / (chips * machine.bandwidth)
  computing = done.flops / (chips * machine.peak)
  sending = 2 * (chips - 1) / chips * done.sent / machine.link
  combine = np.maximum if machine.blend == 'max' else np.add
  return machine.overhead + combine(reading, computing) + sending


def fit(done: Work, measured: np.ndarray) -> Fit:
  """Infers overhead, bandwidth and peak of one chip from measured times.

  Least squares of `model / measured - 1`, none of the three below 0.  In a
  'max' the passes that are bound by computing are those of most operations a
  byte, so that all splits by intensity are tried.  A rate that no pass is bound
  by is infinite.  All passes read the weights, which only the keys and values
  of many rows and long contexts tell from an overhead.

  Args:
    done: the work of the passes, `[P]`.
    measured: `[P]` seconds.

  Returns:
    The machine with the blend that fits better, and the errors of both.

  Raises:
    ValueError: fewer than 4 passes, for 3 numbers, or times that are not
      positive.
  """
  measured = np.asarray(measured, float)
  if measured.ndim != 1 or len(measured) < 4 or not np.all(measured > 0):
    raise ValueError(
      f'expected positive times of 4 passes or more, got {measured}'
    )
  order = np.argsort(np.argsort(done.flops / done.read, kind='stable'))
  every = np.ones(len(measured), bool)
  splits = [order < count for count in range(len(measured) + 1)]
  candidates = {
    'max': [_solve(done, measured, is_read, ~is_read) for is_read in splits],
    'sum': [_solve(done, measured, every, every)],
  }
  best = {}
  for blend, found in candidates.items():
    machines = [machine._replace(blend=blend) for machine in found]
    best[blend] = min(machines, key=lambda m: error(m, done, measured))
  errors = {name: error(m, done, measured) for name, m in best.items()}
  return Fit(best[min(BLENDS, key=errors.get)], errors)


def error(machine: Machine, done: Work, measured: np.ndarray) -> float:
  """Returns the root of the mean square of `model / measured - 1`.

  Args:
    machine: the model.
    done: the work of the passes, `[P]`.
    measured: `[P]` seconds.
  """
  off = seconds(machine, done) / measured - 1
  return float(np.sqrt(np.mean(off**2)))


def _row_bytes(sizes):
  """Bytes of keys and values of one token."""
  entries = 2 * sizes.num_layers * sizes.num_kv_heads * sizes.head_dim
  return entries * sizes.value_bytes


def _solve(done, measured, is_read, is_computed):
  """Least squares where it is known which passes read and which compute."""
  columns = np.stack(
    [np.ones_like(measured), done.read * is_read, done.flops * is_computed],
    axis=1,
  )
  scale = np.maximum(columns.max(axis=0), 1e-300)
  relative = columns / scale / measured[:, None]
  found = optimize.nnls(relative, np.ones_like(measured))[0] / scale
  overhead, a_byte, a_flop = found
  rate = lambda cost: 1 / cost if cost > 0 else np.inf
  return Machine(rate(a_byte), rate(a_flop), float(overhead))
