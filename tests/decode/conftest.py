"""Texts and drafters that the tests of decoding share."""

import numpy as np
import pytest
import reference_cases as cases
import reference_edits
import reference_texts


@pytest.fixture(scope='session')
def mixed(tiny):
  """Greedy and sampled rows, one token long and up to one below the limit."""
  rng = np.random.default_rng(0)
  random = lambda size: rng.integers(0, cases.VOCAB, size).tolist()
  prompts = [
    [18],
    [11],
    [1, 2] * 4,
    [7, *random(4)],
    [0, *random(cases.MAX_LENGTH - 8)],
    [9, *random(cases.MAX_LENGTH - 3)],
    [5, *random(30)],
    [8, *random(cases.MAX_LENGTH - 2)],
  ]
  return cases.make_case(tiny, prompts, cases.SETTINGS)


@pytest.fixture(scope='session')
def edited(tiny, mixed):
  """The same prompts with penalties, bias and minimum lengths."""
  return cases.make_case(tiny, mixed.prompts, cases.EDITS)


@pytest.fixture(scope='session')
def short(tiny):
  """Every prompt of one token, half of them greedy, half sampled."""
  settings = [reference_edits.Setting(float(t % 2)) for t in range(cases.VOCAB)]
  return cases.make_case(tiny, [[t] for t in range(cases.VOCAB)], settings)


@pytest.fixture(scope='session')
def setups(mixed):
  """Ways to decode; the same objects for all tests, so compiled once."""
  return cases.setups(mixed)


@pytest.fixture(scope='session')
def talk(tiny_bytes):
  """Prompts whose outputs are letters and parts of characters."""
  return reference_texts.make_talk(tiny_bytes)
