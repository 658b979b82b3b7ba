"""Are these log-probs of the law that the text was sampled from?"""

import math
from collections.abc import Sequence

import numpy as np

from experiments.logprobs import files as logprob_files

# Of the logarithms in a file.
BASES = {'e': math.e, '2': 2.0, '10': 10.0}

# Equal but for rounding, nats; a mass above 1 by rounding, and the share of
# tokens that may have more.
_SAME, _MAX_MASS, _MAX_HEAVY = 1e-6, 1.01, 1e-3
# More standard errors are no chance, and more of all tokens is no rounding.
_MAX_Z, _MAX_GAP = 5.0, 0.01
# So many misses were to be expected where there is none.
_MIN_MISSES = 10.0


def check_declared(
  temperature: float, top_k: int, logprobs_temperature: float | None
) -> None:
  """Refuses what the user himself says cannot be bounded.

  Args:
    temperature: of the text.
    top_k: of the text.
    logprobs_temperature: of the laws in the files; that of the text if none.

  Raises:
    ValueError: why.
  """
  if temperature == 0 or top_k == 1:
    raise ValueError(
      'expected sampled text, got greedy text by --temperature or --top_k: it'
      ' has no entropy to bound by'
    )
  if logprobs_temperature not in (None, temperature):
    raise ValueError(
      f'expected log-probs of the law that was sampled, got those of'
      f' temperature {logprobs_temperature:g} for text of temperature'
      f' {temperature:g}: no bound holds with them; let the engine record'
      f' log-probs after temperature, filters, penalties and biases'
    )


class Calibration:
  """Whether the most probable token is drawn as often as its probability says.

  Given what precedes, it is drawn with probability p_1, so the sum of `1[drawn]
  - p_1` over tokens, dependent as they are, has mean 0 and variance `sum p_1 (1
  - p_1)`.  Kept for every base that the logarithms may have.
  """

  def __init__(self, base: str):
    """Begins without tokens.

    Args:
      base: by which the log-probs were read, of `BASES`.
    """
    self._base = base
    self._factors = {
      name: math.log(value) / math.log(BASES[base])
      for name, value in BASES.items()
    }
    self._num_tokens, self._num_drawn, self._has_choice = 0, 0, False
    self._expected, self._variance, self._num_heavy = (
      dict.fromkeys(BASES, 0.0) for _ in range(3)
    )

  def add(self, texts: Sequence[logprob_files.Text]) -> None:
    """Adds the tokens of texts whose most probable tokens are recorded."""
    texts = [text for text in texts if text.top_log_probs is not None]
    if not texts:
      return
    best = np.concatenate([np.max(t.top_log_probs, axis=1) for t in texts])
    log_probs = np.concatenate([text.log_probs for text in texts])
    self._num_tokens += len(best)
    self._num_drawn += int(np.sum(log_probs >= best - _SAME))
    self._has_choice |= any(t.top_log_probs.shape[1] > 1 for t in texts)
    for name, factor in self._factors.items():
      p_1 = np.exp(factor * best)
      self._expected[name] += np.sum(p_1)
      self._variance[name] += np.sum(p_1 * (1.0 - p_1))
      for text in texts:
        mass = np.sum(np.exp(factor * text.top_log_probs), axis=1)
        self._num_heavy[name] += np.sum(mass > _MAX_MASS)

  @property
  def is_known(self) -> bool:
    """Whether there is anything to tell from.

    Some engines list the sampled token alone, which tells nothing.
    """
    return self._has_choice or self._num_drawn < self._num_tokens

  @property
  def shares(self) -> tuple[float, float]:
    """How often the most probable token was drawn, and should have been."""
    total = self._num_tokens
    return self._num_drawn / total, float(self._expected[self._base]) / total

  def check(self) -> None:
    """Refuses log-probs that are not of the law that was sampled.

    Raises:
      ValueError: what they are instead.
    """
    if not self.is_known:
      return
    misses = self._num_tokens - self._expected[self._base]
    if self._num_drawn == self._num_tokens and misses > _MIN_MISSES:
      raise ValueError(
        f'expected sampled text, got the most probable token at all of'
        f' {self._num_tokens} places: greedy text has no entropy to bound by'
      )
    if self._fits(self._base):
      return
    for name in BASES:
      if self._fits(name):
        raise ValueError(
          f'expected logarithms of base {self._base}, got values that fit base'
          f' {name}, if they are of the law that was sampled; see --log_base'
        )
    drawn, expected = self.shares
    raise ValueError(
      f'expected log-probs of the law that was sampled, got another: the most'
      f' probable token was drawn {drawn:.1%} of the time and should have been'
      f' {expected:.1%}; let the engine record log-probs after temperature,'
      f' filters, penalties and biases'
    )

  def _fits(self, name):
    """Whether the log-probs are of the sampled law if this is their base."""
    if self._num_heavy[name] > _MAX_HEAVY * self._num_tokens:
      return False
    excess = abs(self._num_drawn - self._expected[name])
    is_chance = excess <= _MAX_Z * math.sqrt(self._variance[name])
    return is_chance or excess <= _MAX_GAP * self._num_tokens
