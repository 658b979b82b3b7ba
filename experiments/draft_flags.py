"""Flags of the experiments that try drafters, trees and rules.

They are defined by the main that reads them, before `common.run`, so that a
test may import all experiments.
"""

import math
from collections.abc import Callable, Mapping

from absl import flags

from experiments import common, number_flags, recipes

FLAGS = flags.FLAGS

# Those that say which models draft.
MODELS = ('skipped_layers', 'dulled_kl', 'eagle', 'draft_model')


def define(*names: str) -> None:
  """Defines some of the flags, as flags of the main that runs.

  Args:
    *names: of the flags, without dashes.
  """
  with common.flags_of_main():
    for name in names:
      _DEFINE[name]()


def of_models() -> dict[str, object]:
  """Returns the values of `MODELS` as `draft_models.load` takes them."""
  return {name: FLAGS[name].value for name in MODELS}


def _define_temperatures() -> None:
  text = 'Temperatures of sampling; 0 takes the best token.'
  number_flags.define_floats('temperatures', [0.0, 1.0], text)
  flags.register_validator(
    'temperatures',
    lambda values: all(map(math.isfinite, values)),  # 'nan' passes all bounds.
    'expected finite numbers',
  )


def _define_trees() -> None:
  flags.DEFINE_list(
    'trees',
    ['best_first', 'beam'],
    f'Trees for drafters that take one, of {", ".join(recipes.TREES)}, other '
    'k-ary ones and FILE.json.',
  )


def _define_rules() -> None:
  flags.DEFINE_list(
    'rules',
    ['match', 'without_replacement'],
    f'Rules of verification, of {", ".join(recipes.RULES)}.',
  )


def _define_skipped_layers() -> None:
  text = 'Layers that layer_skip leaves out, as layer_skip_search finds them.'
  number_flags.define_integers('skipped_layers', None, text, lower_bound=0)


def _define_dulled_kl() -> None:
  text = 'How dull dulled is: its mean KL(p || q) at temperature 1, in nats.'
  flags.DEFINE_float('dulled_kl', 0.5, text, lower_bound=0)
  message = 'expected a finite number'
  flags.register_validator('dulled_kl', math.isfinite, message)


def _define_eagle() -> None:
  text = (
    'Folder of an EAGLE-3 head in the published layout, for eagle; that of the '
    'package if none.'
  )
  flags.DEFINE_string('eagle', None, text)


def _define_draft_model() -> None:
  text = 'The Llama that model drafts with: whatever --model takes.'
  flags.DEFINE_string('draft_model', None, text)


_DEFINE: Mapping[str, Callable[[], None]] = {
  'temperatures': _define_temperatures,
  'trees': _define_trees,
  'rules': _define_rules,
  'skipped_layers': _define_skipped_layers,
  'dulled_kl': _define_dulled_kl,
  'eagle': _define_eagle,
  'draft_model': _define_draft_model,
}
