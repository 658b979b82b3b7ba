"""How many passes a run of the study takes at most, of which shapes.

They are counted as `experiments.study` goes through its batches, of `b` rows in
a copy of the model:

  prompts   a batch's prompts are read
  plain     a token a pass, to the end of the longest walk
  laws      prompts and outputs are read whole
  oracle    a tree of N nodes at every place, some of them together, each tree
            in N - 1 passes of two nodes
  runs      an iteration for every token, as if no draft were accepted
  drafts    of drafters that run a model: a pass a level of each tree, one to
            read what was accepted, and the prompts
"""

import functools
import math
from collections.abc import Mapping, Sequence

from experiments import draft_models, drafters, oracle_runs, recipes
from experiments.planning import groups, sources, study_flags, study_tasks
from specjax.decode import prefill
from specjax.llama import config as llama_config
from specjax.theory import roofline
from specjax.trees import rules

# What they are for.
KINDS = ('prompts', 'plain', 'laws', 'oracle', 'runs', 'drafts')

# Of published EAGLE-3 heads; the verifier's where that is smaller.
_HEAD_VOCAB = 32000


def count(
  experiment: str, flags: Mapping[str, str], task: study_tasks.Task
) -> list[study_tasks.Passes]:
  """Returns the passes of a run, at most.

  Args:
    experiment: of `study_flags.DEFAULTS`.
    flags: of the run, its defaults among them.
    task: the same.

  Raises:
    ValueError: flags that the experiment refuses.
    OSError: the file of a tree that cannot be read.
  """
  if experiment == 'entropy_profile':
    return _texts(task, 1) * num_settings(flags)
  capacities = study_flags.integers(flags['capacities'])
  names = study_flags.words(flags['drafters'])
  if experiment == 'speed_of_light':
    found = [recipes.MAIN_JOB[name] for name in names]
    return _study(task, flags, found, capacities)
  chosen = [study_flags.words(flags[name]) for name in ('trees', 'rules')]
  found = recipes.combine(names, *chosen)
  # At temperature 0 all rules are the same.
  matching = [recipe for recipe in found if recipe.rule == 'match']
  return [
    passes
    for temperature in study_flags.words(flags['temperatures'])
    for passes in _study(
      task, flags, found if float(temperature) else matching, capacities
    )
  ]


def num_settings(flags: Mapping[str, str]) -> int:
  """Returns how many settings `entropy_profile` samples texts under.

  Args:
    flags: of the run, its defaults among them.
  """
  temperatures = [
    flags['temperature'],
    *study_flags.words(flags['temperatures']),
  ]
  return len(set(map(float, temperatures))) + len(
    study_flags.words(flags['cuts'])
  )


def seconds(passes: study_tasks.Passes, group: groups.Group) -> float:
  """Returns the seconds of passes, by data sheets.

  Args:
    passes: of one shape.
    group: the chips that share out the model.
  """
  work = roofline.work(
    passes.sizes,
    passes.nodes,
    passes.rows,
    passes.context,
    passes.logits,
    group.num_chips,
  )
  return passes.number * float(roofline.seconds(groups.machine(group), work))


def total(
  found: Sequence[study_tasks.Passes], group: groups.Group
) -> dict[str, dict]:
  """Returns number and seconds of passes by kind.

  Args:
    found: of a run.
    group: the chips that share out its model.
  """
  of = {kind: [p for p in found if p.kind == kind] for kind in KINDS}
  return {
    'passes': {kind: sum(p.number for p in of[kind]) for kind in KINDS},
    'seconds': {
      kind: sum(seconds(p, group) for p in of[kind]) for kind in KINDS
    },
  }


def _study(task, flags, found, capacities):
  """Passes at one temperature."""
  runs = [
    passes
    for recipe in found
    for capacity in capacities
    if capacity > 1  # A tree of one node is plain decoding.
    for passes in _run(task, flags, recipe, capacity)
  ]
  return [*_texts(task, max(capacities)), _oracle(task, max(capacities)), *runs]


def _texts(task, largest):
  # Walks from the last place are followed as deep as the largest tree.
  length = task.max_new_tokens + largest - 1
  whole = {'nodes': task.context + length, 'context': 0, 'logits': length}
  num_batches = len(task.batches)
  return [
    task.passes(
      'prompts', num_batches, nodes=task.context, context=0, logits=0
    ),
    task.passes('plain', num_batches * length, nodes=1, logits=1),
    task.passes('laws', num_batches, **whole),
  ]


def _oracle(task, capacity):
  together = prefill.round_up(oracle_runs.NUM_TREES, task.copies)
  trees = [size * task.max_new_tokens for size in task.batches]
  width = rules.best_first(capacity).width
  return task.passes(
    'oracle',
    sum(math.ceil(number / together) for number in trees) * (capacity - 1),
    rows=together // task.copies,
    nodes=width,
    logits=width,
  )


def _run(task, flags, recipe, capacity):
  num_batches = len(task.batches)
  steps = num_batches * task.max_new_tokens
  # A walk that accepts nothing asks for the law of the root alone.
  verified = task.passes('runs', steps, nodes=capacity, logits=1)
  sizes = _draft_sizes(recipe.drafter, task.group.sizes, flags)
  if sizes is None:
    return [verified]
  levels = drafters.num_levels(recipe.tree, capacity)
  # All nodes but the last have to be read to know the others.
  width = math.ceil((capacity - 1) / levels)
  of_model = functools.partial(task.passes, 'drafts', sizes=sizes)
  return [
    verified,
    of_model(num_batches, nodes=task.context, context=0, logits=0),
    of_model(steps * levels, nodes=width, logits=width),
    of_model(steps, nodes=1, logits=0),
  ]


def _draft_sizes(
  name: str, verifier: roofline.Sizes, flags: Mapping[str, str]
) -> roofline.Sizes | None:
  """The sizes of the model that a drafter runs, None for one without."""
  if name not in recipes.MODELS:
    return None
  if name == 'model':
    preset = study_flags.preset_of(flags['draft_model'])
    config = llama_config.PRESETS[preset]
    return sources.sizes_of(config, *verifier[-2:])
  if name == 'eagle':
    vocab_size = min(verifier.vocab_size, _HEAD_VOCAB)
    return verifier._replace(num_layers=1, vocab_size=vocab_size)
  if name == 'layer_skip':
    skipped = flags.get('skipped_layers')
    kept = draft_models.kept_layers(
      verifier.num_layers, skipped and study_flags.integers(skipped)
    )
    return verifier._replace(num_layers=len(kept))
  return verifier
