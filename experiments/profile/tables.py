"""From texts under several settings to moments, limits and what changes win.

Texts have `R` rows, one a prompt, the same prompts for every setting.  All
intervals are 95 % of a bootstrap over prompts, from the same resamples.
"""

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from experiments import curves, levels
from specjax.theory import entropy, resample

# Stretches of an output, of about equal length, whose mean entropies are told.
_NUM_STRETCHES = 8

# Resamples of fewer prompts say too little of their spread.
_FEWEST_PROMPTS = 4


def tabulate(
  texts: Mapping[str, entropy.Texts],
  same: Mapping[str, entropy.Moments],
  kinds: Sequence[str],
  capacities: Sequence[int],
  seed: int,
) -> tuple[list[dict], dict]:
  """Makes all that a profile says.

  Args:
    texts: setting -> texts `[R, T]` sampled under it; the base is the first,
      and has entropy.
    same: setting -> moments `[R, T]` of its laws at the places of the base's
      texts; all settings of `texts` are there.
    kinds: `[R]`, the kind of each prompt.
    capacities: `[C]`.
    seed: of halves and resamples.

  Returns:
    The table of limits and the `gains`, see `limit_rows`; the rows of
    `moments` and `stretches`; the `drifts`, mean entropy of a setting's own
    texts less that of its laws at the base's places; `vacuous` settings, which
    have no entropy and hence no limits; `sampled` and `grid`, the settings in
    order, the base first.
  """
  base = next(iter(texts))
  lengths = texts[base].num_tokens
  moments, stretches, drifts = [], [], []
  for name, own in texts.items():
    laws, ends = own.laws, own.num_tokens
    found = entropy.Moments(laws.entropy, laws.second_moment)
    moments += _label(
      moment_rows(found, ends, kinds, seed), setting=name, contexts='own'
    )
    stretches += _label(stretch_rows(found.mu, ends, seed), setting=name)
    totals = (
      entropy.row_totals(found.mu, ends),
      entropy.row_totals(same[name].mu, lengths),
    )
    drift = resample.ratio_difference(totals, (ends, lengths), seed)
    drifts += _label([curves.ends('value', *drift)], setting=name)
  for name, found in same.items():
    moments += _label(
      moment_rows(found, lengths, kinds, seed), setting=name, contexts=base
    )
  table, gains, vacuous = limit_rows(texts, capacities, seed)
  return table, {
    'sampled': list(texts),
    'grid': list(same),
    'vacuous': vacuous,
    'gains': gains,
    'drifts': drifts,
    'moments': moments,
    'stretches': stretches,
  }


def moment_rows(
  moments: entropy.Moments,
  num_tokens: np.ndarray,
  kinds: Sequence[str],
  seed: int,
) -> list[dict]:
  """Pools the moments of laws over all texts, and over those of each kind.

  Args:
    moments: `[R, T]`, in nats and nats squared.
    num_tokens: `[R]`, tokens of each text; the rest is padding.
    kinds: `[R]`.
    seed: of the resamples.

  Returns:
    Rows of `kind` (None for all), `moment` (mu or mu2), `value`, `low` and
    `high`; no interval where there are fewer than 4 prompts of the kind.
  """
  totals = entropy.row_totals(np.stack(moments), num_tokens)  # [2, R]
  rows = []
  for kind in [None, *dict.fromkeys(kinds)]:
    here = np.array([kind in (None, other) for other in kinds])
    interval = resample.ratio(totals[:, here], num_tokens[here], seed)
    if here.sum() < _FEWEST_PROMPTS:
      interval = interval._replace(
        low=np.full(2, np.inf), high=np.full(2, np.inf)
      )
    rows += [
      {'kind': kind, 'moment': moment, **curves.ends('value', *ends)}
      for moment, *ends in zip(moments._fields, *interval, strict=True)
    ]
  return rows


def stretch_rows(
  entropies: np.ndarray, num_tokens: np.ndarray, seed: int
) -> list[dict]:
  """Finds the mean entropy by position in the output, in stretches.

  Texts that ended count no longer: late stretches are of fewer texts.

  Args:
    entropies: `[R, T]` nats.
    num_tokens: `[R]`, tokens of each text.
    seed: of the resamples.

  Returns:
    Rows of `first` and `last` token (counted from 1), `num_tokens` in all
    texts, `value`, `low` and `high` in nats; none where all texts have ended.
  """
  width = np.shape(entropies)[1]
  ends = np.linspace(0, width, min(_NUM_STRETCHES, width) + 1).astype(int)
  rows = []
  for first, end in itertools.pairwise(ends):
    counts = np.clip(np.asarray(num_tokens) - first, 0, end - first)
    if counts.any():
      totals = entropy.row_totals(entropies[:, first:end], counts)
      rows.append(
        {
          'first': int(first) + 1,
          'last': int(end),
          'num_tokens': int(counts.sum()),
          **curves.ends('value', *resample.ratio(totals, counts, seed)),
        }
      )
  return rows


def limit_rows(
  texts: Mapping[str, entropy.Texts], capacities: Sequence[int], seed: int
) -> tuple[list[dict], list[dict], list[str]]:
  """Puts limits of runs in rows, and what settings add to that of the base.

  Args:
    texts: setting -> texts `[R, T]` sampled under it; the base is the first,
      and has entropy.
    capacities: `[C]`.
    seed: of halves and resamples.

  Returns:
    Rows of curves such as `run(T=0.6)`; rows of curves such as `T=0.6`, by how
    much its `run_context` exceeds that of the base, prompts being paired; and
    the settings without entropy, of which there are no rows.
  """
  made = {
    name: levels.limits(own.laws, own.num_tokens, capacities, seed)
    for name, own in texts.items()
    if entropy.moments_of_laws(own.laws, own.num_tokens).mu > 0
  }
  num_prompts = len(next(iter(texts.values())).num_tokens)
  rows_of = lambda curve, level: curves.rows_of(
    curve, capacities, resample.bootstrap(level, num_prompts, seed)
  )
  base, *_ = (bounds['run_context'] for bounds in made.values())
  table, gains = [], []
  for name, bounds in made.items():
    for bound, level in bounds.items():
      table += rows_of(f'{bound}({name})', level)
    ours = bounds['run_context']
    if ours is not base:
      gains += rows_of(name, lambda n, ours=ours: ours(n) - base(n))
  return table, gains, [name for name in texts if name not in made]


def find(
  record: Mapping,
  setting: str,
  contexts: str,
  moment: str,
  kind: str | None = None,
) -> Mapping | None:
  """Returns a row of a record's moments.

  Args:
    record: of `entropy_profile`.
    setting: whose laws they are.
    contexts: `own`, or the base's name for the places of its texts.
    moment: `mu` or `mu2`.
    kind: of prompts; None for all.

  Returns:
    The row; None where the setting has no texts of its own.
  """
  wanted = {
    'setting': setting,
    'contexts': contexts,
    'moment': moment,
    'kind': kind,
  }
  return next(
    (r for r in record['moments'] if wanted.items() <= r.items()), None
  )


def _label(rows, **labels):
  return [{**labels, **row} for row in rows]
