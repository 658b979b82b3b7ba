"""All that is measured and told of drafters at one temperature."""

import functools
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from experiments import drafters
from experiments import study as study_lib
from experiments.evaluation import laws as laws_lib
from experiments.evaluation import tables
from specjax.llama import model as llama_model
from specjax.theory import entropy

# Of each drafter; the table of rates is of all.
_TABLES = ('depths', 'reliability', 'moments', 'slopes', 'predictions')


class Candidate(NamedTuple):
  """A drafter that is measured.

  Attributes:
    drafting: what decodes.
    model: whose laws it drafts by; None for one that is no model.
  """

  drafting: drafters.Drafting
  model: drafters.DraftModel | None = None


def tables_of(
  study: study_lib.Study,
  verifier: llama_model.Params,
  candidates: Mapping[str, Candidate],
  drafter: str,
  kinds: Sequence[str],
  seed: int,
) -> dict[str, list[dict]]:
  """Makes all tables of one temperature.

  Args:
    study: of the candidates.
    verifier: the model.
    candidates: drafters by name.
    drafter: name of the one that is evaluated.
    kinds: `[R]`, the kind of each prompt.
    seed: of the resamples.

  Returns:
    Rows by table, each with the `curve` that it is of: `table`, of `D`, and
    `depths`, `reliability`, `moments`, `slopes` and `predictions`; see
    `tables`.
  """
  capacities, lengths = study.capacities, study.run_lengths
  runs = {
    name: [study.run(name, capacity) for capacity in capacities]
    for name in [*candidates, study_lib.ORACLE_RUN]
  }
  laws = {
    name: _laws(study, verifier, name, candidate)
    for name, candidate in candidates.items()
    if candidate.model is not None
  }
  found = {name: [] for name in _TABLES}
  found |= {'table': tables.rates(runs, kinds, capacities, seed)}

  def tell(table, name, rows):
    found[table] += [{**row, 'curve': name} for row in rows]

  for name in shown(drafter):
    run = runs[name][-1]
    if name == study_lib.ORACLE_RUN:
      run = tables.with_depth(run, study.oracle['length'][..., -1])
    tell('depths', name, tables.depths(run, seed))
  for name, its_laws in laws.items():
    tell('reliability', name, tables.reliability(its_laws, lengths, seed))
  if entropy.moments_of_laws(study.texts.laws, lengths).mu > 0:
    # Of texts without entropy the oracle wins every token.
    laws[study_lib.ORACLE_RUN] = tables.perfect(study.texts.laws)
  for name, its_laws in laws.items():
    tell('moments', name, tables.moments(its_laws, lengths, seed))
    slopes, curve = tables.slopes(
      runs[name], its_laws, lengths, capacities, seed
    )
    tell('slopes', name, slopes)
    tell('predictions', name, curve)
  return found


def shown(drafter: str) -> list[str]:
  """Returns the names of those whose curves and depths are told.

  Args:
    drafter: name of the one that is evaluated, which may be lookup itself.
  """
  return list(dict.fromkeys(['lookup', drafter, study_lib.ORACLE_RUN]))


def _laws(study, verifier, name, candidate):
  """Returns what `laws.along` finds of a drafter, kept as a stage."""
  compare = functools.partial(
    laws_lib.along,
    verifier,
    candidate.model,
    num_places=study.max_new_tokens,
  )
  return study.along_texts(f'{candidate.drafting.stage(name)}-laws', compare)
