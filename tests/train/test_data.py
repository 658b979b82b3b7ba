"""Tests of specjax.train.data: nothing lost, nothing twice, on any hosts."""

import itertools
import json

import numpy as np
import pytest

from specjax.train import data, documents

LENGTH = 16

# Record i has the tokens 100 i, 100 i + 1, ...; one is empty, one needs three
# rows, one fills a row.
SIZES = [1 + 7 * i % 11 for i in range(37)]
SIZES[5], SIZES[6], SIZES[7] = 0, 40, 16
RECORDS = list(enumerate(SIZES))


@pytest.fixture(autouse=True)
def short_windows(monkeypatch):
  """Shuffles few rows at a time, so that tests get from window to window."""
  monkeypatch.setattr(data, '_WINDOW', 3)


def document_of(record):
  name, size = record
  tokens = 100 * name + np.arange(size)
  return documents.Document(tokens, tokens % 3 != 1)


def make(records=RECORDS, **how):
  how = {'batch_size': 4, 'length': LENGTH, 'seed': 3} | how
  return data.batches(records, document_of, **how)


def pieces_of(row):
  """The documents of a row of a batch, taken apart slowly."""
  tokens, numbers, positions, is_target = row
  num_tokens = int(np.sum(numbers > 0))
  assert not np.any(numbers[num_tokens:]) and not np.any(tokens[num_tokens:])
  assert not np.any(positions[num_tokens:])
  assert not np.any(is_target[num_tokens:])
  found = []
  for number in range(1, numbers.max(initial=0) + 1):
    [places] = np.nonzero(numbers == number)
    np.testing.assert_array_equal(places, places[0] + np.arange(len(places)))
    np.testing.assert_array_equal(positions[places], np.arange(len(places)))
    expected = tokens[places] % 3 != 1
    expected[0] = False
    np.testing.assert_array_equal(is_target[places], expected)
    found.append(tokens[places].tolist())
  return found


def expected_pieces(records=RECORDS):
  for record in records:
    tokens = document_of(record).tokens.tolist()
    for start in range(0, len(tokens), LENGTH):
      yield tokens[start : start + LENGTH]


def rows_of(batches):
  return [row for batch in batches for row in zip(*batch, strict=True)]


def equal(batch, other):
  for field, twin in zip(batch, other, strict=True):
    np.testing.assert_array_equal(field, twin)


def test_an_epoch_holds_every_document_once():
  batches = list(make(num_epochs=1))
  for batch in batches:
    kinds = [(field.shape, field.dtype) for field in batch]
    assert kinds == [((4, LENGTH), np.int32)] * 3 + [((4, LENGTH), bool)]
  found = [piece for row in rows_of(batches) for piece in pieces_of(row)]
  assert sorted(found) == sorted(expected_pieces())


def test_the_rows_are_well_filled():
  rows = rows_of(itertools.islice(make(), 40))
  assert np.mean([row[1] > 0 for row in rows]) > 0.85


def test_two_epochs_hold_every_document_twice_and_differ_in_order():
  batches = list(make(num_epochs=2, batch_size=1))
  found = [piece for row in rows_of(batches) for piece in pieces_of(row)]
  assert sorted(found) == sorted([*expected_pieces(), *expected_pieces()])
  middle = len(found) // 2
  assert found[:middle] != found[middle:]


def test_pieces_of_a_long_document_are_strewn():
  batches = make([(0, 40 * LENGTH)], batch_size=1, num_epochs=1)
  found = [row[0][0] for row in rows_of(batches)]
  assert found != sorted(found)
  assert sorted(found) == list(range(0, 40 * LENGTH, LENGTH))


def test_the_order_is_the_seeds():
  tokens = lambda seed: np.stack(
    [b.tokens for b in itertools.islice(make(seed=seed), 5)]
  )
  np.testing.assert_array_equal(tokens(3), tokens(3))
  assert np.any(tokens(3) != tokens(4))
  begun = [row[0][0] // 100 for row in rows_of(make(num_epochs=1))]
  assert begun != sorted(begun)


@pytest.mark.parametrize('num_hosts', [2, 4])
def test_hosts_together_have_the_batches_of_one(num_hosts):
  whole = make()
  shares = [make(host=h, num_hosts=num_hosts) for h in range(num_hosts)]
  for _ in range(25):  # Past the end of the first epoch.
    parts = [next(share) for share in shares]
    equal(next(whole), data.Batch(*map(np.concatenate, zip(*parts))))  # noqa: B905


def test_a_host_reads_its_own_records_only():
  class Watched(list):
    def __getitem__(self, index):
      read.add(index)
      return super().__getitem__(index)

  by_host = []
  for host in range(2):
    read = set()
    next(make(Watched(RECORDS * 20), host=host, num_hosts=2))
    by_host.append(read)
  assert all(by_host) and by_host[0].isdisjoint(by_host[1])


@pytest.mark.parametrize('num_epochs', [1, None])
def test_resuming_anywhere_repeats_and_skips_nothing(num_epochs):
  batches = make(num_epochs=num_epochs)
  whole, states = [], []
  for _ in range(10):
    states.append(json.dumps(batches.get_state()))
    if (batch := next(batches, None)) is None:
      break
    whole.append(batch)
  assert (len(whole) == 10) == (num_epochs is None)
  for taken, state in enumerate(states):
    resumed = make(num_epochs=num_epochs)
    next(resumed)  # Where it was does not matter.
    resumed.set_state(json.loads(state))
    # Behind the window that it stands in, and no further than what is known.
    expected = whole[taken:][:5]
    for batch in expected:
      equal(next(resumed), batch)
    if num_epochs and taken + len(expected) == len(whole):
      assert next(resumed, None) is None


def test_the_end_of_the_epochs_stays_the_end():
  batches = make(num_epochs=1)
  for _ in batches:
    pass
  state = batches.get_state()
  assert next(batches, None) is None
  resumed = make(num_epochs=1)
  resumed.set_state(state)
  assert next(resumed, None) is None


@pytest.mark.parametrize(
  'how, match',
  [
    ({'records': []}, 'at least one record'),
    ({'batch_size': 0}, 'batch_size >= 1, got 0'),
    ({'length': 0}, 'length >= 1, got 0'),
    ({'num_epochs': 0}, 'num_epochs >= 1, got 0'),
    ({'num_hosts': 3}, '3 hosts share equally, got 4'),
    ({'num_hosts': 2, 'host': 2}, 'a host below 2, got 2'),
    ({'num_hosts': 2, 'num_epochs': 1}, 'without end on several hosts'),
  ],
)
def test_what_is_refused(how, match):
  with pytest.raises(ValueError, match=match):
    make(**how)
