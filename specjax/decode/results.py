"""What came of prompts: texts, why they ended, how drafts fared."""

import dataclasses
from collections.abc import Sequence

import jax
import numpy as np

from specjax.decode import acceptance as acceptance_lib
from specjax.decode import phases
from specjax.decode import rows as rows_lib
from specjax.decode import transcript as transcript_lib


@dataclasses.dataclass(frozen=True)
class Generation:
  """What came of one prompt.

  Attributes:
    tokens: output ids, the token that ended the text included: one of
      `eos_ids`, or the one that completed a stop string.
    log_probs: `[len(tokens)]` log-probability of each under the verifier's
      sampled law, in nats (of temperature 1 where the temperature is 0).
    finish_reason: 'eos', 'stop' for a stop string, or 'length' where a limit
      came before either.
    text: what the tokens say, up to the stop string, without the special ones
      and the one of `eos_ids`; None without a tokenizer.
    steps: the iterations in their order, fields `[num_steps]`; None for plain
      decoding, where every iteration emits one token.
    times: where the time of the whole batch went; None if it was not asked for.
  """

  tokens: list[int]
  log_probs: np.ndarray
  finish_reason: str
  text: str | None
  steps: rows_lib.StepInfo | None
  times: phases.Times | None

  @property
  def acceptance(self) -> acceptance_lib.Acceptance | None:
    """How far drafts got, depth by depth; None for plain decoding."""
    return None if self.steps is None else acceptance_lib.by_depth([self.steps])


def collect(
  state: rows_lib.DecodeState,
  transcripts: Sequence[transcript_lib.Transcript | None],
  eos_ids: tuple[int, ...],
  with_steps: bool,
  times: phases.Times | None,
) -> list[Generation]:
  """Brings the first rows of a batch to the host.

  Args:
    state: rows that are done.
    transcripts: the text of each row that is wanted, None where it has none.
    eos_ids: tokens that end a text.
    with_steps: whether the iterations were recorded.
    times: of the batch.

  Returns:
    What came of each row.
  """
  host = jax.device_get(state.replace(cache=None, drafter=None))
  results = []
  for row, transcript in enumerate(transcripts):
    here = jax.tree.map(lambda x, r=row: x[r], host)
    output = slice(here.prompt_lengths, here.lengths)
    tokens = here.tokens[output].tolist()
    reason = 'eos' if tokens[-1] in eos_ids else 'length'
    if transcript is not None and transcript.is_stopped:
      reason = 'stop'
    results.append(
      Generation(
        tokens=tokens,
        log_probs=here.log_p[output],
        finish_reason=reason,
        text=None if transcript is None else transcript.text,
        steps=_steps(here) if with_steps else None,
        times=times,
      )
    )
  return results


def _steps(row):
  """Returns a row's iterations, none past a stop string."""
  is_text = np.arange(len(row.steps.start)) < row.num_steps
  is_text &= row.steps.start < row.lengths
  steps = jax.tree.map(lambda x: x[is_text], row.steps)
  room = row.lengths - steps.start
  return steps.replace(emitted=np.minimum(steps.emitted, room))
