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

`n` chips that share out a model have a part of every matrix each, see `part`,
and so of all that is read and computed.  `2 L + 1` times a pass they add up
what they have of the rows' vectors: behind the embedding, every attention and
every feed-forward (M. Shoeybi et al., arXiv 1909.08053).  For a sum that takes
the least traffic a chip sends

  sent = 2 (n - 1) / n * (2 L + 1) * b N E v

bytes a pass, at the speed of its links; a sum also takes its time however
little is sent, which makes for

  seconds = ... + sent / link + (2 L + 1) * seconds of a sum.

What chips tell one another to choose tokens from their parts of the logits is
left out: a score and an index for every node.
"""

from typing import NamedTuple

import numpy as np

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
  """What a pass has to do on each chip, all of one shape.

  Attributes:
    read: bytes from its memory.
    flops: multiplications and additions.
    sent: bytes to other chips.
    sums: how often chips add up their parts.
  """

  read: np.ndarray
  flops: np.ndarray
  sent: np.ndarray
  sums: np.ndarray


class Machine(NamedTuple):
  """What does the work: each of the chips that share out a model.

  Attributes:
    bandwidth: of its memory, bytes a second.
    peak: operations a second.
    overhead: seconds of a pass beside reading, computing and sending.
    link: what it can send, bytes a second.
    sum_seconds: of a sum over the chips, however little is sent.
    blend: one of `BLENDS`.
  """

  bandwidth: float
  peak: float
  overhead: float = 0.0
  link: float = np.inf
  sum_seconds: float = 0.0
  blend: str = 'max'


class Spent(NamedTuple):
  """Where the time of a pass would go, each part on its own, in seconds.

  Attributes:
    overhead: beside the other three.
    reading: from memory.
    computing: at the peak.
    sending: to other chips and adding up.
  """

  overhead: np.ndarray
  reading: np.ndarray
  computing: np.ndarray
  sending: np.ndarray


def part(sizes: Sizes, num_chips: int) -> Sizes:
  """Returns the sizes of what each chip has of a model that several share out.

  Heads, inner columns of the feed-forward and tokens are shared out equally.
  Where a number of them does not divide every chip has all: so it is with keys
  and values, weights and cache, of more chips than heads, in `llama.split`.

  Args:
    sizes: of the model.
    num_chips: `n`, that share it out.
  """
  share = lambda count: count if count % num_chips else count // num_chips
  return sizes._replace(
    ffn_width=share(sizes.ffn_width),
    num_heads=share(sizes.num_heads),
    num_kv_heads=share(sizes.num_kv_heads),
    vocab_size=share(sizes.vocab_size),
  )


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
  num_chips: int = 1,
) -> Work:
  """Returns what a pass has to do on each chip; see the head of this file.

  Args:
    sizes: of the model.
    num_nodes: `[...]`, `N` nodes of a row.
    batch: `[...]`, `b` rows.
    context: `[...]`, `S` tokens of a row before the nodes.
    num_logits: `[...]`, `M` nodes of a row at which the head runs.
    num_chips: `n`, that share out the model.
  """
  num_nodes, batch, context, num_logits = np.broadcast_arrays(
    *(np.asarray(x, float) for x in (num_nodes, batch, context, num_logits))
  )
  own = part(sizes, num_chips)
  head = own.vocab_size * own.width
  weights = num_weights(own)
  queries = own.num_layers * own.num_heads * own.head_dim
  seen = context + num_nodes
  multiplied = (weights - head) * num_nodes + head * num_logits
  attended = queries * num_nodes * seen
  vectors = sizes.width * sizes.value_bytes * batch * num_nodes
  sums = np.full_like(vectors, 2 * sizes.num_layers + 1) * (num_chips > 1)
  return Work(
    read=weights * own.weight_bytes + _row_bytes(own) * batch * seen,
    flops=batch * (2 * multiplied + 4 * attended),
    sent=2 * (num_chips - 1) / num_chips * sums * vectors,
    sums=sums,
  )


def spent(machine: Machine, done: Work) -> Spent:
  """Returns where the time of passes would go; see the head of this file.

  Args:
    machine: what does the work.
    done: the work, `[...]`.
  """
  return Spent(
    overhead=np.full_like(done.read, machine.overhead),
    reading=done.read / machine.bandwidth,
    computing=done.flops / machine.peak,
    sending=done.sent / machine.link + done.sums * machine.sum_seconds,
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
  combine = np.maximum if machine.blend == 'max' else np.add
  parts = spent(machine, done)
  return (
    parts.overhead + combine(parts.reading, parts.computing) + parts.sending
  )


def _row_bytes(sizes):
  """Bytes of keys and values of one token."""
  entries = 2 * sizes.num_layers * sizes.num_kv_heads * sizes.head_dim
  return entries * sizes.value_bytes
