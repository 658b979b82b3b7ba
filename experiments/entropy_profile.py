"""What do temperature and cuts do to entropy, and to what drafts can win?

Claim: lower temperatures and cuts (top-p, top-k, min-p) raise the limit of what
draft trees win, and in two ways, which are told apart: the laws of the same
contexts get sharper, and texts sampled from them visit other contexts.

  launch/run.sh entropy_profile            under 8 min on 2 cores
  launch/run.sh entropy_profile --quick    about a minute

The base is the setting of --temperature, --top_k, --top_p and --min_p.  Every
prompt is answered under the base, under each of --temperatures instead, and
under each of --cuts beside; the same noise is used for all.  Limits need texts
that were sampled from their own laws, so these settings have one.  Moments are
also found for every temperature with every cut at the contexts of the base's
texts, from one pass over them.  Temperature 0 is degenerate: mu is 0, and no
limit of this kind says anything.

Writes results/entropy_profile/<run>/: figure.png and figure.pdf, record.json
whose table has the limits, arrays.npz with the moments at every place.
"""

import pathlib
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import tqdm
from absl import flags

from experiments import (
  common,
  model_flags,
  parallel_flags,
  records,
  studies,
)
from experiments import study as study_lib
from experiments.profile import report as profile_report
from experiments.profile import tables as profile_tables
from specjax import hosts
from specjax import sampling as sampling_lib
from specjax.theory import entropy

FLAGS = flags.FLAGS

_TEMPERATURES = flags.DEFINE_list(
  'temperatures',
  ['0.8', '0.6', '0.3'],
  'Temperatures that take the place of --temperature.',
)
_CUTS = flags.DEFINE_list(
  'cuts',
  ['top_p=0.9', 'top_k=20', 'min_p=0.1'],
  'Cuts that join the base, each top_p=..., top_k=... or min_p=...',
)

NAME = 'entropy_profile'


class Setting(NamedTuple):
  """Sampling parameters, in the order of `sampling.make`."""

  temperature: float
  top_k: int = 0
  top_p: float = 1.0
  min_p: float = 0.0

  @property
  def name(self) -> str:
    """The temperature and all that cuts, such as `T=0.6,top_p=0.9`."""
    neutral = Setting(self.temperature)
    cuts = [
      f',{field}={value:g}'
      for field, value, without in zip(self._fields, self, neutral, strict=True)
      if value != without
    ]
    return f'T={self.temperature:g}{"".join(cuts)}'


class Plan(NamedTuple):
  """The settings of a run.

  Attributes:
    temperatures: the base, and what differs from it in temperature.
    cuts: the base, and what differs from it by a cut.
  """

  temperatures: list[Setting]
  cuts: list[Setting]

  @property
  def sampled(self) -> list[Setting]:
    """The settings that texts are sampled under, the base first."""
    return [*self.temperatures, *self.cuts[1:]]

  @property
  def grid(self) -> list[Setting]:
    """Every temperature with every cut, the base first."""
    return [
      cut._replace(temperature=warm.temperature)
      for warm in self.temperatures
      for cut in self.cuts
    ]


def main(layout):
  """Samples, sums up, writes, and says what came out."""
  base = Setting(FLAGS.temperature, FLAGS.top_k, FLAGS.top_p, FLAGS.min_p)
  plan = make_plan(base, _TEMPERATURES.value, _CUTS.value)
  model = model_flags.load(NAME, layout)
  prompts, ids = common.load_prompts(
    model.tokenizer, FLAGS.prompts, FLAGS.prompts_per_kind, FLAGS.max_length
  )
  if len(ids) < 2:
    raise ValueError('expected 2 prompts or more, to fit on half of them')
  folder = common.open_run(NAME)
  record = records.new_record(NAME, common.flag_values())
  texts, moments = measure(
    plan, lambda setting: _study(model, ids, setting, folder, layout)
  )
  if not hosts.is_first():  # Of what is measured all have their part.
    return
  table, facts = profile_tables.tabulate(
    texts,
    moments,
    [prompt.kind for prompt in prompts],
    FLAGS.capacities,
    FLAGS.seed,
  )
  records.write_npz(folder / 'arrays.npz', **flat_arrays(texts, moments))
  records.finish_record(
    folder,
    record,
    table,
    temperatures=[setting.name for setting in plan.temperatures],
    **facts,
  )
  profile_report.show(records.load_record(folder / 'record.json'), folder)


def make_plan(
  base: Setting, temperatures: Sequence[str], cuts: Sequence[str]
) -> Plan:
  """Reads the flags that change the base.

  Args:
    base: what is changed.
    temperatures: numbers, such as `0.6`.
    cuts: names and numbers, such as `top_p=0.9`.

  Returns:
    The plan, every setting once.

  Raises:
    ValueError: a change that is none, or a parameter out of its range.
  """
  try:
    warm = [{'temperature': float(text)} for text in temperatures]
    cut = [_read_cut(*text.split('=')) for text in cuts]
  except (KeyError, TypeError, ValueError) as error:
    raise ValueError(
      'expected --temperatures such as 0.6,0.3 and --cuts such as '
      f'top_p=0.9,top_k=20, got {",".join(temperatures)} and {",".join(cuts)}'
    ) from error
  plan = Plan(
    *(
      list(dict.fromkeys([base, *(base._replace(**c) for c in changes)]))
      for changes in (warm, cut)
    )
  )
  for setting in plan.grid:
    sampling_lib.make(1, *setting)
  return plan


def _read_cut(name, value):
  return {name: {'top_k': int, 'top_p': float, 'min_p': float}[name](value)}


def measure(
  plan: Plan, study_fn: Callable[[Setting], study_lib.Study]
) -> tuple[dict[str, entropy.Texts], dict[str, entropy.Moments]]:
  """Samples texts, and finds the moments of all laws.

  Args:
    plan: the settings.
    study_fn: makes the study of a setting; one is held at a time.

  Returns:
    By name, the texts of each sampled setting, and for each of the grid the
    moments `[R, T]` of its laws at the places of the base's texts.

  Raises:
    ValueError: the base has no entropy, so that there is no limit to raise.
  """
  texts = {}
  for setting in plan.sampled:
    tqdm.tqdm.write(setting.name, file=sys.stderr)
    study = study_fn(setting)
    texts[setting.name] = study.texts
    if setting == plan.sampled[0]:
      if entropy.moments_of_laws(study.texts.laws, study.run_lengths).mu == 0:
        raise ValueError(
          f'expected a base that has entropy, got {setting.name} with none'
        )
      grid = [sampling_lib.make(1, *other) for other in plan.grid]
      under = study.moments_under(
        jax.tree.map(lambda *x: jnp.concatenate(x), *grid)
      )
  moments = {
    setting.name: entropy.Moments(under['mu'][..., i], under['mu2'][..., i])
    for i, setting in enumerate(plan.grid)
  }
  return texts, moments


def flat_arrays(
  texts: dict[str, entropy.Texts], moments: dict[str, entropy.Moments]
) -> dict[str, np.ndarray]:
  """Gathers what was measured, by names such as `own/T=0.6/entropy`."""
  arrays = {}
  for name, own in texts.items():
    of_text = {'tokens': own.tokens, 'num_tokens': own.num_tokens}
    of_laws = {
      k: getattr(own.laws, k) for k in ('surprisal', 'entropy', 'second_moment')
    }
    arrays |= {f'own/{name}/{k}': v for k, v in {**of_text, **of_laws}.items()}
  for name, same in moments.items():
    arrays |= {f'same/{name}/{k}': v for k, v in same._asdict().items()}
  return arrays


def _study(model, ids, setting: Setting, folder: pathlib.Path, layout):
  """Makes the study of a setting, whose stages have a folder of their own."""
  return studies.open_study(
    model,
    ids,
    {},  # No drafter is run.
    setting,
    records.open_run(folder, 'texts', setting.name),
    apart_from=['capacities'],  # Limits come after all stages.
    capacities=[1],  # Texts end where runs do.
    layout=layout,
  )


if __name__ == '__main__':
  parallel_flags.define()
  common.run(
    parallel_flags.with_layout(main),
    defaults={'prompts_per_kind': 4},
    quick={
      'prompts_per_kind': 2,
      'max_new_tokens': 16,
      'capacities': [1, 4, 16],
      'temperatures': ['0.6'],
      'cuts': ['top_p=0.9'],
    },
  )
