"""Do verification rules emit tokens of the verifier's own law?

Claim: chi-square tests on laws of a real model find no difference, for any
rule; where a rule is told laws of drafts that are off by 5 %, they find it.

  launch/run.sh lossless                  under 3 min on 2 cores

The contexts are our prompts, each restricted to its most probable tokens; the
verifier without some layers drafts (see `law_tests`).  The laws are computed
once, and the texts of all seeds are made together.

Exit code 1 if a rule is found to differ, or false laws are not found out.
Writes results/lossless/<run>/record.json with the table.
"""

import functools
import sys
from collections.abc import Mapping, Sequence

import jax.numpy as jnp
import numpy as np
import tqdm
from absl import flags

from experiments import (
  common,
  draft_flags,
  draft_models,
  law_tests,
  model_flags,
  records,
)
from specjax.decode import rules

FLAGS = flags.FLAGS

NAME = 'lossless'

_SAMPLES = flags.DEFINE_integer(
  'samples', 20_000, 'Texts of each context, for every rule.', lower_bound=1000
)
_TOKENS = flags.DEFINE_integer(
  'tokens', 64, 'Most probable tokens that a context keeps.', lower_bound=2
)

# By how much the laws are off that a rule is told to see whether it is found.
_ERROR = 0.05

# P-values below mean that texts have another law.
_LEVEL = 1e-3


def main():
  """Makes texts, tests their law, writes, and says what came out."""
  model = model_flags.load(NAME)
  _, ids = common.load_prompts(
    model.tokenizer, FLAGS.prompts, FLAGS.prompts_per_kind, FLAGS.max_length
  )
  reader, drafter_params, _ = draft_models.layer_skip(
    model.params.config, FLAGS.skipped_layers
  )
  folder = common.open_run(NAME)
  record = records.new_record(NAME, common.flag_values())
  stages = records.Stages(
    folder, {**common.flag_values(), 'prompt_ids': records.digest(ids)}
  )
  read = functools.partial(
    law_tests.read, model.params, reader, drafter_params, ids, _TOKENS.value
  )
  found = stages.arrays('laws', read)
  contexts = [
    law_tests.Laws(*map(jnp.asarray, pair))
    for pair in zip(found['log_p'], found['log_q'], strict=True)
  ]
  # `match` does not look at what it is told.
  cases = [(rule, 0.0) for rule in rules.RULES]
  cases += [(rule, _ERROR) for rule in rules.RULES if rule != 'match']
  table = []
  for rule, error in tqdm.tqdm(cases, unit='rule'):
    compute = functools.partial(
      compare, contexts, rule, error, _SAMPLES.value, FLAGS.seed
    )
    arrays = stages.arrays(f'{rule}-{error:g}', compute)
    table.append(table_row(rule, error, arrays))
  records.finish_record(folder, record, table)
  print(table_text(table))
  print()
  print(sentence(table))
  if not all(row['is_as_expected'] for row in table):
    sys.exit(1)


def compare(
  contexts: Sequence[law_tests.Laws],
  rule: str,
  error: float,
  num_texts: int,
  seed: int,
) -> dict[str, np.ndarray]:
  """Makes texts of every context and compares them with its law.

  Args:
    contexts: `C` of them.
    rule: name of the verification rule.
    error: by how much the laws are off that it is told.
    num_texts: of each context.
    seed: of all.

  Returns:
    `statistic [C]` and `degrees [C]`, as of `law_tests.chi_square`.
  """
  first = np.random.SeedSequence(seed).generate_state(len(contexts))
  parts = []
  for laws, start in zip(contexts, first, strict=True):
    told = law_tests.told_off(laws.log_q, error) if error else laws.log_q
    texts = law_tests.sample(laws, told, rule, num_texts, start)
    parts.append(law_tests.chi_square(laws, np.asarray(texts)))
  statistic, degrees = zip(*parts, strict=True)
  return {'statistic': np.array(statistic), 'degrees': np.array(degrees)}


def table_row(
  rule: str, error: float, arrays: Mapping[str, np.ndarray]
) -> dict[str, object]:
  """Sums a rule's comparisons up.

  Args:
    rule: its name.
    error: by how much the laws were off that it was told.
    arrays: what `compare` returned.

  Returns:
    `rule`, `error`, `statistic`, `degrees`, `p_value`, and `is_as_expected`: a
    difference is found where the laws were off and nowhere else.
  """
  pairs = zip(arrays['statistic'], arrays['degrees'], strict=True)
  p_value = law_tests.p_value(list(pairs))
  return {
    'rule': rule,
    'error': error,
    'statistic': float(arrays['statistic'].sum()),
    'degrees': int(arrays['degrees'].sum()),
    'p_value': p_value,
    'is_as_expected': (p_value < _LEVEL) == (error > 0),
  }


def table_text(table: Sequence[Mapping]) -> str:
  """Returns the table, a line a comparison."""
  names = ('statistic', 'degrees', 'p-value')
  head = f'{"rule":<22}{"told laws are":<16}'
  lines = [head + ''.join(f'{name:>12}' for name in names)]
  for row in table:
    told = f'off by {row["error"]:.0%}' if row['error'] else 'true'
    lines.append(
      f'{row["rule"]:<22}{told:<16}{row["statistic"]:>12.1f}'
      f'{row["degrees"]:>12}{row["p_value"]:>12.2g}'
    )
  return '\n'.join(lines)


def sentence(table: Sequence[Mapping]) -> str:
  """Says in words whether the rules are lossless, and whether that is a test.

  Args:
    table: rows of `table_row`.
  """
  wrong = [row for row in table if not row['is_as_expected']]
  if wrong:
    said = [
      f'{row["rule"]} (p = {row["p_value"]:.2g}) '
      + ('is not found out' if row['error'] else 'has another law')
      for row in wrong
    ]
    return f'FAILURE: {"; ".join(said)}.'
  true = [row for row in table if not row['error']]
  least = min(row['p_value'] for row in true)
  text = (
    f"{len(true)} rules emit tokens of the verifier's law: the least p-value "
    f'is {least:.2g}'
  )
  false = [row['p_value'] for row in table if row['error']]
  if not false:
    return f'{text}.'
  return (
    f'{text}; told laws that are off by {_ERROR:.0%}, every rule is found out, '
    f'with p-values of at most {max(false):.2g}.'
  )


if __name__ == '__main__':
  draft_flags.define('skipped_layers')
  common.run(
    main,
    defaults={'prompts_per_kind': 1},
    quick={'samples': 10_000},
    shared=[
      *model_flags.SHARED_FLAGS,
      *('prompts', 'prompts_per_kind', 'max_length'),
      *('seed', 'quick'),
    ],
  )
