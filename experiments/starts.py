"""Where a drafter's iterations started, and what its trees won there.

Arrays have one row a prompt, `R` of them, and one column a place of its output,
`T` of them; `C` capacities.
"""

from collections.abc import Mapping, Sequence

import numpy as np

Arrays = Mapping[str, np.ndarray]


def partings(run: Arrays, plain: Arrays) -> np.ndarray:
  """Returns `[R]` the first place where a run's text is not the plain one.

  In float32 two scores within rounding of each other may be told apart in
  either way; nothing else makes a difference.

  Args:
    run: of a drafter.
    plain: `tokens [R, >= T]` and `num_tokens [R]` of plain decoding.

  Returns:
    The place, `T` for texts that are the same.
  """
  width = run['tokens'].shape[1]
  differs = run['tokens'] != plain['tokens'][:, :width]
  return np.where(differs.any(axis=1), differs.argmax(axis=1), width)


def won(run: Arrays, plain: Arrays) -> np.ndarray:
  """Returns `[R, T]` the tokens that a run's tree took at each of its starts.

  Unlike the tokens that the run emitted they are not cut at the run's limit, so
  that they have the expectation `sum of p(w)` over the tree.  Starts behind a
  parting are left out: they belong to another text.

  Args:
    run: of a drafter.
    plain: plain decoding, going on past the limit of the run.

  Returns:
    The tokens, 0 where no iteration started.
  """
  tokens = np.zeros(run['place'].shape, np.int32)
  first_parting = partings(run, plain)
  for row, count in enumerate(run['num_steps']):
    places = run['place'][row, :count]
    taken = run['depth'][row, :count] + 1
    # A path may lead on past the end of the text.
    taken = np.minimum(taken, plain['num_tokens'][row] - places)
    is_shared = places <= first_parting[row]
    tokens[row, places[is_shared]] = taken[is_shared]
  return tokens


def draw(
  tokens: Sequence[np.ndarray], num_starts: int | None, seed: int
) -> dict[str, np.ndarray]:
  """Draws starts that a drafter visited, at any of its capacities.

  Those of them that it visited at one capacity are a uniform draw of all that
  it visited there.

  Args:
    tokens: `[C][R, T]` what `won` gave at each capacity.
    num_starts: how many to draw, all if none or if there are fewer.
    seed: of the draw.

  Returns:
    `rows [M]` and `places [M]` of the starts, and `won [C, M]`, 0 at the
    capacities that did not visit one.

  Raises:
    ValueError: all starts of a capacity are of one prompt.
  """
  tokens = np.stack(tokens)
  rows, places = np.nonzero((tokens > 0).any(axis=0))
  drawn = np.random.default_rng(seed).permutation(len(rows))[:num_starts]
  rows, places = rows[np.sort(drawn)], places[np.sort(drawn)]
  at_starts = tokens[:, rows, places]
  # Bounds at starts are fitted on half of the prompts.
  if any(len(np.unique(rows[here > 0])) < 2 for here in at_starts):
    raise ValueError(
      'expected starts of 2 prompts or more at every capacity, got fewer; '
      f'draw more than --oracle_starts={num_starts}'
    )
  return {'rows': rows, 'places': places, 'won': at_starts}
