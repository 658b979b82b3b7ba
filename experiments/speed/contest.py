"""What is timed: prompts by kind, and our ways of decoding them."""

import functools
from collections.abc import Mapping, Sequence

import numpy as np

from experiments import drafters, identity
from experiments.speed import rounds
from specjax import sampling as sampling_lib
from specjax.checkpoint import resolve
from specjax.decode import adaptive, generate, prefill
from specjax.draft import base
from specjax.theory import planner

# What a capacity costs is measured once for all rounds, so it has to be right.
_MENU_REPEATS = 15


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
  is_adaptive: bool = False,
) -> list[rounds.Way]:
  """Returns plain decoding, and every drafter at every capacity.

  Args:
    model: the verifier.
    draftings: the drafters by name.
    capacities: sizes of trees; that of one node is plain decoding.
    temperature: of sampling.
    comparison: of the same prompts.
    is_adaptive: whether every drafter also takes part with the capacity chosen
      in each iteration, by what each costs when it decodes for the first time.
  """
  decode = functools.partial(
    generate.decode, model.params, eos_ids=model.tokenizer.eos_ids
  )
  found = [rounds.Way(planner.PLAIN, 1, functools.partial(_decode, decode))]
  sizes = [capacity for capacity in capacities if capacity > 1]
  for name, drafting in draftings.items():
    speculate = functools.partial(
      decode, drafter=drafting.drafter, drafter_params=drafting.params
    )
    go_on = functools.partial(
      comparison.decode_on, temperature=temperature, drafting=drafting
    )
    for size in sizes:
      run = functools.partial(
        _decode, functools.partial(speculate, num_nodes=size)
      )
      found.append(
        rounds.Way(name, size, run, functools.partial(go_on, num_nodes=size))
      )
    if is_adaptive:
      run = _adaptive(model, drafting, (1, *sizes), speculate)
      go_on = functools.partial(go_on, num_nodes=sizes[-1])
      name = f'{name}, adaptive'
      found.append(rounds.Way(name, sizes[-1], run, go_on, is_adaptive=True))
  return found


def _adaptive(model, drafting, capacities, speculate):
  """Decodes by what each capacity costs, which the first call measures."""
  menus = []

  def run(rows, batch):
    if not menus:
      params = base.Params(model.params, drafting.params, batch.sampling)
      state = generate.start(params, batch, drafting.drafter)
      menus.append(
        adaptive.measure(
          params,
          state,
          capacities,
          drafter=drafting.drafter,
          eos_ids=model.tokenizer.eos_ids,
          repeats=_MENU_REPEATS,
        )
      )
    return _decode(
      functools.partial(speculate, num_nodes=menus[0]), rows, batch
    )

  return run


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
