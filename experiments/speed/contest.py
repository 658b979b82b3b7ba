"""What is timed: prompts by kind, and our ways of decoding them."""

import functools
import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from experiments import drafters, identity
from experiments.speed import rounds
from specjax import sampling as sampling_lib
from specjax.checkpoint import resolve
from specjax.decode import generate, prefill
from specjax.theory import planner


def tasks(
  model: resolve.Checkpoint,
  ids: Sequence[Sequence[int]],
  kinds: Sequence[str],
  temperature: float,
  *,
  seed: int,
  max_new_tokens: int,
  max_length: int,
  batch_size: int,
  features: tuple[int, ...],
) -> list[rounds.Task]:
  """Returns the batches of prompts, none of which mixes kinds.

  Args:
    model: the verifier.
    ids: prompts as token ids, `P` of them.
    kinds: of each.
    temperature: of sampling.
    seed: of the prompts' own seeds.
    max_new_tokens: most tokens of an output.
    max_length: most tokens of prompt and output.
    batch_size: most prompts decoded together.
    features: layers whose inputs drafters want; see `drafters.features_of`.
  """
  seeds = np.random.SeedSequence(seed).generate_state(len(ids))
  found = []
  for kind in dict.fromkeys(kinds):
    of_kind = np.array([i for i, other in enumerate(kinds) if other == kind])
    read = functools.partial(
      prefill.read_prompts,
      model.params,
      [ids[i] for i in of_kind],
      max_new_tokens=max_new_tokens,
      sampling=sampling_lib.make(len(of_kind), temperature),
      seeds=seeds[of_kind],
      max_length=max_length,
      batch_size=batch_size,
      features=features,
    )
    groups = prefill.batch_rows(len(of_kind), batch_size)
    found += [
      rounds.Task(kind, of_kind[group], functools.partial(_one, read, number))
      for number, group in enumerate(groups)
    ]
  return found


def ways(
  model: resolve.Checkpoint,
  draftings: Mapping[str, drafters.Drafting],
  capacities: Sequence[int],
  temperature: float,
  comparison: identity.Comparison,
) -> list[rounds.Way]:
  """Returns plain decoding, and every drafter at every capacity.

  Args:
    model: the verifier.
    draftings: the drafters by name.
    capacities: sizes of trees; that of one node is plain decoding.
    temperature: of sampling.
    comparison: of the same prompts.
  """
  decode = functools.partial(
    generate.decode, model.params, eos_ids=model.tokenizer.eos_ids
  )
  found = [rounds.Way(planner.PLAIN, 1, functools.partial(_decode, decode))]
  pairs = itertools.product(draftings.items(), capacities)
  for (name, drafting), capacity in pairs:
    if capacity == 1:
      continue
    speculate = functools.partial(
      decode,
      drafter=drafting.drafter,
      drafter_params=drafting.params,
      num_nodes=capacity,
    )
    go_on = functools.partial(
      comparison.decode_on,
      temperature=temperature,
      drafting=drafting,
      num_nodes=capacity,
    )
    run = functools.partial(_decode, speculate)
    found.append(rounds.Way(name, capacity, run, go_on))
  return found


def _one(read, number):
  """Reads one of the batches of a kind."""
  [batch] = read(numbers=[number])
  return batch


def _decode(decode, rows, batch):
  del rows
  return [
    rounds.Output(
      result.tokens,
      len(result.tokens if result.steps is None else result.steps.start),
    )
    for result in decode(batch=batch)
  ]
