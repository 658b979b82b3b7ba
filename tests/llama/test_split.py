"""What devices hold of models that they share out."""

import math
import pathlib

import jax
import jax.numpy as jnp
import pytest

from specjax.checkpoint import weights
from specjax.llama import config as llama_config
from specjax.llama import split
from specjax.theory import hardware

PRESETS = pathlib.Path(__file__).parents[2] / 'launch' / 'presets'


def held(config, num_parts):
  """Numbers of each parameter that one of the devices holds, and all of it."""
  shapes = weights.shapes(config, jnp.bfloat16).weights
  for path, shape in jax.tree.leaves_with_path(shapes):
    axis = split.axis(config, path[-1].key, num_parts)
    if axis is not None:
      assert shape.shape[axis] % num_parts == 0
    whole = math.prod(shape.shape)
    yield path[-1].key, whole // (num_parts if axis is not None else 1), whole


@pytest.mark.parametrize('name', llama_config.PRESETS)
@pytest.mark.parametrize('num_parts', [2, 4, 8])
def test_parts_hold_whole_heads_or_the_whole(name, num_parts):
  config = llama_config.PRESETS[name]
  for parameter, part, whole in held(config, num_parts):
    if 'norm' in parameter:
      assert part == whole
    elif parameter in ('k', 'v'):
      assert (part < whole) == (config.num_kv_heads % num_parts == 0)
    elif parameter in ('q', 'o'):
      assert (part < whole) == (config.num_heads % num_parts == 0)
    else:
      assert part * num_parts == whole


@pytest.mark.parametrize(
  'file', sorted(PRESETS.iterdir()), ids=lambda f: f.name
)
def test_presets_fit_their_chips(file):
  lines = [line for line in file.read_text().splitlines() if line[:1] != '#']
  flags = dict(line.removeprefix('--').split('=') for line in lines)
  model, chip = file.stem.split('_')
  config = llama_config.PRESETS[model]
  chip = hardware.PRESETS[chip.partition('-')[0]]
  num_parts = int(flags['model_devices'])
  num_bytes = 2 * sum(part for _, part, _ in held(config, num_parts))
  assert config.num_kv_heads % num_parts == 0
  heads = config.num_layers * config.num_kv_heads // num_parts
  num_slots = int(flags['batch_size']) * int(flags['max_length'])
  num_bytes += 2 * 2 * heads * config.head_dim * num_slots
  assert flags['dtype'] == 'bfloat16'
  assert hardware.is_room(chip, num_bytes)
  # Without parts it would not.
  whole = 2 * sum(whole for *_, whole in held(config, 1))
  assert not hardware.is_room(chip, whole)
