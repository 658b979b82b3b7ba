"""The measurements that experiments share, batch by batch, kept once done.

A study decodes one set of prompts with one model: plainly, by speculation, and
along the way of the oracle.  Each batch of each measurement is a stage on disk,
so that a killed run goes on where it stopped.
"""

import functools
from collections.abc import Callable, Mapping, Sequence

import jax
import jax.numpy as jnp
import numpy as np
import tqdm
from absl import logging

from experiments import drafters, measure, oracle_runs, proposals, records
from specjax import hosts, parallel
from specjax import sampling as sampling_lib
from specjax.checkpoint import resolve
from specjax.decode import prefill
from specjax.theory import entropy

Arrays = Mapping[str, np.ndarray]

# The oracle's own process, beside the drafters' names.
ORACLE_RUN = 'oracle_run'

# Texts as read are large; so many batches of them are held.
NUM_TEXTS_HELD = 4


class Study:
  """Measurements of one model on one set of prompts.

  Arrays have one row a prompt, `R` of them, in the prompts' order.
  """

  def __init__(
    self,
    model: resolve.Checkpoint,
    ids: Sequence[Sequence[int]],
    draftings: Mapping[str, drafters.Drafting],
    sampling: sampling_lib.Sampling,
    stages: records.Stages,
    *,
    seed: int,
    capacities: Sequence[int],
    max_new_tokens: int,
    max_length: int,
    batch_size: int,
    layout: parallel.Layout | None = None,
  ):
    """Binds model and prompts; nothing is run.

    Args:
      model: the verifier, where the layout wants it.
      ids: prompts as token ids.
      draftings: the drafters that may be run, by name.
      sampling: `[R]`.
      stages: keeps what is done.
      seed: of the prompts' own seeds.
      capacities: the sizes of trees, `C` of them.
      max_new_tokens: tokens of a run.
      max_length: most tokens of prompt and output.
      batch_size: most prompts decoded together.
      layout: devices that share out the rows of a batch; None for one device.
    """
    self.capacities = capacities
    self.max_new_tokens = max_new_tokens
    # Walks from the last start of a run are followed as deep as the largest
    # tree, so plain texts are longer than runs.
    self.text_length = max_new_tokens + max(capacities) - 1
    self._verifier = model.params
    self._eos_ids = model.tokenizer.eos_ids
    self._stages = stages
    self._groups = prefill.batch_rows(len(ids), batch_size)
    self._own = hosts.share(len(self._groups))
    self._layout = layout
    features = drafters.features_of(draftings.values())
    self._read_prompts = lambda: prefill.read_prompts(
      model.params,
      ids,
      max_new_tokens=self.text_length,
      sampling=sampling,
      seeds=np.random.SeedSequence(seed).generate_state(len(ids)),
      max_length=max_length,
      batch_size=batch_size,
      features=features,
      layout=layout,
      numbers=self._own,
    )
    self._text = functools.lru_cache(NUM_TEXTS_HELD)(self._read_text)
    self._draftings = {
      name: drafting._replace(params=parallel.spread(drafting.params, layout))
      for name, drafting in draftings.items()
    }

  @functools.cached_property
  def plain(self) -> Arrays:
    """`tokens [R, T]` and `num_tokens [R]` of plain decoding."""

    def compute(number, progress_fn):
      return measure.plain_texts(
        self._verifier,
        self._batches[number],
        self._eos_ids,
        self.text_length,
        progress_fn,
      )

    return self._over_batches('plain', self.text_length, compute)

  @property
  def run_lengths(self) -> np.ndarray:
    """`[R]` tokens that a run emits: those of a text up to the limit."""
    return np.minimum(self.plain['num_tokens'], self.max_new_tokens)

  @functools.cached_property
  def texts(self) -> entropy.Texts:
    """The plain texts with the law of every token."""
    plain = self.plain

    def compute(number, progress_fn):
      texts = self._rows_of(plain, number)
      arrays = measure.laws(self._verifier, self._text(number), texts)
      progress_fn(int(texts['num_tokens'].sum()))
      return arrays

    laws = self._over_batches('laws', self.text_length, compute)
    return entropy.Texts(
      laws=entropy.LawSummary(**{k: jnp.asarray(v) for k, v in laws.items()}),
      tokens=jnp.asarray(plain['tokens']),
      num_tokens=jnp.asarray(plain['num_tokens']),
      eos_ids=jnp.asarray(self._eos_ids, jnp.int32),
    )

  def moments_under(self, settings: sampling_lib.Sampling) -> Arrays:
    """`mu` and `mu2`, `[R, T, P]`, of other laws at the plain texts' places.

    Args:
      settings: `[P]`, the same whenever the study's stages are taken up.
    """
    moments_fn = measure.moments_fn(settings)

    def compute(number, progress_fn):
      plain = self._rows_of(self.plain, number)
      arrays = measure.moments_under(
        self._verifier, self._text(number), plain, moments_fn
      )
      progress_fn(int(plain['num_tokens'].sum()))
      return arrays

    return self._over_batches('moments', self.text_length, compute)

  def run(self, name: str, capacity: int) -> Arrays:
    """The run of a drafter; see `measure.drafter_run`.

    A tree of one node is plain decoding, which is not done again.

    Args:
      name: of the drafter, or `oracle_run`.
      capacity: `N`.
    """
    if capacity == 1:
      return measure.plain_run(self.plain, self.max_new_tokens)
    if name == ORACLE_RUN:
      lengths = self.oracle['length'][..., self.capacities.index(capacity)]
      return oracle_runs.run(lengths, self.run_lengths, self.max_new_tokens)

    drafting = self._draftings[name]

    def compute(number, progress_fn):
      return measure.drafter_run(
        self._verifier,
        self._batches[number],
        self._eos_ids,
        drafting,
        capacity,
        self.max_new_tokens,
        progress_fn,
      )

    return self._over_batches(
      f'{drafting.stage(name)}-{capacity}', self.max_new_tokens, compute
    )

  def proposals(self, name: str) -> Arrays:
    """What a drafter proposes everywhere; see `proposals.everywhere`.

    Args:
      name: of the drafter.
    """
    plain, drafting = self.plain, self._draftings[name]

    def compute(number, progress_fn):
      batch, texts = self._batches[number], self._rows_of(plain, number)
      return proposals.everywhere(
        name,
        drafting,
        measure.whole_texts(batch, texts),
        np.asarray(batch.prefix.lengths),
        texts['num_tokens'],
        self.capacities,
        self.max_new_tokens,
        progress_fn,
      )

    return self._over_batches(
      f'{drafting.stage(name)}-proposals',
      self.max_new_tokens,
      compute,
      'tree',
    )

  def along_texts(
    self,
    name: str,
    compute_fn: Callable[[prefill.Batch, Arrays], Arrays],
  ) -> Arrays:
    """Whatever else is measured along the plain texts.

    Args:
      name: of the measurement, unique in the study.
      compute_fn: from a batch and the rows of `plain` that are its texts to
        arrays of these rows.
    """
    plain = self.plain

    def compute(number, progress_fn):
      texts = self._rows_of(plain, number)
      arrays = compute_fn(self._batches[number], texts)
      progress_fn(int(texts['num_tokens'].sum()))
      return arrays

    return self._over_batches(name, self.text_length, compute)

  @functools.cached_property
  def oracle(self) -> Arrays:
    """`value` and `length`, `[R, T, C]`, of the oracle's trees everywhere.

    `T` is the limit of a run; see `oracle_runs.everywhere`.
    """

    log_p_max = np.asarray(self.texts.laws.top_log_p[..., 0])

    def compute(number, progress_fn):
      group = self._groups[number]
      return oracle_runs.everywhere(
        self._verifier,
        self._text(number),
        self.run_lengths[group],
        log_p_max[group, : self.max_new_tokens],
        self._eos_ids,
        self.capacities,
        progress_fn,
        self._layout,
      )

    return self._over_batches('oracle', self.max_new_tokens, compute, 'tree')

  @functools.cached_property
  def _batches(self):
    """Number of a batch -> the batch, of those that are this host's."""
    read = jax.block_until_ready(self._read_prompts())
    logging.info('the prompts are read')
    return dict(zip(self._own, read, strict=True))

  def _read_text(self, number):
    return measure.read_texts(
      self._verifier,
      self._batches[number],
      self._rows_of(self.plain, number),
      max(self.capacities),
    )

  def _rows_of(self, arrays, number):
    return {k: v[self._groups[number]] for k, v in arrays.items()}

  def _over_batches(
    self,
    name: str,
    work_per_prompt: float,
    compute: Callable[[int, Callable[[int], None]], Arrays],
    unit: str = 'tok',
  ) -> Arrays:
    """Keeps `compute(batch number, progress_fn)` of each batch as a stage.

    Hosts share out the batches.

    Args:
      name: of the measurement, unique in the study.
      work_per_prompt: for the progress bar, at most.
      compute: the measurement.
      unit: of the work.

    Returns:
      The arrays of all batches, joined along their first axis.
    """
    sizes = [len(self._groups[number]) for number in self._own]
    ends = np.round(work_per_prompt * np.cumsum(sizes)).astype(int)
    own = {}
    with tqdm.tqdm(total=sum(ends[-1:]), desc=f'{name:>14}', unit=unit) as bar:
      for number, end in zip(self._own, ends, strict=True):
        one_batch = functools.partial(compute, number, bar.update)
        own[number] = self._stages.arrays(f'{name}-{number}', one_batch)
        bar.update(end - bar.n)
    parts = list(hosts.gather(own).values())
    return {k: np.concatenate([part[k] for part in parts]) for k in parts[0]}
