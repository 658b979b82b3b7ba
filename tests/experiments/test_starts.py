"""Where iterations started, and what their trees won, by hand and by count."""

import numpy as np
import pytest

from experiments import starts

# Places where the iterations of three prompts started, at two capacities.
TABLES = [
  [[0, 1, 2, 3, 4, 5], [0, 1, 2], [0, 1, 2, 3, 4, 5]],
  [[0, 2, 4], [0], [0, 1, 4]],
]


def make_run(places, depths=None, tokens=None):
  """A run over texts of six tokens."""
  run = {
    name: np.zeros((len(places), 6), int)
    for name in ('place', 'depth', 'tokens')
  }
  for row, values in enumerate(places):
    run['place'][row, : len(values)] = values
    if depths:
      run['depth'][row, : len(values)] = depths[row]
  if tokens is not None:
    run['tokens'] = tokens
  run['num_steps'] = np.array([*map(len, places)])
  return run


PLAIN = {'tokens': np.zeros((3, 9), int), 'num_tokens': np.array([9, 9, 9])}


def drawn_in(tables, num_starts, seed):
  tokens = [starts.won(make_run(places), PLAIN) for places in tables]
  found = starts.draw(tokens, num_starts, seed)
  return found, list(zip(found['rows'], found['places'], strict=True))


def test_what_was_won_is_cut_by_the_text_and_not_by_the_limit():
  plain = {**PLAIN, 'num_tokens': np.array([9, 9, 5])}
  run = make_run([[0, 2, 5], [0, 3], [0, 4]], [[1, 2, 3], [2, 2], [3, 4]])
  assert starts.won(run, plain).tolist() == [
    [2, 0, 3, 0, 0, 4],
    [3, 0, 0, 3, 0, 0],
    [4, 0, 0, 0, 1, 0],  # the text ends at its fifth token
  ]


def test_starts_behind_a_parting_belong_to_another_text():
  tokens = np.zeros((3, 6), int)
  tokens[0, 2] = 1
  run = make_run([[0, 1, 2, 3], [0, 3], [0]], None, tokens)
  assert starts.partings(run, PLAIN).tolist() == [2, 6, 6]
  # The token that parts was drafted for in a context that is still shared.
  assert starts.won(run, PLAIN)[0].tolist() == [1, 1, 1, 0, 0, 0]


def test_starts_know_where_they_were_visited():
  for num_starts in (12, 100, None):
    found, drawn = drawn_in(TABLES, num_starts, seed=0)
    assert drawn == sorted(set(drawn))
    assert len(drawn) == min(num_starts or 15, 15)
    for table, won in zip(TABLES, found['won'], strict=True):
      expected = [place in table[row] for row, place in drawn]
      assert expected == (won > 0).tolist()


def test_starts_of_one_prompt_are_refused():
  with pytest.raises(ValueError, match='more than --oracle_starts=4'):
    drawn_in([[[0, 1, 2, 3, 4, 5], [], []]], 4, seed=0)


def test_starts_depend_on_their_seed_alone():
  draws = [drawn_in(TABLES, 12, seed)[1] for seed in range(8)]
  assert draws == [drawn_in(TABLES, 12, seed)[1] for seed in range(8)]
  assert len({tuple(draw) for draw in draws}) > 1


def test_starts_are_drawn_uniformly():
  num_draws, counts = 1000, np.zeros((3, 6))
  for seed in range(num_draws):
    for start_at in drawn_in(TABLES, 12, seed)[1]:
      counts[start_at] += 1
  share = 12 / 15
  expected = share * np.array(
    [[p in row for p in range(6)] for row in TABLES[0]]
  )
  error = np.sqrt(share * (1 - share) / num_draws)
  np.testing.assert_allclose(counts / num_draws, expected, atol=4 * error)
