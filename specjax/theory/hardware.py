"""Accelerators as their makers describe them, to plan without having one.

Bandwidth, peak and memory are those of data sheets, which no program reaches:
what follows from them is a forecast at best.  All of them, and the prices most
of all, are there to be replaced by your own.

Sources, looked up in November 2026:

  TPU   cloud.google.com/tpu/docs/v5e, v5p and v6e, "key chip specifications".
        Of what all links of a chip carry in both directions there, a link has a
        fourth (2 axes) or a sixth (3), and half of it each way.  A hop takes
        about a microsecond ("How to scale your model", jax-ml.github.io/
        scaling-book, part 3).
  GPU   NVIDIA's data sheets of the SXM modules of A100 80GB, H100 and H200, as
        comparisons quote them; bfloat16 without sparsity, NVLink in one
        direction.  A hop is taken to be as long as that of a TPU.

Prices are US dollars for a chip and an hour, on demand and without commitment:
of TPUs what is assumed to be Google's list for US regions in 2025; of GPUs the
middle of what large clouds asked in May 2026 by a comparison of providers
(mercatus-ai.com/blog/cloud-gpu-pricing).  They differ by a factor of two and
more between providers.

Chips are counted here, and nothing else.  Google's names of slices count chips
of v5e and v6e, where a chip has one TensorCore, but TensorCores of v5p, where
it has two: a v5p-32 has 16 chips.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from specjax.theory import roofline

# Of the memory; the rest is for activations and programs.
_USABLE = 0.9

# Powers of 2 up to this one are tried.
_MOST_CHIPS = 2**16


class Fabric(NamedTuple):
  """How chips of one kind are put together.

  Attributes:
    slices: Google's name of slices, without their size; '' where there is none.
    cores: what that size counts for a chip.
    axes: of the grid in which chips have neighbours; 0 where a switch makes all
      of them neighbours.
    lone_host: numbers of chips that a host on its own may have, rising.
    host: chips of each of several hosts.
  """

  slices: str = ''
  cores: int = 1
  axes: int = 0
  lone_host: tuple[int, ...] = (1, 2, 4, 8)
  host: int = 8


class Hardware(NamedTuple):
  """One chip.

  Attributes:
    title: its name in words.
    bandwidth: of its memory, bytes a second.
    peak: bfloat16 operations a second.
    memory: bytes.
    link: what it can send to a neighbour, bytes a second.
    price: US dollars an hour.
    fabric: how it is put together with others.
    hop: seconds to a neighbour, however little is sent.
  """

  title: str
  bandwidth: float
  peak: float
  memory: float
  link: float
  price: float
  fabric: Fabric = Fabric()
  hop: float = 1e-6


_V5E = Fabric('v5litepod', cores=1, axes=2, lone_host=(1, 4, 8), host=4)
_V5P = Fabric('v5p', cores=2, axes=3, lone_host=(4,), host=4)

PRESETS = {
  'v5e': Hardware('TPU v5e', 819e9, 197e12, 16e9, 50e9, 1.20, _V5E),
  'v5p': Hardware('TPU v5p', 2765e9, 459e12, 95e9, 100e9, 4.20, _V5P),
  'v6e': Hardware(
    'TPU v6e', 1638e9, 918e12, 32e9, 100e9, 2.70, _V5E._replace(slices='v6e')
  ),
  'a100': Hardware('A100 80GB', 2039e9, 312e12, 80e9, 300e9, 2.25),
  'h100': Hardware('H100 SXM', 3350e9, 989e12, 80e9, 450e9, 4.25),
  'h200': Hardware('H200 SXM', 4800e9, 989e12, 141e9, 450e9, 5.75),
}


def usable(chip: Hardware) -> float:
  """Returns the bytes of a chip that weights, keys and values may take.

  Args:
    chip: any.
  """
  return _USABLE * chip.memory


def chips_needed(chip: Hardware, kept_fn: Callable[[int], float]) -> int:
  """Returns how many chips hold a model: a power of 2, as they are linked.

  Args:
    chip: of which there are many.
    kept_fn: from a number of chips to the bytes that each has to hold.

  Raises:
    ValueError: what no number of chips holds, such as keys and values that
      every chip has whole.
  """
  count = 1
  while not is_room(chip, kept_fn(count)):
    count *= 2
    if count > _MOST_CHIPS:
      raise ValueError(
        f'expected what {_MOST_CHIPS} x {chip.title} hold, got '
        f'{kept_fn(count):.3g} bytes for each'
      )
  return count


def is_room(chip: Hardware, num_bytes: float) -> bool:
  """Returns whether a chip holds that much.

  Args:
    chip: any.
    num_bytes: its weights, keys and values.
  """
  return num_bytes <= usable(chip)


def grid(chip: Hardware, num_chips: int) -> tuple[int, ...]:
  """Returns the sides of the box of chips that is most like a cube.

  Args:
    chip: of which there are `num_chips`.
    num_chips: that are next to one another.
  """
  sides = [1] * chip.fabric.axes
  for factor in _prime_factors(num_chips) if sides else ():
    sides[int(np.argmin(sides))] *= factor
  return tuple(sides)


def machine(
  chip: Hardware, num_chips: int = 1, overhead: float = 0.0
) -> roofline.Machine:
  """Returns a chip of a group that shares out a model.

  In a box of chips of sides `s` the one in the corner has a link for every axis
  along which there are others; slices of fewer than 16 (v5e, v6e) or 4 (v5p,
  whole cubes alone) chips along an axis have no links around.  A sum goes from
  corner to corner and back:

    link = axes with s > 1 * link of an axis
    seconds of a sum = 2 * sum of (s - 1) * hop.

  Args:
    chip: of which there are `num_chips`.
    num_chips: of the group.
    overhead: seconds of a pass beside reading, computing and sending.
  """
  sides = grid(chip, num_chips) or (min(num_chips, 2),)
  return roofline.Machine(
    chip.bandwidth,
    chip.peak,
    overhead,
    link=chip.link * max(1, sum(side > 1 for side in sides)),
    sum_seconds=2 * chip.hop * sum(side - 1 for side in sides),
  )


def num_hosts(chip: Hardware, num_chips: int) -> int:
  """Returns on how many hosts chips are.

  Args:
    chip: of which there are `num_chips`.
    num_chips: next to one another.
  """
  if num_chips <= chip.fabric.lone_host[-1]:
    return 1
  return -(-num_chips // chip.fabric.host)


def host_chips(chip: Hardware, num_chips: int) -> int:
  """Returns how many of some chips one host has.

  Args:
    chip: of which there are `num_chips`.
    num_chips: next to one another.
  """
  return num_chips if num_hosts(chip, num_chips) == 1 else chip.fabric.host


def slice_of(chip: Hardware, num_chips: int) -> str:
  """Returns the name of the smallest slice that has that many chips.

  Args:
    chip: of which there are `num_chips`.
    num_chips: next to one another.

  Returns:
    Such as 'v5p-32' for 16 chips of v5p; '' where slices have no names.
  """
  fabric = chip.fabric
  sizes = [size for size in fabric.lone_host if size >= num_chips]
  size = min(sizes, default=num_chips)
  return fabric.slices and f'{fabric.slices}-{fabric.cores * size}'


def _prime_factors(number):
  """The prime factors of a number, the largest first."""
  found, factor = [], 2
  while number > 1:
    while number % factor == 0:
      found.append(factor)
      number //= factor
    factor += 1
  return found[::-1]
