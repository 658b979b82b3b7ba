"""Log-probs of another law than the sampled one are told by their tops."""

import math

import numpy as np
import pytest
import reference_logprobs

from experiments.logprobs import check as logprob_check
from experiments.logprobs import files as logprob_files


def check(samples, base='e', written='e'):
  """Checks samples written in one base and read in another."""
  factor = math.log(logprob_check.BASES[base]) / math.log(
    logprob_check.BASES[written]
  )
  calibration = logprob_check.Calibration(base)
  calibration.add(
    [
      logprob_files.Text(
        'p',
        factor * s.log_probs,
        None if s.top is None else factor * s.top,
        True,
        'log:1',
      )
      for s in samples
    ]
  )
  calibration.check()
  return calibration


def draw(temperature, num_top=4):
  rng = np.random.default_rng(0)
  return [
    reference_logprobs.draw(rng, 50, temperature, num_top=num_top)
    for _ in range(80)
  ]


@pytest.mark.parametrize('base', ['e', '2', '10'])
def test_the_sampled_law_passes_in_its_own_base(base):
  calibration = check(draw(1.0), base, base)
  drawn, expected = calibration.shares
  assert calibration.is_known
  samples = draw(1.0)
  assert expected == pytest.approx(
    np.mean([np.exp(s.top[:, 0]) for s in samples])
  )
  assert drawn == np.mean([s.log_probs == s.top[:, 0] for s in samples])


@pytest.mark.parametrize('temperature', [0.7, 0.85, 1.4])
def test_another_temperature_is_found(temperature):
  with pytest.raises(ValueError, match='the law that was sampled, got another'):
    check(draw(temperature))


@pytest.mark.parametrize('base, written', [('e', '2'), ('2', 'e'), ('e', '10')])
def test_another_base_is_found_and_named(base, written):
  with pytest.raises(
    ValueError, match=f'of base {base}, got values that fit base {written}'
  ):
    check(draw(1.0), base, written)


def test_greedy_text_is_found():
  with pytest.raises(ValueError, match='greedy text has no entropy'):
    check(draw(0.0))


def test_a_sure_law_is_no_greedy_text():
  sure = reference_logprobs.Sample(
    np.zeros(5000), np.tile([0.0, -50.0], (5000, 1)), 'stop'
  )
  check([sure])


def test_nothing_is_said_without_a_choice():
  without = [s._replace(top=None) for s in draw(0.7)]
  assert not check(without).is_known
  # Some engines list the sampled token alone.
  alone = [s._replace(top=s.log_probs[:, None]) for s in draw(0.7)]
  assert not check(alone).is_known


def test_a_single_top_token_is_enough():
  assert check(draw(1.0, num_top=1)).is_known
  with pytest.raises(ValueError, match='got another'):
    check(draw(1.4, num_top=1))


@pytest.mark.parametrize('temperature, top_k', [(0.0, 0), (1.0, 1)])
def test_declared_greedy_text_is_refused(temperature, top_k):
  with pytest.raises(ValueError, match='greedy text'):
    logprob_check.check_declared(temperature, top_k, None)


def test_a_declared_other_law_is_refused():
  logprob_check.check_declared(0.7, 0, 0.7)
  logprob_check.check_declared(0.7, 0, None)
  with pytest.raises(ValueError, match='of temperature 1 for text of .* 0.7'):
    logprob_check.check_declared(0.7, 0, 1.0)
