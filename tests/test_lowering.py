"""Passes are lowered for accelerators, though none is here."""

import functools
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, sharding
from jax.experimental import topologies

from specjax import sampling as sampling_lib
from specjax.decode import baseline, loop, verify
from specjax.draft import base, lookup
from specjax.llama import config as llama_config
from specjax.llama import model as llama_model
from specjax.llama import storage
from specjax.trees import tree as tree_lib

STORED = ('float32', 'bfloat16', 'blocks', 'out_in', 'both')
N, S = 8, 32
CONFIG = llama_config.LlamaConfig(
  num_layers=2,
  width=64,
  ffn_width=96,
  num_heads=4,
  num_kv_heads=2,
  head_dim=16,
  vocab_size=7,
  tie_embeddings=True,
)


def stored(name):
  """A model at random, its matrices stored as the name says."""
  dtype = jnp.bfloat16 if name == 'bfloat16' else jnp.float32
  params = llama_model.init_params(jax.random.key(0), CONFIG, dtype)
  weights = params.weights
  if name in storage.ORDERS:
    layers = storage.ordered(weights['layers'], name)
    return params.replace(weights=weights | {'layers': layers})
  if name == 'blocks':
    layers = {
      name: in_blocks(stack, bits=4) if stack.ndim == 3 else stack
      for name, stack in weights['layers'].items()
    }
    embed = in_blocks(weights['embed'], bits=8)
    return params.replace(weights=weights | {'layers': layers, 'embed': embed})
  return params


def in_blocks(matrix, bits):
  """A stack `[L, in, out]` or a table `[V, E]`, in blocks along axis 1."""
  num_blocks = matrix.shape[1] // 32
  scales = jnp.full((len(matrix), num_blocks, *matrix.shape[2:]), 2.0**-8)
  if bits == 8:
    return storage.Blocks(jnp.round(matrix * 2**8).astype(jnp.int8), scales)
  pairs = jnp.round(jnp.abs(matrix[:, ::2]) * 2**8).astype(jnp.uint8)
  return storage.Blocks(pairs, scales, scales)


RUNS = {
  'plain': jax.jit(functools.partial(baseline.run, eos_ids=())),
  'speculative': jax.jit(
    functools.partial(loop.run, drafter=lookup.make(), num_nodes=N, eos_ids=())
  ),
  'tree_pass': jax.jit(verify.tree_pass),
}


def arguments(program, name, batch):
  """Those of a program of `RUNS`; prompts are of one token."""
  verifier = stored(name)
  cache = llama_model.empty_cache(verifier, batch, S)
  if program == 'tree_pass':
    nodes = jnp.arange(N)
    tree = tree_lib.Tree(nodes, (nodes - 1) // 2, jnp.zeros(N), jnp.int32(N))
    return verifier, jax.tree.map(lambda x: jnp.stack([x] * batch), tree), cache
  prefix = base.Prefix(
    tokens=jnp.full((batch, S), 3, jnp.int32),
    lengths=jnp.ones(batch, jnp.int32),
    seeds=jnp.arange(batch, dtype=jnp.uint32),
    cache=cache,
  )
  state = loop.start(prefix, jnp.full(batch, S - N), (), max_steps=S)
  return (
    base.Params(verifier, (), sampling_lib.make(batch)),
    state,
    jnp.int32(S),
  )


def shapes(program, name, batch):
  return jax.eval_shape(lambda: arguments(program, name, batch))


@functools.cache
def lowered(program, name, *platforms, batch=2):
  to_export = export.export(RUNS[program], platforms=platforms)
  return to_export(*shapes(program, name, batch))


@pytest.mark.parametrize(
  'name, platform',
  [
    *((name, 'tpu') for name in STORED),
    ('float32', 'cuda'),
    ('blocks', 'cuda'),
  ],
)
@pytest.mark.parametrize('program', RUNS)
def test_programs_lower_for_accelerators(program, name, platform):
  exported = lowered(program, name, platform)
  args = shapes(program, name, 2)
  assert exported.platforms == (platform,)
  kinds = lambda tree: [(x.shape, x.dtype) for x in jax.tree.leaves(tree)]
  assert kinds(exported.in_avals) == kinds(args)
  out = jax.eval_shape(RUNS[program], *args)
  assert kinds(exported.out_avals) == kinds(out)
  # No kernel of one platform, no call of the host.
  assert 'custom_call' not in exported.mlir_module()


# A TPU would round float32 to bfloat16 if nothing were said.
@pytest.mark.parametrize('name', STORED)
@pytest.mark.parametrize('program', ['plain', 'tree_pass'])
def test_products_are_of_full_precision(program, name):
  module = lowered(program, name, 'tpu').mlir_module()
  products = re.findall(r'= stablehlo\.dot_general.*', module)
  assert len(products) >= 7 + 4  # of a layer, and of its attention
  for product in products:
    assert 'precision = [HIGHEST, HIGHEST]' in product


def test_detours_for_a_cpu_are_left_out():
  def count(platform):
    exported = lowered('plain', 'both', platform, batch=1)
    return exported.mlir_module().count('stablehlo.case')

  assert count('tpu') == count('cuda') < count('cpu')


def test_one_module_for_all_platforms_decodes_as_the_program():
  args = arguments('speculative', 'float32', 2)
  module = lowered('speculative', 'float32', 'cpu', 'tpu', 'cuda')
  got, expected = module.call(*args), RUNS['speculative'](*args)
  assert np.all(expected.lengths == S - N)
  assert np.any(expected.steps.emitted > 1)
  jax.tree.map(np.testing.assert_array_equal, got, expected)


@pytest.mark.parametrize('name', ['float32', 'bfloat16', 'blocks'])
@pytest.mark.parametrize('program', RUNS)
def test_programs_compile_for_a_tpu(program, name, monkeypatch):
  """XLA for a TPU needs none; launch/test.sh installs it with the tpu extra."""
  pytest.importorskip('libtpu')
  monkeypatch.setenv('TPU_SKIP_MDS_QUERY', '1')
  device = topologies.get_topology_desc('v5e:2x2', 'tpu').devices[0]
  there = lambda x: jax.ShapeDtypeStruct(
    x.shape, x.dtype, sharding=sharding.SingleDeviceSharding(device)
  )
  args = jax.tree.map(there, shapes(program, name, 2))
  RUNS[program].lower(*args).compile()
