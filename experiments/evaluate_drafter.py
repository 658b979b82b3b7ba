"""How good is a drafter, and is that what its distance to the verifier says?

Claim: of a drafter's best trees a doubling of capacity buys `log 2 / (H + KL)`
tokens, where a perfect drafter gets `log 2 / H`: what a drafter wins is told by
how far its laws are from the verifier's.

  launch/run.sh evaluate_drafter                  under 10 min on 2 cores
  launch/run.sh evaluate_drafter --quick          under 2 min
  launch/run.sh evaluate_drafter --drafter=model --draft_model=FOLDER

One drafter stands beside prompt lookup and the oracle, at each of
--temperatures: `D` against capacity, of all prompts and by kind, and acceptance
by depth.  Of a drafter that is a model the laws along the verifier's own texts
are measured too: KL(p || q), and how often what it says comes.  From these
moments `theory.drafting` predicts its curve; the verifier, dulled to each of
--yardsticks, shows how far such predictions can be trusted.

Writes results/evaluate_drafter/<run>/: figure.png and figure.pdf, and
record.json with the tables.
"""

import functools
import sys
from collections.abc import Sequence

import jax.numpy as jnp
import tqdm
from absl import flags

from experiments import (
  common,
  draft_flags,
  draft_models,
  drafters,
  model_flags,
  number_flags,
  recipes,
  records,
  studies,
)
from experiments.evaluation import one_temperature, report
from specjax.checkpoint import packaged

FLAGS = flags.FLAGS

_DRAFTER = flags.DEFINE_string(
  'drafter',
  None,
  f'The drafter that is evaluated, of {", ".join(recipes.NAMES)}; eagle where '
  'a head comes with the model, else bigram, if none.',
)
_TREE = flags.DEFINE_string(
  'tree', None, 'Its tree, see acceptance --trees; what suits it if none.'
)
_YARDSTICKS = number_flags.define_floats(
  'yardsticks',
  [0.5, 2.0],
  'Mean KL(p || q) at temperature 1, in nats, of dulled verifiers beside it.',
)

NAME = 'evaluate_drafter'

# What of the flags is in the names of stages, or what they hold of it.
_NAMED = (
  'drafter',
  'tree',
  'yardsticks',
  'temperatures',
  'eagle',
  'draft_model',
)


def main():
  """Measures, sums up, writes, and says what came out."""
  model = model_flags.load(NAME)
  prompts, ids = common.load_prompts(
    model.tokenizer, FLAGS.prompts, FLAGS.prompts_per_kind, FLAGS.max_length
  )
  check_capacities(FLAGS.capacities)
  recipe = find_recipe(_DRAFTER.value, _TREE.value, model.name)
  candidates = _candidates(recipe, model, ids)
  draftings = {name: found.drafting for name, found in candidates.items()}
  folder = common.open_run(NAME)
  record = records.new_record(NAME, common.flag_values())
  found = {}
  for temperature in FLAGS.temperatures:
    tqdm.tqdm.write(f'temperature {temperature:g}', file=sys.stderr)
    study = studies.open_at(
      model, ids, draftings, temperature, folder, apart_from=_NAMED
    )
    rows = one_temperature.tables_of(
      study,
      model.params,
      candidates,
      drafter=recipe.name,
      kinds=[prompt.kind for prompt in prompts],
      seed=FLAGS.seed,
    )
    for table, its_rows in rows.items():
      label = {'temperature': temperature}
      found.setdefault(table, []).extend(row | label for row in its_rows)
  records.finish_record(
    folder,
    record,
    found.pop('table'),
    drafter=recipe.name,
    has_law=candidates[recipe.name].model is not None,
    **found,
  )
  report.show(records.load_record(folder / 'record.json'), folder)


def check_capacities(capacities: Sequence[int]) -> None:
  """Refuses capacities that no slope can be fitted to.

  Args:
    capacities: rising.

  Raises:
    ValueError: fewer than two, or that of plain decoding among them.
  """
  if capacities[0] == 1 or len(capacities) < 2:
    raise ValueError(
      'expected two or more --capacities above 1, to fit a slope, got '
      f'{",".join(map(str, capacities))}'
    )


def find_recipe(
  drafter: str | None, tree: str | None, verifier: str
) -> recipes.Recipe:
  """Returns the drafter that is evaluated, with its tree.

  Args:
    drafter: its name; None for `eagle` if a head comes with the verifier, else
      `bigram`.
    tree: None for that which suits it: of models the best trees, which the
      formula is about.
    verifier: name of the model.

  Raises:
    ValueError: an unknown name, or a tree that does not go with the drafter.
  """
  drafter = drafter or ('eagle' if packaged.find(verifier) else 'bigram')
  if tree is None:
    of_bigram = 'best_first' if drafter == 'bigram' else ''
    tree = 'best_paths' if drafter in recipes.MODELS else of_bigram
  recipe = recipes.Recipe(drafter, tree)
  if reason := recipes.refusal(recipe):
    raise ValueError(reason)
  return recipe


def _candidates(recipe, model, ids) -> dict[str, one_temperature.Candidate]:
  """Builds lookup, the drafter and the dulled verifiers, by name."""
  corpus = common.corpus(model.tokenizer)
  load = functools.partial(
    draft_models.load, verifier=model, prompts=ids, dtype=jnp.dtype(FLAGS.dtype)
  )

  def make(recipe, models):
    drafting = drafters.make(
      recipe,
      model.params,
      corpus,
      max_nodes=max(FLAGS.capacities),
      eos_ids=model.tokenizer.eos_ids,
      models=models,
    )
    return one_temperature.Candidate(drafting, models.get(recipe.drafter))

  own = load([recipe.drafter], **draft_flags.of_models())
  found = {
    'lookup': make(recipes.Recipe('lookup'), {}),
    recipe.name: make(recipe, own),
  }
  for divergence in _YARDSTICKS.value:
    dulled = load(['dulled'], dulled_kl=divergence)
    best = recipes.Recipe('dulled', 'best_paths')
    found[f'dulled_{divergence:g}'] = make(best, dulled)
  return found


if __name__ == '__main__':
  draft_flags.define('temperatures', *draft_flags.MODELS)
  common.run(
    main,
    defaults={
      'prompts_per_kind': 1,
      'capacities': [4, 16, 64],
      'max_new_tokens': 16,
    },
    quick={
      'max_new_tokens': 8,
      'capacities': [4, 16],
      'yardsticks': [1.0],
    },
    shared=[
      *model_flags.SHARED_FLAGS,
      *('prompts', 'prompts_per_kind', 'top_k', 'top_p'),
      *('min_p', 'capacities', 'max_new_tokens', 'max_length', 'batch_size'),
      *('seed', 'quick'),
    ],
  )
