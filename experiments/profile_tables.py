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
      texts.
    kinds: `[R]`, the kind of each prompt.
    capacities: `[C]`.
    seed: of halves and resamples.

  Returns:
    The table, curves `run(T=0.6)` and so on, and facts beside it: `gains`, what
    a setting adds to `run_context` of the base; `vacuous`, settings without
    entropy, which have neither; the rows of `moments` and `stretches`.
  """
  base = next(iter(texts))
  limits, vacuous, moments, stretches = {}, [], [], []
  for name, own in texts.items():
    laws, lengths = own.laws, own.num_tokens
    if float(entropy.moments_of_laws(laws, lengths).mu) > 0:
      limits[name] = levels.limits(laws, lengths, capacities, seed)
    else:
      vacuous.append(name)
    own_moments = entropy.Moments(laws.entropy, laws.second_moment)
    moments += [
      {'setting': name, 'contexts': 'own', **row}
      for row in moment_rows(own_moments, lengths, kinds, seed)
    ]
    stretches += [
      {'setting': name, **row}
      for row in stretch_rows(laws.entropy, lengths, seed)
    ]
  for name, of_laws in same.items():
    moments += [
      {'setting': name, 'contexts': base, **row}
      for row in moment_rows(of_laws, texts[base].num_tokens, kinds, seed)
    ]
  table, gains = limit_rows(limits, base, len(kinds), capacities, seed)
  facts = {'moments': moments, 'stretches': stretches}
  return table, {'gains': gains, 'vacuous': vacuous, **facts}


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
    `high`; no interval where there is one prompt of the kind.
  """
  totals = entropy.row_totals(np.stack(moments), num_tokens)  # [2, R]
  rows = []
  for kind in [None, *dict.fromkeys(kinds)]:
    here = np.array([kind in (None, other) for other in kinds])
    interval = resample.ratio(totals[:, here], num_tokens[here], seed)
    if here.sum() == 1:
      interval = interval._replace(
        low=np.full(2, np.inf), high=np.full(2, np.inf)
      )
    rows += [
      {'kind': kind, 'moment': moment, **_ends(*ends)}
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
          **_ends(*resample.ratio(totals, counts, seed)),
        }
      )
  return rows


def limit_rows(
  limits: Mapping[str, Mapping[str, levels.Level]],
  base: str,
  num_prompts: int,
  capacities: Sequence[int],
  seed: int,
) -> tuple[list[dict], list[dict]]:
  """Puts limits in rows, and what settings add to the limit of the base.

  Args:
    limits: setting -> bound -> level.
    base: one of the settings.
    num_prompts: `R`.
    capacities: `[C]`.
    seed: of the resamples, the same for all.

  Returns:
    Rows of curves `bound(setting)`; and rows of curves `setting`, the
    difference of `run_context` to that of the base, prompt by prompt.
  """
  rows_of = lambda name, level: curves.rows_of(
    name, capacities, resample.bootstrap(level, num_prompts, seed)
  )
  table, gains = [], []
  for name, bounds in limits.items():
    for bound, level in bounds.items():
      table += rows_of(f'{bound}({name})', level)
    if name != base:
      ours, theirs = (limits[x]['run_context'] for x in (name, base))
      gains += rows_of(
        name, lambda counts, a=ours, b=theirs: a(counts) - b(counts)
      )
  return table, gains


def _ends(value, low, high):
  """Returns a number and its interval by name; None for inf."""
  finite = lambda x: float(x) if np.isfinite(x) else None
  return {'value': finite(value), 'low': finite(low), 'high': finite(high)}
