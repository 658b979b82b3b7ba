"""How far drafts were proposed, tried and accepted, depth by depth."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from specjax.decode import rows


class Acceptance(NamedTuple):
  """Counts of iterations by depth; entry `d - 1` is of drafts at depth `d`.

  Never rising from the first to the last field.

  Attributes:
    proposed: `[M]` the tree had a node so deep.
    reached: `[M]` the text went on to a node right above that has children, so
      that the verifier looked at drafts of this depth.
    accepted: `[M]` one of them was accepted, and belongs to the text.
  """

  proposed: np.ndarray
  reached: np.ndarray
  accepted: np.ndarray


def by_depth(steps: Sequence[rows.StepInfo]) -> Acceptance:
  """Counts the iterations of texts.

  Where a text ends inside an accepted path, what was accepted past its end
  counts as not looked at.  So, summed over depths, `accepted` and the bonus
  tokens are the tokens of the texts.

  Args:
    steps: of each text, fields `[num_steps]`.

  Returns:
    The counts, as many depths as the deepest tree has.
  """
  join = lambda name: np.concatenate([getattr(s, name) for s in steps])
  levels, emitted = join('levels'), join('emitted')
  depths = np.arange(1, levels.max(initial=0) + 1)
  count = lambda deepest: (deepest[:, None] >= depths).sum(axis=0)
  return Acceptance(
    proposed=count(levels),
    reached=count(np.minimum(join('tried'), emitted)),
    accepted=count(np.minimum(join('depth'), emitted)),
  )
