"""What test_layouts.py asks of eight devices, tried in one process.

Prints a JSON object: name of a check -> what went wrong, '' where nothing did.
"""

import functools
import json
import math
import re
import traceback
import tracemalloc

import conftest
import jax
import jax.numpy as jnp
import numpy as np
import reference_checkpoint

from specjax import parallel, sampling
from specjax.checkpoint import configs, weights
from specjax.decode import devices, generate, loop, prefill
from specjax.draft import base, filled, lookup
from specjax.draft import reader as reader_lib
from specjax.llama import model as llama_model
from specjax.theory import entropy
from specjax.trees import shapes

EOS_IDS = (3, 8, 17)
NUM_NODES = 4
RNG = np.random.default_rng(0)
# Eleven rows, which eight devices do not share evenly; equal prompts differ in
# their seeds alone.
PROMPTS = [RNG.integers(0, 24, size).tolist() for size in (1, 9, 4, 6, 3)]
PROMPTS += [[4, 7]] * 6


@functools.cache
def tiny():
  return conftest.make_tiny(24)


@functools.cache
def layout_of(mode):
  if mode == 'parts':
    return parallel.make_layout('shard_map', num_parts=2)
  return parallel.make_layout(mode)


def drafter_of(name):
  if name == 'model':
    # Its state is a cache, whose rows are not its leading axis.
    reader = reader_lib.layer_skip(tiny().config, (0,))
    return filled.best(reader, shapes.chain, NUM_NODES, EOS_IDS)
  return lookup.make() if name == 'lookup' else None


def in_parts(layout):
  """The model as it is loaded, each group's copy shared out."""
  place = lambda path, x: jax.device_put(
    x, weights.sharding(tiny().config, path[-1].key, layout)
  )
  return tiny().replace(weights=jax.tree.map_with_path(place, tiny().weights))


def decode(name, layout=None):
  verifier = tiny() if layout is None else in_parts(layout)
  return generate.generate(
    verifier,
    PROMPTS,
    eos_ids=EOS_IDS,
    max_new_tokens=12,
    drafter=drafter_of(name),
    num_nodes=NUM_NODES,
    batch_size=len(PROMPTS),
    layout=layout,
    sampling=sampling.make(len(PROMPTS), temperature=0.9),
  )


def rows_are_those_of_one_device(name, mode):
  found, alone = decode(name, layout_of(mode)), decode(name)
  assert len({len(row.tokens) for row in alone}) > 3
  assert len({tuple(row.tokens) for row in alone[5:]}) > 3
  assert len(found) == len(alone) == len(PROMPTS)
  for one, other in zip(found, alone, strict=True):
    assert one.tokens == other.tokens
    np.testing.assert_allclose(one.log_probs, other.log_probs, atol=1e-4)
    jax.tree.map(np.testing.assert_array_equal, one.steps, other.steps)


def lowered(layout):
  """The compiled loop over devices as text, and its batch."""
  [batch] = prefill.read_prompts(
    parallel.spread(in_parts(layout), layout),
    PROMPTS,
    max_new_tokens=12,
    batch_size=len(PROMPTS),
    layout=layout,
  )
  run = generate._runner(
    drafter_of('lookup'), NUM_NODES, EOS_IDS, 'match', None
  )
  program = devices.run.lower(
    run,
    layout,
    base.Params(in_parts(layout), (), batch.sampling),
    loop.start(batch.prefix, batch.limits, (), 32),
    16,
  )
  return program.compile().as_text(), batch


COLLECTIVE = r'(all-\w+|collective-\w+|reduce-scatter)(?:-start)?\('


def devices_know_nothing_of_one_another(mode):
  text, _ = lowered(layout_of(mode))
  assert 'while(' in text
  assert not re.findall(COLLECTIVE, text)


def parts_talk_within_their_group():
  text, batch = lowered(layout_of('parts'))
  assert re.findall(COLLECTIVE, text)
  groups = set(re.findall(r'replica_groups=(\S+?),? ', text))
  # Neighbours hold the parts of one copy.
  assert groups <= {'{{0,1},{2,3},{4,5},{6,7}}', '[4,2]<=[8]'}, groups
  cache = batch.prefix.cache
  num_layers, num_rows, num_heads, *_ = cache.keys.shape
  here = cache.keys.sharding.shard_shape(cache.keys.shape)
  assert here[:3] == (num_layers, num_rows // 4, num_heads // 2)


def logits_of_parts_are_those_of_the_whole(num_parts):
  layout = parallel.make_layout('shard_map', num_parts)
  params = in_parts(layout)
  tokens = jnp.asarray(RNG.integers(0, 24, (8, 10)), jnp.int32)

  @jax.jit
  def logits(params, tokens):
    lengths = jnp.full(len(tokens), tokens.shape[1])
    hidden, _, _ = llama_model.read(params, tokens, lengths, 16)
    return llama_model.head(params, hidden)

  found = logits(params, parallel.put_rows(tokens, layout))
  np.testing.assert_allclose(found, logits(tiny(), tokens), atol=1e-4)
  here = {
    name: x.sharding.shard_shape(x.shape)[-1] / x.shape[-1]
    for name, x in params.weights['layers'].items()
  }
  assert here['gate'] == here['q'] == 1 / num_parts
  # Of the two heads of keys and values every device has its own, or both.
  assert here['k'] == here['v'] == (1 / 2 if num_parts == 2 else 1)


def a_checkpoint_comes_in_parts(num_parts):
  """And the host holds no more of it than a tensor and copies on the way."""
  layout = parallel.make_layout('shard_map', num_parts)
  config = reference_checkpoint.CASES['llama2'] | {
    'num_hidden_layers': 6,
    'hidden_size': 256,
    'intermediate_size': 512,
    'vocab_size': 512,
  }
  ours = configs.from_hf(config)
  largest = 4 * 512 * 256

  def read(name):
    rng = np.random.default_rng(sum(name.encode()))
    return rng.standard_normal(named[name], np.float32)

  named = reference_checkpoint.shapes(config)
  source = weights.Source('hf', frozenset(named), read)
  # What is compiled stays on the host; it is no part of the checkpoint.
  expected = weights.assemble(ours, source, jnp.float32)
  weights.assemble(ours, source, jnp.float32, layout)
  tracemalloc.start()
  found = weights.assemble(ours, source, jnp.float32, layout)
  most = tracemalloc.get_traced_memory()[1]
  tracemalloc.stop()
  whole = sum(4 * math.prod(shape) for shape in named.values())
  assert largest < most < 4 * largest < whole / 5
  jax.tree.map(np.testing.assert_array_equal, found, expected)
  gate = found.weights['layers']['gate']
  assert gate.sharding.shard_shape(gate.shape) == (6, 256, 512 // num_parts)


def moments_are_those_of_one_device():
  log_p = jax.nn.log_softmax(jnp.asarray(RNG.normal(size=(16, 5, 24))))
  tokens = jnp.asarray(RNG.integers(0, 24, (16, 5)), jnp.int32)
  summarise = jax.jit(lambda *x: entropy.summarise(*x, 6))
  found = summarise(*parallel.put_rows((log_p, tokens), layout_of('shard_map')))
  alone = summarise(log_p, tokens)
  assert len(found.entropy.sharding.device_set) == 8
  close = lambda x, y: np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-6)
  jax.tree.map(close, found, alone)


# What is tried, and on what.
CHECKS = {
  'lookup by pmap': (rows_are_those_of_one_device, 'lookup', 'pmap'),
  'model by pmap': (rows_are_those_of_one_device, 'model', 'pmap'),
  'plain by shard_map': (rows_are_those_of_one_device, 'plain', 'shard_map'),
  'lookup by shard_map': (rows_are_those_of_one_device, 'lookup', 'shard_map'),
  'model in parts': (rows_are_those_of_one_device, 'model', 'parts'),
  'apart by pmap': (devices_know_nothing_of_one_another, 'pmap'),
  'apart by shard_map': (devices_know_nothing_of_one_another, 'shard_map'),
  'groups of parts': (parts_talk_within_their_group,),
  'logits of 2 parts': (logits_of_parts_are_those_of_the_whole, 2),
  'logits of 4 parts': (logits_of_parts_are_those_of_the_whole, 4),
  'checkpoint in parts': (a_checkpoint_comes_in_parts, 4),
  'moments': (moments_are_those_of_one_device,),
}


def tried(check, *arguments):
  try:
    check(*arguments)
  except Exception:
    return traceback.format_exc()
  return ''


if __name__ == '__main__':
  assert jax.local_device_count() == 8
  print(json.dumps({name: tried(*check) for name, check in CHECKS.items()}))
