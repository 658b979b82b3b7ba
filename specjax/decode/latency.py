"""What an iteration costs: the loop itself, timed with drafts none of which
is accepted.

Such an iteration runs a pass over `N` nodes of each row, chooses one token and
commits it, as every iteration does at least; drafting costs nothing.  At `N =
1` it is a step of plain decoding.  Tokens behind the first cost a visit each:
the choice at one more node, and the head there, unless it ran at all at once.

Machines are noisy and their speed drifts: everything that is compared is timed
in turns, again and again, after it was compiled and has run once.
"""

import functools
import math
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from specjax import programs
from specjax import sampling as sampling_lib
from specjax.decode import baseline, loop, verify
from specjax.draft import base
from specjax.llama import model as llama_model
from specjax.trees import tree as tree_lib

# A token that no model emits.
_NO_TOKEN = -1

# Chance that the median of all that could be measured is within an interval.
_COVERAGE = 0.95

# Runs what it times once, and returns the seconds of a step.
Timer = Callable[[], float]


class Point(NamedTuple):
  """What a pass is run with.

  Attributes:
    num_nodes: `N` of each row.
    batch: `B` rows.
    context: tokens of each row before the nodes.
  """

  num_nodes: int
  batch: int
  context: int


class Timing(NamedTuple):
  """Measured seconds of `M` things.

  Attributes:
    median: `[M]`.
    low: `[M]` and
    high: `[M]`, an interval of at least 95 % for the median, from order
      statistics: it takes nothing for granted of how times are spread.
    first_quartile: `[M]` and
    third_quartile: `[M]`, between which half of the times lie.
  """

  median: np.ndarray
  low: np.ndarray
  high: np.ndarray
  first_quartile: np.ndarray
  third_quartile: np.ndarray


def pass_timer(
  verifier: llama_model.Params,
  point: Point,
  num_steps: int,
  temperature: float = 0.0,
  num_slots: int | None = None,
) -> Timer:
  """Returns a timer of iterations that accept no draft.

  Args:
    verifier: the model.
    point: nodes, rows and context.
    num_steps: iterations of a call, each one token further.
    temperature: of sampling.
    num_slots: of the cache; None for those that the tokens fill.

  Raises:
    ValueError: a number below 1, or a cache that is too small.
  """
  _check_positive(**point._asdict(), num_steps=num_steps)
  sampling = sampling_lib.make(point.batch, temperature)
  params = base.Params(verifier, (), sampling)
  size = point.context + 1 + num_steps
  if num_slots is None:
    num_slots = size
  if num_slots < size:
    raise ValueError(f'expected num_slots of at least {size}, got {num_slots}')
  start = lambda: _start(verifier, point, num_steps, num_slots)
  if point.num_nodes == 1:
    run = functools.partial(baseline.run, eos_ids=())
  else:
    run = functools.partial(
      loop.run, drafter=_HOPELESS, num_nodes=point.num_nodes, eos_ids=()
    )
  return lambda: _timed(lambda s: run(params, s, num_steps), start, num_steps)


def visit_timer(
  verifier: llama_model.Params,
  batch: int,
  num_nodes: int,
  num_steps: int,
  temperature: float = 0.0,
) -> Timer:
  """Returns a timer of visits: what a token behind the first takes.

  That is the choice at one more node of each row, and the head there, unless
  it runs at all nodes at once.

  Args:
    verifier: the model.
    batch: `B` rows.
    num_nodes: `N` of each.
    num_steps: visits of a call, one after the other as along a path.
    temperature: of sampling.

  Raises:
    ValueError: a number below 1.
  """
  _check_positive(batch=batch, num_nodes=num_nodes, num_steps=num_steps)
  sampling = sampling_lib.make(batch, temperature)
  hidden = llama_model.embed(verifier, jnp.ones(batch, jnp.int32))
  if verify.is_at_once(batch, num_nodes):
    run, first = _choose, llama_model.head(verifier, hidden)
  else:
    run, first = functools.partial(_visit, verifier), hidden
  return lambda: _timed(
    lambda x: run(sampling, x, num_steps), lambda: first, num_steps
  )


def interleave(
  timers: Sequence[Timer],
  num_rounds: int,
  seed: int,
  on_done: Callable[[], None] = lambda: None,
) -> np.ndarray:
  """Times everything in turns, each round in another order.

  Args:
    timers: `M` of them; each is called once before, to warm up.
    num_rounds: `R`.
    seed: of the orders.
    on_done: called after each of the `(R + 1) M` calls.

  Returns:
    `[R, M]` seconds.
  """
  rng = np.random.default_rng(seed)
  samples = np.empty((num_rounds, len(timers)))
  for timer in timers:
    timer()
    on_done()
  for row in samples:
    for place in rng.permutation(len(timers)):
      row[place] = timers[place]()
      on_done()
  return samples


def summarise(samples: np.ndarray) -> Timing:
  """Sums up what `interleave` measured.

  The median lies between the k-th smallest and the k-th largest of `R` times
  but for a chance of `2 P(Binomial(R, 1/2) < k)`.

  Args:
    samples: `[R, M]` seconds.

  Raises:
    ValueError: fewer than 6 rounds, which bound no median with that chance.
  """
  ordered = np.sort(samples, axis=0)
  num_rounds = len(ordered)
  chances = [
    math.comb(num_rounds, k) / 2**num_rounds for k in range(num_rounds)
  ]
  rank = int(np.sum(np.cumsum(chances) <= (1 - _COVERAGE) / 2)) - 1
  if rank < 0:
    raise ValueError(f'expected at least 6 rounds, got {num_rounds}')
  return Timing(
    np.median(ordered, axis=0),
    ordered[rank],
    ordered[-1 - rank],
    *np.quantile(ordered, [0.25, 0.75], axis=0),
  )


def _check_positive(**numbers):
  for name, number in numbers.items():
    if number < 1:
      raise ValueError(f'expected {name} of at least 1, got {number}')


def _propose(params, tokens, lengths, num_nodes):
  """Proposes chains of tokens that no model emits."""
  batch = tokens.shape[0]
  order = jnp.arange(num_nodes, dtype=jnp.int32)
  roots = base.last_tokens(tokens, lengths)[:, None]
  return base.Proposal(
    tree_lib.Tree(
      tokens=jnp.where(order == tree_lib.ROOT, roots, _NO_TOKEN),
      parents=jnp.broadcast_to(order - 1, (batch, num_nodes)),
      log_q=jnp.zeros((batch, num_nodes)),
      num_nodes=jnp.full(batch, num_nodes, jnp.int32),
    )
  )


_HOPELESS = base.stateless(_propose)


def _start(verifier, point, num_steps, num_slots):
  """Rows that have read a context of no meaning."""
  cache = llama_model.empty_cache(verifier, point.batch, num_slots)
  fill = lambda number: jnp.full(point.batch, number, jnp.int32)
  prefix = base.Prefix(
    tokens=jnp.zeros((point.batch, num_slots), jnp.int32),
    lengths=fill(point.context + 1),
    seeds=jnp.arange(point.batch, dtype=jnp.uint32),
    cache=cache.replace(length=fill(point.context)),
  )
  # Arrays that fields share could not be donated twice.
  return jax.tree.map(
    jnp.copy, loop.start(prefix, fill(num_slots), (), num_steps)
  )


@programs.jit
def _visit(verifier, sampling, hidden, num_steps):
  """Visits nodes one after the other; each waits for the token before."""
  logits_fn = functools.partial(llama_model.head, verifier)
  return _walk(logits_fn, sampling, hidden, num_steps)


@programs.jit
def _choose(sampling, logits, num_steps):
  """Visits nodes whose logits are there."""
  return _walk(lambda x: x, sampling, logits, num_steps)


def _walk(logits_fn, sampling, x, num_steps):
  """Rolls `x: [B, size]` by a token of its logits, again and again."""
  seeds = jnp.arange(x.shape[0], dtype=jnp.uint32)

  def step(place, x):
    places = jnp.full(seeds.shape, place, jnp.int32)
    tokens, _ = sampling_lib.draw(logits_fn(x), sampling, seeds, places)
    return jnp.roll(x, tokens[0], axis=1)

  return lax.fori_loop(0, num_steps, step, x)


def _timed(run, start, num_steps):
  """Returns the seconds of a step of a program that consumes its input."""
  state = jax.block_until_ready(start())
  begin = time.perf_counter()
  jax.block_until_ready(run(state))
  return (time.perf_counter() - begin) / num_steps
