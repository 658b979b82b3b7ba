"""Measurements of a batch against slow twins and real decoding."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference_decode

from experiments import drafters, measure, oracle_runs
from specjax import sampling as sampling_lib
from specjax.decode import prefill
from specjax.draft import lookup, oracle
from specjax.theory import prices

CAPACITIES = (2, 6)
LIMIT = 9
TEXT_LENGTH = LIMIT + max(CAPACITIES) - 1


class Reading(NamedTuple):
  """One batch, its prompts first in `rows`, decoded plainly and read."""

  rows: np.ndarray
  batch: prefill.Batch
  plain: dict
  text: measure.Text

  @property
  def run_lengths(self):
    return np.minimum(self.plain['num_tokens'], LIMIT)

  def starts(self, row):
    """Every place of a prompt's run."""
    return range(self.run_lengths[row])


@pytest.fixture(scope='module')
def readings(tiny, task):
  """A full batch of three prompts, and one of two that is filled up."""
  batches = prefill.read_prompts(
    tiny,
    task.prompts,
    max_new_tokens=TEXT_LENGTH,
    sampling=task.sampling,
    # Of the texts some end within the limit, some past it, some do not.
    seeds=np.arange(9, 14),
    batch_size=3,
  )
  groups = prefill.batch_rows(len(task.prompts), 3)
  return [read(tiny, task, *pair) for pair in zip(groups, batches, strict=True)]


def read(tiny, task, rows, batch):
  plain = measure.plain_texts(
    tiny, batch, task.eos_ids, TEXT_LENGTH, lambda _: None
  )
  text = measure.read_texts(tiny, batch, plain, max(CAPACITIES))
  return Reading(rows, batch, plain, text)


def contexts(task, reading):
  """Yields the prompt and its row, output, and sampling parameters `[1]`."""
  for row, prompt in enumerate(reading.rows):
    output = reading.plain['tokens'][row, : reading.plain['num_tokens'][row]]
    sampling = jax.tree.map(lambda x, p=prompt: x[p : p + 1], task.sampling)
    yield row, [*task.prompts[prompt], *output.tolist()], sampling


def test_laws_are_those_after_each_prefix(tiny, task, readings):
  for reading in readings:
    laws = measure.laws(tiny, reading.text, reading.plain)
    for row, text, _ in contexts(task, reading):
      prompt = reading.rows[row]
      start = len(task.prompts[prompt])
      logits = reference_decode.logits_after(tiny, text)
      for place, token in enumerate(text[start:]):
        law = reference_decode.slow_law(
          logits[start + place - 1], *task.settings[prompt]
        )
        check_law({k: v[row, place] for k, v in laws.items()}, law, token)


def check_law(summary, law, token):
  with np.errstate(divide='ignore', invalid='ignore'):
    cost = np.where(law > 0, -np.log(law), 0)
  falling = np.sort(law)[::-1]
  expected = {
    'surprisal': cost[token],
    'entropy': law @ cost,
    'second_moment': law @ cost**2,
  }
  for name, value in expected.items():
    np.testing.assert_allclose(summary[name], value, atol=1e-4, err_msg=name)
  np.testing.assert_allclose(np.exp(summary['top_log_p']), falling, atol=1e-5)
  np.testing.assert_allclose(law[summary['top_tokens']], falling, atol=1e-5)


def test_the_run_of_one_node_is_the_plain_text(tiny, task, readings):
  for reading in readings:
    run = measure.drafter_run(
      tiny,
      reading.batch,
      task.eos_ids,
      drafters.Drafting(lookup.make()),
      1,
      LIMIT,
      lambda _: None,
    )
    plain = measure.plain_run(reading.plain, LIMIT)
    assert run.keys() == plain.keys()
    for name, values in run.items():
      np.testing.assert_array_equal(values, plain[name], err_msg=name)


@pytest.fixture(scope='module')
def oracles(tiny, task, readings):
  """The oracle's trees at every place, by batch."""

  def grow(reading):
    told = []
    arrays = oracle_runs.everywhere(
      tiny,
      reading.text,
      reading.run_lengths,
      # Starts may come in any order.
      np.random.default_rng(0).random((len(reading.rows), LIMIT)),
      task.eos_ids,
      CAPACITIES,
      told.append,
    )
    assert sum(told) == sum(reading.run_lengths)
    return arrays

  return [grow(reading) for reading in readings]


@pytest.mark.parametrize('capacity', CAPACITIES)
def test_a_replay_is_what_the_oracle_really_decodes(
  tiny, task, readings, oracles, capacity
):
  ends = set()
  for reading, arrays in zip(readings, oracles, strict=True):
    lengths = arrays['length'][..., CAPACITIES.index(capacity)]
    replay = oracle_runs.run(lengths, reading.run_lengths, LIMIT)
    run = measure.drafter_run(
      tiny,
      reading.batch,
      task.eos_ids,
      drafters.Drafting(oracle.make(capacity, task.eos_ids)),
      capacity,
      LIMIT,
      lambda _: None,
    )
    for name in ('num_tokens', 'num_steps', 'place', 'emitted'):
      np.testing.assert_array_equal(replay[name], run[name], err_msg=name)
    np.testing.assert_array_equal(
      run['tokens'], measure.plain_run(reading.plain, LIMIT)['tokens']
    )
    for row, count in enumerate(run['num_steps']):
      last = run['tokens'][row, run['num_tokens'][row] - 1]
      is_cut = run['emitted'][row, count - 1] <= run['depth'][row, count - 1]
      ends.add('eos' if last in task.eos_ids else 'limit')
      ends.add('cut' if is_cut else 'whole')
  # Texts end by themselves and at the limit, there inside an accepted path.
  assert ends == {'eos', 'limit', 'cut', 'whole'}


def slow_values(tiny, task, reading, capacity):
  """`[M, N]` values of the trees at every start, by a heap."""
  values = []
  for row, text, sampling in contexts(task, reading):
    length = len(task.prompts[reading.rows[row]])
    for place in reading.starts(row):
      found = reference_decode.best_continuations(
        tiny, text[: length + place], sampling, capacity, task.eos_ids
      )
      worth = np.zeros(capacity)
      worth[: len(found)] = np.exp([log_p for log_p, _ in found])
      values.append(np.cumsum(worth))
  return np.array(values)


def test_values_of_trees_are_sums_over_the_best_continuations(
  tiny, task, readings, oracles
):
  capacity = max(CAPACITIES)
  for reading, arrays in zip(readings, oracles, strict=True):
    values = [
      arrays['value'][row, place]
      for row, _, _ in contexts(task, reading)
      for place in reading.starts(row)
    ]
    # The first n nodes are the tree of capacity n.
    slow = slow_values(tiny, task, reading, capacity)
    np.testing.assert_allclose(
      values, slow[:, np.array(CAPACITIES) - 1], atol=1e-4
    )


def test_nodes_of_trees_are_kept_with_notes_on_their_laws(
  tiny, task, readings, oracles
):
  capacity = max(CAPACITIES)
  for reading, arrays in zip(readings, oracles, strict=True):
    trees = oracle_runs.priced(arrays, np.array(reading.run_lengths))
    values = np.cumsum(trees.p, axis=1)[:, np.array(CAPACITIES) - 1]
    found = arrays['value'][
      np.arange(LIMIT) < np.array(reading.run_lengths)[:, None]
    ]
    np.testing.assert_allclose(values, found, rtol=1e-6)
    # All but the last node have been read; the root's law is known elsewhere.
    is_present = trees.p > 0
    assert (trees.is_read | ~is_present | (trees.p == trees.p[:, -1:])).all()
    assert trees.p.shape[1] == capacity
    place = 0
    for row, text, sampling in contexts(task, reading):
      length = len(task.prompts[reading.rows[row]])
      for start in reading.starts(row):
        logits = reference_decode.logits_after(tiny, text[: length + start])[-1]
        law = sampling_lib.log_law(jnp.asarray(logits)[None], sampling)[0]
        np.testing.assert_allclose(
          trees.notes[place, 0], prices.notes(law), rtol=1e-3, atol=1e-4
        )
        place += 1
