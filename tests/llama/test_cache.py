import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference_llama

from specjax.llama import cache as llama_cache
from specjax.llama import config as llama_config

CONFIG = llama_config.LlamaConfig(
  num_layers=2,
  width=8,
  ffn_width=8,
  num_heads=3,
  num_kv_heads=3,
  head_dim=4,
  vocab_size=5,
)
B, S, T = 4, 9, 6


def random_cache(seed, lengths):
  rng = np.random.RandomState(seed)
  empty = llama_cache.init(CONFIG, B, S, jnp.float32)
  return empty.replace(
    keys=jnp.asarray(rng.randn(*empty.keys.shape), jnp.float32),
    values=jnp.asarray(rng.randn(*empty.values.shape), jnp.float32),
    length=jnp.asarray(lengths, jnp.int32),
  )


def random_new_kv(seed):
  rng = np.random.RandomState(seed)
  return llama_cache.NewKV(
    keys=jnp.asarray(rng.randn(2, B, 3, 4, T), jnp.float32),
    values=jnp.asarray(rng.randn(2, B, 3, T, 4), jnp.float32),
  )


@pytest.mark.parametrize('seed', range(5))
def test_commit_is_its_slow_twin(seed):
  rng = np.random.RandomState(seed)
  # Rows 2 and 3 overrun the cache; row 0 accepts nothing.
  cache = random_cache(seed, [3, 0, S - 2, S])
  new_kv = random_new_kv(seed + 100)
  path = rng.randint(0, T, (B, 4))
  num_accepted = np.array([0, *rng.randint(1, 5, B - 1)])
  # What lies past the accepted entries may be anything.
  path[np.arange(4) >= num_accepted[:, None]] = rng.choice([-1, 99])
  got = jax.jit(llama_cache.commit)(cache, new_kv, path, num_accepted)
  expected = reference_llama.commit(
    *map(np.asarray, jax.tree.leaves((cache, new_kv))), path, num_accepted
  )
  for array, twin in zip(jax.tree.leaves(got), expected, strict=True):
    np.testing.assert_array_equal(array, twin)


@pytest.mark.parametrize('num_slots', [4, T, S])
def test_a_cache_of_a_pass_is_committed_to_an_empty_one(num_slots):
  new_kv = random_new_kv(2)
  lengths = jnp.asarray([0, 1, 3, 4], jnp.int32)
  empty = llama_cache.init(CONFIG, B, num_slots, jnp.float32)
  order = jnp.broadcast_to(jnp.arange(T), (B, T))
  expected = llama_cache.commit(empty, new_kv, order, lengths)
  got = llama_cache.of_pass(new_kv, lengths, num_slots)
  jax.tree.map(np.testing.assert_array_equal, got, expected)


def test_stash_writes_chosen_slots_and_drops_the_rest():
  cache, new_kv = random_cache(0, [1, 2, 3, 4]), random_new_kv(1)
  slots = np.tile([8, -1, 5, 9, 0, 1000], (B, 1))
  got = llama_cache.stash(cache, new_kv, slots)
  keys, values = np.array(cache.keys), np.array(cache.values)
  for token, slot in [(0, 8), (2, 5), (4, 0)]:
    keys[..., slot] = new_kv.keys[..., token]
    values[..., slot, :] = new_kv.values[..., token, :]
  np.testing.assert_array_equal(got.keys, keys)
  np.testing.assert_array_equal(got.values, values)
  np.testing.assert_array_equal(got.length, cache.length)


def test_commit_in_a_loop_makes_no_copy_of_the_cache():
  config = llama_config.PRESETS['smollm2-135m']
  cache = jax.eval_shape(lambda: llama_cache.init(config, 1, 512, jnp.float32))
  kv = jax.eval_shape(lambda: llama_cache.init(config, 1, 8, jnp.float32))
  new_kv = llama_cache.NewKV(kv.keys, kv.values)
  path = jax.ShapeDtypeStruct((1, 4), jnp.int32)

  def loop(cache, new_kv, path):
    body = lambda _, c: llama_cache.commit(c, new_kv, path, jnp.array([2]))
    return jax.lax.fori_loop(0, 10, body, cache)

  compiled = jax.jit(loop, donate_argnums=0).lower(cache, new_kv, path)
  memory = compiled.compile().memory_analysis()
  whole = cache.keys.size * 4
  assert memory.temp_size_in_bytes < whole / 10


@pytest.mark.parametrize(('batch', 'num_slots'), [(0, 4), (1, 0)])
def test_an_empty_cache_is_refused(batch, num_slots):
  with pytest.raises(ValueError, match=f'got {batch} and {num_slots}'):
    llama_cache.init(CONFIG, batch, num_slots, jnp.float32)
