"""Generation as a library call: prompts in, texts and what happened out."""

import dataclasses
import functools
from collections.abc import Callable, Sequence

import chex
import jax
import jax.numpy as jnp
import numpy as np

from specjax import sampling as sampling_lib
from specjax.decode import baseline, loop, prefill, rules
from specjax.draft import base
from specjax.llama import model as llama_model

# Iterations are recorded in multiples of this, so that near limits share a
# program.
_STEP_BUCKET = 32


@dataclasses.dataclass(frozen=True)
class Generation:
  """What came of one prompt.

  Attributes:
    tokens: output ids, the token that ended the text included.
    log_probs: `[len(tokens)]` log-probability of each under the verifier's
      sampled law, in nats (of temperature 1 where the temperature is 0).
    finish_reason: 'eos', or 'length' where a limit came first.
    steps: the iterations in their order, fields `[num_steps]`; None for plain
      decoding, where every iteration emits one token.
  """

  tokens: list[int]
  log_probs: np.ndarray
  finish_reason: str
  steps: loop.StepInfo | None


def generate(
  verifier: llama_model.Params,
  prompts: Sequence[Sequence[int]],
  *,
  eos_ids: tuple[int, ...],
  max_new_tokens: int,
  drafter: base.Drafter | None = None,
  drafter_params: chex.ArrayTree = (),
  num_nodes: int = 1,
  rule: str = 'match',
  sampling: sampling_lib.Sampling | None = None,
  seeds: Sequence[int] | None = None,
  max_length: int = 2048,
  batch_size: int = 8,
) -> list[Generation]:
  """Decodes a list of prompts, by speculation if there is a drafter.

  Args:
    verifier: the model.
    prompts: token ids, at least one each.
    eos_ids: tokens that end a text.
    max_new_tokens: most tokens of an output.
    drafter: proposes the trees; None decodes plainly.
    drafter_params: what the drafter needs of its own.
    num_nodes: capacity `N`, nodes of a tree, the root included.
    rule: name of the verification rule, of `rules.named`; all but 'match' ask
      for drafts with their laws.
    sampling: a row for each prompt; temperature 1 by default.
    seeds: one for each prompt; its index by default. A prompt's text depends
      on its own seed alone, and under 'match' not on the drafter either.
    max_length: most tokens of prompt and output.
    batch_size: most rows decoded together; batches are made equally large.

  Returns:
    A generation for each prompt, in their order.

  Raises:
    ValueError: what `prefill.read_prompts` refuses, a capacity below 1, an
      unknown rule, or one that asks for more than the drafter gives.
  """
  batches = prefill.read_prompts(
    verifier,
    prompts,
    max_new_tokens=max_new_tokens,
    sampling=sampling,
    seeds=seeds,
    max_length=max_length,
    batch_size=batch_size,
    features=() if drafter is None else drafter.features,
  )
  results = []
  for batch in batches:
    results += decode(
      verifier,
      batch,
      eos_ids=eos_ids,
      drafter=drafter,
      drafter_params=drafter_params,
      num_nodes=num_nodes,
      rule=rule,
    )
  return results


def decode(
  verifier: llama_model.Params,
  batch: prefill.Batch,
  *,
  eos_ids: tuple[int, ...],
  drafter: base.Drafter | None = None,
  drafter_params: chex.ArrayTree = (),
  num_nodes: int = 1,
  rule: str = 'match',
  chunk: int = 2**30,
  progress_fn: Callable[[int], None] | None = None,
) -> list[Generation]:
  """Decodes a batch that was read, which can be decoded again.

  Args:
    verifier: the model.
    batch: the prompts.
    eos_ids: tokens that end a text.
    drafter: proposes the trees; None decodes plainly.
    drafter_params: what the drafter needs of its own.
    num_nodes: capacity `N`.
    rule: name of the verification rule.
    chunk: iterations between two calls of `progress_fn`; the texts do not
      depend on it.
    progress_fn: told how many tokens all rows have emitted since the last call.

  Returns:
    A generation for each prompt.

  Raises:
    ValueError: a capacity or a chunk below 1, an unknown rule, or one that asks
      for more than the drafter gives.
  """
  if num_nodes < 1:
    raise ValueError(f'expected a capacity of at least 1 node, got {num_nodes}')
  if chunk < 1:
    raise ValueError(f'expected a chunk of at least 1, got {chunk}')
  rules.named(rule)
  params = base.Params(verifier, drafter_params, batch.sampling)
  if drafter is None:
    drafter_state = ()
    run = functools.partial(baseline.run, eos_ids=eos_ids)
  else:
    drafter_state = drafter.init(params, batch.prefix)
    run = functools.partial(
      loop.run,
      drafter=drafter,
      num_nodes=num_nodes,
      eos_ids=eos_ids,
      rule=rule,
    )
  lengths = np.asarray(batch.prefix.lengths)
  most_new = max(int((np.asarray(batch.limits) - lengths).max()), 1)
  state = loop.start(
    batch.prefix,
    batch.limits,
    drafter_state,
    prefill.round_up(most_new, _STEP_BUCKET),
  )
  # The batch is decoded again with other drafters; `run` takes what it is
  # given.
  state = jax.tree.map(jnp.copy, state)
  num_emitted = 0
  while not bool(jnp.all(state.is_done)):
    state = run(params, state, chunk)
    if progress_fn is not None:
      total = int(np.sum(np.asarray(state.lengths) - lengths))
      progress_fn(total - num_emitted)
      num_emitted = total
  with_steps = drafter is not None
  return _collect(state, lengths, batch.num_prompts, eos_ids, with_steps)


def _collect(state, prompt_lengths, num_prompts, eos_ids, with_steps):
  """Brings the first rows of a state to the host, one generation each."""
  fields = ('tokens', 'log_p', 'lengths', 'num_steps', 'steps')
  host = jax.device_get({name: getattr(state, name) for name in fields})
  results = []
  for row in range(num_prompts):
    output = slice(prompt_lengths[row], host['lengths'][row])
    tokens = host['tokens'][row, output].tolist()
    count = host['num_steps'][row]
    steps = jax.tree.map(lambda x, r=row, c=count: x[r, :c], host['steps'])
    results.append(
      Generation(
        tokens=tokens,
        log_probs=host['log_p'][row, output],
        finish_reason='eos' if tokens and tokens[-1] in eos_ids else 'length',
        steps=steps if with_steps else None,
      )
    )
  return results
