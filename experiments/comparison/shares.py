"""What each prompt adds to a ratio of totals, from the stages of a run.

Two runs over the same prompts can be compared prompt by prompt, which tells
smaller differences than their intervals do: what is hard for one is hard for
the other.
"""

import collections
import json
import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from experiments.comparison import entries
from specjax.theory import entropy

# A stage: what was measured, and the batch of prompts.
_STAGE = re.compile(r'(.+)-(\d+)')
# What of a run: curve, digests of the files that drafted, capacity.
_RUN = re.compile(r'(.+?)(?:-[0-9a-f]{16})*-(\d+)')

_MOMENTS = {'mu': 'entropy', 'mu2': 'second_moment'}


class Share(NamedTuple):
  """A quantity `sum numerators / sum denominators`, prompt by prompt.

  Attributes:
    prompts: digest of the prompts.
    numerators: `[R]`.
    denominators: `[R]`.
  """

  prompts: str
  numerators: np.ndarray
  denominators: np.ndarray


def find(folder: pathlib.Path) -> dict[entries.Key, Share]:
  """Returns what the stages of a run tell, under the keys of its record.

  Args:
    folder: of the run; without stages nothing is found.
  """
  found = {}
  for file in sorted(folder.rglob('flags.json')):
    flags = json.loads(file.read_text('utf-8'))
    if 'prompt_ids' in flags:
      stages = _load(file.parent / 'stages')
      setting = file.parent.name if file.parent != folder else None
      ratios = [*_runs(stages, setting)]
      if {'plain', 'laws'} <= stages.keys():
        ratios += _moments(stages, setting, flags['max_new_tokens'])
      counts = collections.Counter(key for key, _, _ in ratios)
      found |= {
        key: Share(flags['prompt_ids'], above, below)
        for key, above, below in ratios
        if counts[key] == 1  # One name may have been two heads.
      }
  return found


def _runs(
  stages: Mapping[str, Mapping[str, np.ndarray]], setting: str | None
) -> Iterator[tuple[entries.Key, np.ndarray, np.ndarray]]:
  """Yields tokens and passes of every run."""
  row = {}
  if setting and (warm := re.fullmatch(r'T=([\d.]+)', setting)):
    row['temperature'] = float(warm[1])
  for name, arrays in stages.items():
    run = _RUN.fullmatch(name)
    if run and {'num_tokens', 'num_steps'} <= arrays.keys():
      row |= {'curve': run[1], 'capacity': int(run[2])}
      key = entries.key_of('table', row, 'D')
      yield key, arrays['num_tokens'], arrays['num_steps']


def _moments(
  stages: Mapping[str, Mapping[str, np.ndarray]],
  setting: str | None,
  max_new_tokens: int,
) -> Iterator[tuple[entries.Key, np.ndarray, np.ndarray]]:
  """Yields sums of moments over the tokens of runs, and their numbers."""
  lengths = np.minimum(stages['plain']['num_tokens'], max_new_tokens)
  for moment, name in _MOMENTS.items():
    key = entries.key_of('moments', {}, moment)
    if setting:
      row = {'setting': setting, 'contexts': 'own', 'kind': None}
      key = entries.key_of('moments', row | {'moment': moment}, 'value')
    totals = entropy.row_totals(stages['laws'][name], lengths)
    yield key, np.asarray(totals), lengths


def _load(folder: pathlib.Path) -> dict[str, dict[str, np.ndarray]]:
  """Reads stages, their batches joined in order."""
  batches = collections.defaultdict(dict)
  for path in folder.glob('*.npz'):
    if stage := _STAGE.fullmatch(path.stem):
      with np.load(path, allow_pickle=False) as file:
        batches[stage[1]][int(stage[2])] = dict(file)
  joined = {}
  for name, parts in batches.items():
    ordered = [parts[number] for number in sorted(parts)]
    joined[name] = {
      key: np.concatenate([part[key] for part in ordered])
      for key in ordered[0]
      if ordered[0][key].ndim
    }
  return joined
