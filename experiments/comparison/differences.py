"""Differences of two records, number by number, with intervals."""

import math
from collections.abc import Mapping
from typing import NamedTuple

from experiments.comparison import entries, shares
from specjax.theory import resample


class Difference(NamedTuple):
  """A number of two records.

  Attributes:
    a: in the first.
    b: in the second.
    change: `b - a`, with its interval where there is one.
    is_paired: whether the interval is of a bootstrap over the prompts of both.
  """

  a: entries.Number
  b: entries.Number
  change: entries.Number
  is_paired: bool = False


def find(
  a: Mapping[entries.Key, entries.Number],
  b: Mapping[entries.Key, entries.Number],
  shares_a: Mapping[entries.Key, shares.Share],
  shares_b: Mapping[entries.Key, shares.Share],
  seed: int,
) -> dict[entries.Key, Difference]:
  """Compares what two records have in common.

  Args:
    a: numbers of the first.
    b: numbers of the second.
    shares_a: of prompts of the first, as far as they are known.
    shares_b: of the second.
    seed: of the resamples.

  Returns:
    Differences by key, in the order of `a`.
  """
  found = {}
  for key in a:
    if key not in b:
      continue
    one, other = shares_a.get(key), shares_b.get(key)
    ends_a, ends_b = (
      _with_ends(a[key], one, seed),
      _with_ends(b[key], other, seed),
    )
    is_paired = bool(one and other and one.prompts == other.prompts)
    change = (
      paired(one, other, seed) if is_paired else independent(ends_a, ends_b)
    )
    found[key] = Difference(ends_a, ends_b, change, is_paired)
  return found


def paired(a: shares.Share, b: shares.Share, seed: int) -> entries.Number:
  """Returns `b - a` over the same prompts, 95 % of a bootstrap over them.

  Args:
    a: the first.
    b: the second, of the same prompts in the same order.
    seed: of the resamples.
  """
  interval = resample.ratio_difference(
    (b.numerators, a.numerators), (b.denominators, a.denominators), seed
  )
  return entries.Number(*(float(end) for end in interval))


def independent(a: entries.Number, b: entries.Number) -> entries.Number:
  """Returns `b - a` of numbers that know nothing of each other.

  With the distances of the values to the ends of their intervals, which need
  not be alike on both sides,

    low  = b - a - sqrt((b - low_b)^2 + (high_a - a)^2)
    high = b - a + sqrt((high_b - b)^2 + (a - low_a)^2)

  G. Zou and A. Donner, "Construction of confidence limits about effect
  measures", Statistics in Medicine 27, 2008.  Of prompts that both share it is
  too wide, since what is hard for one is hard for the other.

  Args:
    a: the first.
    b: the second.

  Returns:
    The difference; without an interval where one of them has none.
  """
  change = b.value - a.value
  if a.low is None or b.low is None:
    return entries.Number(change)
  return entries.Number(
    change,
    change - math.hypot(b.value - b.low, a.high - a.value),
    change + math.hypot(b.high - b.value, a.value - a.low),
  )


def _with_ends(number, share, seed):
  """Gives a number that has no interval that of a bootstrap over prompts."""
  if number.low is not None or share is None:
    return number
  interval = resample.ratio(share.numerators, share.denominators, seed)
  return number._replace(low=float(interval.low), high=float(interval.high))
