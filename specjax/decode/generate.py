"""Generation as a library call: prompts in, texts and what happened out."""

import functools
from collections.abc import Callable, Sequence

import chex
import jax
import jax.numpy as jnp
import numpy as np

from specjax import parallel
from specjax import sampling as sampling_lib
from specjax import tokenizer as tokenizer_lib
from specjax.decode import (
  adaptive,
  baseline,
  capacity,
  devices,
  loop,
  phases,
  prefill,
  results,
  rules,
  transcript,
  watch,
)
from specjax.decode import rows as rows_lib
from specjax.draft import base
from specjax.llama import model as llama_model

# Iterations are recorded in multiples of this, so that near limits share a
# program.
_STEP_BUCKET = 32

# Iterations between two looks at the rows.
_CHUNK = 16


def generate(
  verifier: llama_model.Params,
  prompts: Sequence[Sequence[int]],
  *,
  eos_ids: tuple[int, ...],
  max_new_tokens: int,
  drafter: base.Drafter | None = None,
  sampling: sampling_lib.Sampling | None = None,
  seeds: Sequence[int] | None = None,
  max_length: int = 2048,
  batch_size: int = 8,
  layout: parallel.Layout | None = None,
  stops: Sequence[Sequence[str]] | None = None,
  stream_fn: watch.StreamFn | None = None,
  **how,
) -> list[results.Generation]:
  """Decodes a list of prompts, by speculation if there is a drafter.

  Args:
    verifier: the model.
    prompts: token ids, at least one each.
    eos_ids: tokens that end a text.
    max_new_tokens: most tokens of an output.
    drafter: proposes the trees; None decodes plainly.
    sampling: a row for each prompt; temperature 1 by default.
    seeds: one for each prompt; its index by default. A prompt's text depends
      on its own seed alone, and under the rule 'match' not on the drafter
      either.
    max_length: most tokens of prompt and output.
    batch_size: most rows decoded together; batches are made equally large.
    layout: devices that share out the rows of a batch; None for one device.
    stops: strings that end the text of each prompt.
    stream_fn: told the index of a prompt and what its text may go on with.
    **how: what else `decode` takes.

  Returns:
    A generation for each prompt, in their order.

  Raises:
    ValueError: what `prefill.read_prompts` or `decode` refuse, or lists of
      unequal length.
  """
  _check_stops(stops, len(prompts))
  verifier = parallel.spread(verifier, layout)
  batches = prefill.read_prompts(
    verifier,
    prompts,
    max_new_tokens=max_new_tokens,
    sampling=sampling,
    seeds=seeds,
    max_length=max_length,
    batch_size=batch_size,
    features=() if drafter is None else drafter.features,
    layout=layout,
  )
  found = []
  for batch in batches:
    first = len(found)
    found += decode(
      verifier,
      batch,
      eos_ids=eos_ids,
      drafter=drafter,
      stops=stops and stops[first : first + batch.num_prompts],
      stream_fn=stream_fn and _shifted(stream_fn, first),
      **how,
    )
  return found


def decode(
  verifier: llama_model.Params,
  batch: prefill.Batch,
  *,
  eos_ids: tuple[int, ...],
  drafter: base.Drafter | None = None,
  drafter_params: chex.ArrayTree = (),
  num_nodes: int | capacity.Menu = 1,
  rule: str = 'match',
  tokenizer: tokenizer_lib.Tokenizer | None = None,
  stops: Sequence[Sequence[str]] | None = None,
  stream_fn: watch.StreamFn | None = None,
  chunk: int = _CHUNK,
  progress_fn: Callable[[int], None] | None = None,
  is_timed: bool = False,
  keep_fn: Callable[[rows_lib.DecodeState], None] | None = None,
) -> list[results.Generation]:
  """Decodes a batch that was read, which can be decoded again.

  Args:
    verifier: the model.
    batch: the prompts.
    eos_ids: tokens that end a text.
    drafter: proposes the trees; None decodes plainly.
    drafter_params: what the drafter needs of its own.
    num_nodes: capacity `N`, nodes of a tree, the root included; or a menu, to
      choose from in each iteration, as `adaptive` does.
    rule: name of the verification rule, of `rules.named`; all but 'match' ask
      for drafts with their laws.
    tokenizer: makes the texts; None makes none.
    stops: strings that end the text of each prompt; a match that is complete
      before `min_new_tokens` tokens does not count.
    stream_fn: told a row and what its text may go on with; all that it is told
      of a row is its text.
    chunk: iterations between two looks at the rows; nothing depends on it but
      how often the callbacks are called.
    progress_fn: told how many tokens all rows have emitted since the last call.
    is_timed: whether to decode phase by phase, as `phases` does.
    keep_fn: told the rows in the end, to go on from.

  Returns:
    A generation for each prompt.

  Raises:
    ValueError: a capacity or a chunk below 1, an unknown rule, or one that asks
      for more than the drafter gives; texts without a tokenizer, or stop
      strings that are empty; phases without a drafter; a menu with phases,
      without a drafter or with another rule than 'match'.
  """
  is_adaptive = isinstance(num_nodes, capacity.Menu)
  if is_adaptive and (is_timed or drafter is None or rule != 'match'):
    raise ValueError(
      "expected a drafter, the rule 'match' and no is_timed with a menu, got "
      f'{drafter}, {rule!r} and {is_timed}'
    )
  if not is_adaptive and num_nodes < 1:
    raise ValueError(f'expected a capacity of at least 1 node, got {num_nodes}')
  if chunk < 1:
    raise ValueError(f'expected a chunk of at least 1, got {chunk}')
  if is_timed and drafter is None:
    raise ValueError('expected a drafter with is_timed, got None')
  rules.named(rule)
  transcripts = _transcripts(batch, tokenizer, stops, stream_fn)
  shared = parallel.spread((verifier, drafter_params), batch.layout)
  params = base.Params(*shared, batch.sampling)
  state = start(params, batch, drafter)
  if is_adaptive:
    params, state = adaptive.equip(params, state, num_nodes)
    run = _adaptive_runner(drafter, eos_ids, batch.layout)
  else:
    run = _runner(drafter, num_nodes, eos_ids, rule, batch.layout)
  timer = None
  if is_timed:
    timer = phases.Timer(drafter, num_nodes, eos_ids, rule)
    timer.warm_up(params, state)
    run = timer.run
  watcher = watch.Watch(transcripts, state, eos_ids, stream_fn, progress_fn)
  while not bool(jnp.all(state.is_done)):
    state = watcher.look(run(params, state, chunk))
  times = timer and timer.times()
  if keep_fn is not None:
    keep_fn(state)
  with_steps = drafter is not None
  return results.collect(state, transcripts, eos_ids, with_steps, times)


def start(
  params: base.Params, batch: prefill.Batch, drafter: base.Drafter | None
) -> rows_lib.DecodeState:
  """Returns the rows before their first iteration, for a loop to take.

  Args:
    params: verifier, the drafter's own and sampling parameters.
    batch: the prompts, which stay as they are.
    drafter: the drafter; None for plain decoding.
  """
  most_new = np.asarray(batch.limits) - np.asarray(batch.prefix.lengths)
  state = loop.start(
    batch.prefix,
    batch.limits,
    () if drafter is None else drafter.init(params, batch.prefix),
    prefill.round_up(max(int(most_new.max()), 1), _STEP_BUCKET),
  )
  # The batch is decoded again with other drafters, and the loop takes what it
  # is given.
  return jax.tree.map(jnp.copy, state)


@functools.lru_cache
def _runner(drafter, num_nodes, eos_ids, rule, layout):
  """Returns the loop as `(params, state, max_steps) -> state`."""
  if drafter is None:
    run = functools.partial(baseline.run, eos_ids=eos_ids)
  else:
    run = functools.partial(
      loop.run,
      drafter=drafter,
      num_nodes=num_nodes,
      eos_ids=eos_ids,
      rule=rule,
    )
  return _on(layout, run)


@functools.lru_cache
def _adaptive_runner(drafter, eos_ids, layout):
  """Returns the loop that chooses from a menu, as `_runner`."""
  run = functools.partial(adaptive.run, drafter=drafter, eos_ids=eos_ids)
  return _on(layout, run)


def _on(layout, run):
  return run if layout is None else functools.partial(devices.run, run, layout)


def _shifted(stream_fn, first):
  """Tells of the rows of a batch whose first prompt has this index."""
  return lambda row, text: stream_fn(first + row, text)


def _transcripts(batch, tokenizer, stops, stream_fn):
  """Returns the text of each prompt, still empty; None without a tokenizer."""
  if tokenizer is None:
    if stops is not None or stream_fn is not None:
      raise ValueError('expected a tokenizer with stops or stream_fn, got None')
    return [None] * batch.num_prompts
  _check_stops(stops, batch.num_prompts)
  stops = [()] * batch.num_prompts if stops is None else stops
  edits = batch.sampling.edits
  least = np.zeros_like(batch.limits) if edits is None else edits.min_new_tokens
  return [
    transcript.Transcript(tokenizer, stops[row], int(least[row]))
    for row in range(batch.num_prompts)
  ]


def _check_stops(stops, num_prompts):
  if stops is not None and len(stops) != num_prompts:
    raise ValueError(
      f'expected stop strings for each of {num_prompts} prompts, got '
      f'{len(stops)} lists of them'
    )
