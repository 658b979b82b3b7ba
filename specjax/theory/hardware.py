"""Accelerators as their makers describe them, to plan without having one.

Bandwidth, peak and memory are those of data sheets, which no program reaches:
what follows from them is a forecast at best.  All of them, and the prices most
of all, are there to be replaced by your own.

Sources, looked up in November 2026:

  TPU   cloud.google.com/tpu/docs/v5e, v5p and v6e, "key chip specifications".
        A link counts both directions there, here one.
  GPU   NVIDIA's data sheets of the SXM modules of A100 80GB, H100 and H200, as
        comparisons quote them; bfloat16 without sparsity, NVLink in one
        direction.

Prices are US dollars for a chip and an hour, on demand and without commitment:
of TPUs Google's list prices for US regions in 2025, from memory; of GPUs the
middle of what large clouds asked in May 2026 by a comparison of providers
(mercatus-ai.com/blog/cloud-gpu-pricing).  They differ by a factor of two and
more between providers.
"""

from typing import NamedTuple

import numpy as np

from specjax.theory import roofline

# Of the memory; the rest is for activations and programs.
_USABLE = 0.9


class Hardware(NamedTuple):
  """One chip.

  Attributes:
    title: its name in words.
    bandwidth: of its memory, bytes a second.
    peak: bfloat16 operations a second.
    memory: bytes.
    link: what it can send to others, bytes a second.
    price: US dollars an hour.
  """

  title: str
  bandwidth: float
  peak: float
  memory: float
  link: float
  price: float


PRESETS = {
  'v5e': Hardware('TPU v5e', 819e9, 197e12, 16e9, 200e9, 1.20),
  'v5p': Hardware('TPU v5p', 2765e9, 459e12, 95e9, 600e9, 4.20),
  'v6e': Hardware('TPU v6e', 1638e9, 918e12, 32e9, 400e9, 2.70),
  'a100': Hardware('A100 80GB', 2039e9, 312e12, 80e9, 300e9, 2.25),
  'h100': Hardware('H100 SXM', 3350e9, 989e12, 80e9, 450e9, 4.25),
  'h200': Hardware('H200 SXM', 4800e9, 989e12, 141e9, 450e9, 5.75),
}


def chips_needed(chip: Hardware, num_bytes: float) -> int:
  """Returns how many chips hold that much: a power of 2, as they are linked.

  Args:
    chip: of which there are many.
    num_bytes: weights, keys and values.
  """
  return 2 ** max(0, int(np.ceil(np.log2(num_bytes / (_USABLE * chip.memory)))))


def is_room(chip: Hardware, num_chips: int, num_bytes: float) -> bool:
  """Returns whether chips hold that much.

  Args:
    chip: of which there are `num_chips`.
    num_chips: that share the load.
    num_bytes: weights, keys and values.
  """
  return num_bytes <= _USABLE * chip.memory * num_chips


def machine(
  chip: Hardware, num_chips: int = 1, overhead: float = 0.0
) -> roofline.Machine:
  """Returns a machine of chips that share every matrix.

  Args:
    chip: of which there are `num_chips`.
    num_chips: that share the load.
    overhead: seconds of a pass beside reading, computing and sending.
  """
  return roofline.Machine(
    chip.bandwidth, chip.peak, overhead, chip.link, num_chips
  )
