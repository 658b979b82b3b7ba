"""From measured arrays to what is told of a drafter at one temperature.

Arrays have one row a prompt, `R` of them.  All intervals are 95 % of a
bootstrap over prompts, from the same resamples.
"""

from collections.abc import Mapping, Sequence

import jax.numpy as jnp
import numpy as np

from experiments import curves, measure
from specjax.theory import drafting, entropy, resample

# Bins of said probabilities end here.
EDGES = (0, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1)

# Drafts deeper than this are too few to tell much.
_MOST_DEPTHS = 8

# Resamples of fewer prompts say too little of their spread.
_FEWEST_PROMPTS = 4


def rates(
  runs: Mapping[str, Sequence[measure.Arrays]],
  kinds: Sequence[str],
  capacities: Sequence[int],
  seed: int,
) -> list[dict]:
  """Makes the curves of `D` against capacity, of all prompts and of each kind.

  Args:
    runs: the run at each capacity, by name.
    kinds: `[R]`, the kind of each prompt.
    capacities: `[C]`.
    seed: of the resamples.

  Returns:
    Rows of `curves.rows_of` with `kind`, None for all; those of kinds with
    fewer than 4 prompts have no interval.
  """
  rows = []
  for name in runs:
    tokens, calls = totals(runs[name])
    for kind in [None, *dict.fromkeys(kinds)]:
      here = np.array([kind in (None, other) for other in kinds])
      found = resample.ratio(tokens[:, here], calls[:, here], seed)
      if kind and here.sum() < _FEWEST_PROMPTS:
        unknown = np.full(len(capacities), np.inf)
        found = found._replace(low=unknown, high=unknown)
      rows += _label(curves.rows_of(name, capacities, found), kind=kind)
  return rows


def totals(
  runs: Sequence[measure.Arrays],
) -> tuple[np.ndarray, np.ndarray]:
  """Returns tokens and calls `[C, R]` of the run at each capacity."""
  of_runs = lambda key: np.stack([run[key] for run in runs])
  return of_runs('num_tokens'), of_runs('num_steps')


def depths(run: measure.Arrays, seed: int) -> list[dict]:
  """Tells how far drafts are accepted, depth by depth.

  The d-th token of an iteration is a draft that was accepted, or the bonus
  token that ends the iteration: the share of drafts among them is the chance
  that a draft is accepted at depth d after those above it were.  Summed over
  depths, drafts and bonus tokens are the tokens of the texts.

  Args:
    run: `depth` and `emitted`, `[R, T]`, as `measure.drafter_run` gives them.
    seed: of the resamples.

  Returns:
    Rows of `depth` up to 8, its `tokens` and those `accepted`, and the share
    `value` of these with `low` and `high`; as far as any iteration came.
  """
  count = lambda deepest, depth: np.sum(deepest >= depth, axis=1)
  accepted_depth = np.minimum(run['depth'], run['emitted'])
  rows = []
  for depth in range(1, _MOST_DEPTHS + 1):
    tokens, accepted = (
      count(run['emitted'], depth),
      count(accepted_depth, depth),
    )
    if tokens.any():
      rows.append(
        {
          'depth': depth,
          'tokens': int(tokens.sum()),
          'accepted': int(accepted.sum()),
          **_share(accepted, tokens, seed),
        }
      )
  return rows


def with_depth(run: measure.Arrays, lengths: np.ndarray) -> measure.Arrays:
  """Returns a run of the oracle with the `depth [R, T]` of its iterations.

  Args:
    run: as `oracle_runs.run` gives it.
    lengths: `[R, T]` tokens that the text takes to leave the tree at a place.
  """
  taken = np.take_along_axis(lengths, run['place'], axis=1)
  return {**run, 'depth': taken - 1}


def reliability(
  laws: measure.Arrays, num_tokens: np.ndarray, seed: int
) -> list[dict]:
  """Holds the probabilities that a drafter says against what came.

  Args:
    laws: `said` and `is_next`, `[R, T, K]`, of `laws.along`.
    num_tokens: `[R]` tokens of each text.
    seed: of the resamples.

  Returns:
    A row for each bin with tokens: its ends `above` and `up_to`, the `count` of
    tokens that were given such a probability, the mean `said`, and the share
    `value` of them that came next with `low` and `high`.
  """
  said, is_next = laws['said'], laws['is_next']
  is_place = np.arange(said.shape[1]) < num_tokens[:, None]
  bins = np.clip(np.digitize(said, EDGES, right=True), 1, len(EDGES) - 1)
  rows = []
  for number in range(1, len(EDGES)):
    is_here = (bins == number) & is_place[..., None]
    per_text = lambda x, here=is_here: np.sum(x * here, axis=(1, 2))
    counts = per_text(1)
    if counts.any():
      rows.append(
        {
          'above': EDGES[number - 1],
          'up_to': EDGES[number],
          'count': int(counts.sum()),
          'said': float(per_text(said).sum() / counts.sum()),
          **_share(per_text(is_next), counts, seed),
        }
      )
  return rows


def perfect(laws: entropy.LawSummary) -> measure.Arrays:
  """Returns what `laws.along` would of a drafter that is the verifier.

  Args:
    laws: of the verifier, `[R, T]`.
  """
  return {
    'mean': np.asarray(laws.entropy),
    'second': np.asarray(laws.second_moment),
    'drafter_entropy': np.asarray(laws.entropy),
    'missed': np.zeros(laws.entropy.shape),
    'divergence': np.zeros(laws.entropy.shape),
  }


def moments(
  laws: measure.Arrays, num_tokens: np.ndarray, seed: int
) -> list[dict]:
  """Tells the means over tokens of what `laws.along` found.

  Args:
    laws: its fields, `[R, T]`.
    num_tokens: `[R]` tokens of each text.
    seed: of the resamples.

  Returns:
    Rows of `moment`, `value`, `low` and `high`.
  """
  names = (*drafting.CrossMoments._fields, 'divergence')
  summed = entropy.row_totals(np.stack([laws[k] for k in names]), num_tokens)
  found = resample.ratio(
    summed, np.broadcast_to(num_tokens, summed.shape), seed
  )
  return [
    {'moment': name, **curves.ends('value', *ends)}
    for name, *ends in zip(names, *found, strict=True)
  ]


def slopes(
  runs: Sequence[measure.Arrays],
  laws: measure.Arrays,
  num_tokens: np.ndarray,
  capacities: Sequence[int],
  seed: int,
) -> tuple[list[dict], list[dict]]:
  """Compares the slope of `D` against `log N` with that of the formula.

  Both are least-squares slopes over the same capacities, in tokens a nat.  That
  of the formula, `drafting.drafter_asymptote` at the mean moments of the laws,
  is `1 / E_p[-log q] = 1 / (H + KL(p||q))` if q can draft all tokens.

  Args:
    runs: the run at each capacity.
    laws: the fields of `drafting.CrossMoments`, `[R, T]`.
    num_tokens: `[R]` tokens of each text.
    capacities: `[C]`, two of them at least.
    seed: of the resamples.

  Returns:
    Rows of `slope` (predicted, measured, and measured less predicted as
    difference), `value`, `low` and `high`; and the formula's curve, rows of
    `capacity`, `D`, `low` and `high`.
  """
  tokens, calls = totals(runs)
  sizes = jnp.asarray(capacities, float)[:, None]
  names = drafting.CrossMoments._fields
  summed = entropy.row_totals(np.stack([laws[k] for k in names]), num_tokens)

  def formula(counts):
    means = (summed @ counts) / (jnp.asarray(num_tokens, float) @ counts)
    return drafting.drafter_asymptote(drafting.CrossMoments(*means), sizes)

  def statistic(counts):
    predicted = _slope(sizes, formula(counts))
    won = resample.ratio_of_totals(tokens, calls, counts)
    measured = _slope(sizes, won)
    return jnp.stack([predicted, measured, measured - predicted])

  found = resample.bootstrap(statistic, len(num_tokens), seed)
  rows = [
    {'slope': name, **curves.ends('value', *ends)}
    for name, *ends in zip(
      ('predicted', 'measured', 'difference'), *found, strict=True
    )
  ]
  curve = resample.bootstrap(formula, len(num_tokens), seed)
  return rows, curves.rows_of('predicted', capacities, curve)


def _share(parts, wholes, seed):
  """Makes the `value` of a share of `[R]`; its interval ends at 1 at most."""
  # Resamples without any of what it is a share of have the ratio inf.
  found = resample.ratio(parts, wholes, seed)
  return curves.ends('value', *(jnp.minimum(x, 1.0) for x in found))


def _slope(sizes, values):
  """Least-squares slope `[S]` of values `[C, S]` against log sizes `[C, 1]`."""
  logs = jnp.log(sizes) - jnp.mean(jnp.log(sizes))
  return jnp.sum(logs * values, axis=0) / jnp.sum(logs**2)


def _label(rows, **labels):
  return [{**row, **labels} for row in rows]
