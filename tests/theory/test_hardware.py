"""Chips put together: their room, their links, their hosts and their names."""

import itertools

import numpy as np
import pytest

from specjax.theory import hardware

V5E, V5P = hardware.PRESETS['v5e'], hardware.PRESETS['v5p']
H100 = hardware.PRESETS['h100']


@pytest.mark.parametrize('name', hardware.PRESETS)
def test_as_few_chips_as_there_is_room_on(name):
  chip = hardware.PRESETS[name]
  for num_bytes in (1e9, 16e9, 141e9, 500e9):
    count = hardware.chips_needed(chip, lambda n, all=num_bytes: all / n)
    assert hardware.is_room(chip, num_bytes / count)
    assert count == 1 or not hardware.is_room(chip, 2 * num_bytes / count)
  with pytest.raises(ValueError, match=f'x {chip.title} hold, got 2e.11 bytes'):
    hardware.chips_needed(chip, lambda n: 2e11)
  # A pass of many nodes computes, one of a single node reads.
  ridge = chip.peak / chip.bandwidth
  assert 100 < ridge < 1000


@pytest.mark.parametrize(
  'chip, num_chips, sides',
  [
    (V5E, 1, (1, 1)),
    (V5E, 2, (2, 1)),
    (V5E, 8, (4, 2)),
    (V5E, 16, (4, 4)),
    (V5P, 4, (2, 2, 1)),
    (V5P, 16, (4, 2, 2)),
    (V5P, 12, (3, 2, 2)),
    (H100, 8, ()),
  ],
)
def test_boxes_of_chips(chip, num_chips, sides):
  assert hardware.grid(chip, num_chips) == sides


@pytest.mark.parametrize('chip, num_chips', [(V5E, 8), (V5P, 16), (V5P, 2)])
def test_the_corner_of_a_box_by_walking_it(chip, num_chips):
  """Links of the chip that has fewest, hops of those that are farthest."""
  places = list(itertools.product(*map(range, hardware.grid(chip, num_chips))))
  assert len(places) == num_chips
  hops = lambda a, b: int(np.abs(np.subtract(a, b)).sum())
  links = min(sum(hops(a, b) == 1 for b in places) for a in places)
  farthest = max(hops(a, b) for a in places for b in places)
  machine = hardware.machine(chip, num_chips, 1e-3)
  assert machine.link == links * chip.link
  assert machine.sum_seconds == pytest.approx(2 * farthest * chip.hop)
  assert machine.overhead == 1e-3


def test_behind_a_switch_all_are_neighbours():
  for num_chips, hops in [(1, 0), (2, 1), (8, 1)]:
    machine = hardware.machine(H100, num_chips)
    assert machine.link == H100.link
    assert machine.sum_seconds == 2 * hops * H100.hop


@pytest.mark.parametrize(
  'chip, num_chips, name, hosts, chips_of_host',
  [
    (V5E, 1, 'v5litepod-1', 1, 1),
    (V5E, 2, 'v5litepod-4', 1, 2),
    (V5E, 8, 'v5litepod-8', 1, 8),
    (V5E, 16, 'v5litepod-16', 4, 4),
    (V5P, 1, 'v5p-8', 1, 1),
    (V5P, 4, 'v5p-8', 1, 4),
    # Two TensorCores a chip.
    (V5P, 16, 'v5p-32', 4, 4),
    (V5P, 32, 'v5p-64', 8, 4),
    (H100, 8, '', 1, 8),
    (H100, 16, '', 2, 8),
  ],
)
def test_names_and_hosts(chip, num_chips, name, hosts, chips_of_host):
  assert hardware.slice_of(chip, num_chips) == name
  assert hardware.num_hosts(chip, num_chips) == hosts
  assert hardware.host_chips(chip, num_chips) == chips_of_host
