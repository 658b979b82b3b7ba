import dataclasses
import functools

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference_llama
from flax import nnx

from specjax.llama import cache as llama_cache
from specjax.llama import config as llama_config
from specjax.llama import mask
from specjax.llama import model as llama_model

CONFIG = llama_config.LlamaConfig(
  num_layers=3,
  width=24,
  ffn_width=40,
  num_heads=4,
  num_kv_heads=2,
  head_dim=8,
  vocab_size=29,
)
QWEN = dataclasses.replace(CONFIG, qk_norm=True, tie_embeddings=True)
S = 16

# Compiled once a shape for all tests.
PREFILL = jax.jit(llama_model.prefill)
COMMIT = jax.jit(llama_cache.commit)
HEAD = jax.jit(llama_model.head)


@functools.cache
def random_params(config=CONFIG, dtype=jnp.float32):
  shapes = jax.eval_shape(
    lambda: llama_model.init_params(jax.random.key(0), config, dtype)
  )
  weights = reference_llama.random_weights(shapes.weights, seed=0)
  return llama_model.Params(
    jax.tree.map(lambda w: jnp.asarray(w, dtype), weights), config
  )


def random_tokens(seed, *shape):
  tokens = np.random.RandomState(seed).randint(0, CONFIG.vocab_size, shape)
  return jnp.asarray(tokens, jnp.int32)


def empty_cache(batch, config=CONFIG, dtype=jnp.float32):
  return llama_cache.init(config, batch, S, dtype)


@functools.partial(jax.jit, static_argnames=('features', 'layers'))
def run(params, tokens, positions, cache, block_mask, **static):
  opened = mask.committed(cache.length, cache.num_slots)
  return llama_model.forward(
    params, tokens, positions, cache, opened, block_mask, **static
  )


def prefill_logits(params, tokens, lengths, cache):
  hidden, cache = PREFILL(params, tokens, lengths, cache)
  return np.asarray(HEAD(params, hidden)), cache


def random_parents(seed, num_nodes):
  rng = np.random.RandomState(seed)
  return np.array([-1] + [rng.randint(0, i) for i in range(1, num_nodes)])


def root_path(parents, node):
  path = []
  while node >= 0:
    path.insert(0, node)
    node = parents[node]
  return path


def ancestors(parents):
  opened = np.zeros((len(parents), len(parents)), bool)
  for node in range(len(parents)):
    opened[node, root_path(parents, node)] = True
  return opened


@pytest.mark.parametrize('config', [CONFIG, QWEN])
def test_logits_are_those_of_the_slow_twin(config):
  params, tokens = random_params(config), random_tokens(0, 2, 9)
  got, _ = prefill_logits(
    params, tokens, jnp.array([9, 9]), empty_cache(2, config)
  )
  for row in range(2):
    expected = reference_llama.logits(
      config,
      params.weights,
      np.asarray(tokens[row]),
      np.arange(9),
      np.tril(np.ones((9, 9), bool)),
    )
    np.testing.assert_allclose(got[row], expected, atol=1e-4)


def test_one_pass_is_token_by_token():
  params, tokens = random_params(), random_tokens(1, 1, 7)
  whole, cache = prefill_logits(params, tokens, jnp.array([7]), empty_cache(1))
  steps = empty_cache(1)
  for t in range(7):
    one, steps = prefill_logits(
      params, tokens[:, t : t + 1], jnp.array([1]), steps
    )
    np.testing.assert_allclose(one[:, 0], whole[:, t], atol=1e-4)
  for array, other in zip(
    jax.tree.leaves(cache), jax.tree.leaves(steps), strict=True
  ):
    np.testing.assert_allclose(array, other, atol=1e-5)


def test_a_ragged_batch_is_its_rows_alone():
  params, tokens = random_params(), random_tokens(2, 4, 6)
  lengths = jnp.array([6, 1, 0, 4])
  got, cache = prefill_logits(params, tokens, lengths, empty_cache(4))
  more, cache = prefill_logits(params, tokens, jnp.full(4, 6), cache)
  for row, length in enumerate([6, 1, 0, 4]):
    text = jnp.concatenate([tokens[row, :length], tokens[row]])
    text = jnp.pad(text, (0, 6 - length))[None]  # one shape for all rows
    count = jnp.array([length + 6])
    alone, _ = prefill_logits(params, text, count, empty_cache(1))
    np.testing.assert_allclose(got[row, :length], alone[0, :length], atol=1e-4)
    after = alone[0, length : length + 6]
    np.testing.assert_allclose(more[row], after, atol=1e-4)
  np.testing.assert_array_equal(cache.length, lengths + 6)


def test_prefill_of_no_tokens_changes_nothing():
  cache = empty_cache(2)
  nothing = jnp.zeros((2, 0), jnp.int32)
  hidden, after = llama_model.prefill(
    random_params(), nothing, jnp.zeros(2, jnp.int32), cache
  )
  assert hidden.shape == (2, 0, CONFIG.width)
  chex.assert_trees_all_equal(cache, after)


# Kinds: attention to a slot that holds nothing, a cache of another type.
@pytest.mark.parametrize('dtype', [jnp.float32, jnp.float16, jnp.bfloat16])
def test_reading_is_prefill_of_an_empty_cache(dtype):
  params, tokens = random_params(dtype=dtype), random_tokens(10, 3, 6)
  lengths = jnp.array([6, 1, 0])
  hidden, _, cache = jax.jit(llama_model.read, static_argnums=3)(
    params, tokens, lengths, S
  )
  empty = empty_cache(3, dtype=llama_model.embed(params, tokens).dtype)
  expected, filled = PREFILL(params, tokens, lengths, empty)
  chex.assert_trees_all_equal_dtypes((hidden, cache), (expected, filled))
  atol = 0.1 if dtype == jnp.bfloat16 else 1e-5
  chex.assert_trees_all_close(
    (hidden, cache), (expected, filled), atol=atol, rtol=0
  )


@pytest.mark.parametrize('seed', range(3))
def test_tree_nodes_are_their_root_paths_run_as_chains(seed):
  params, parents = random_params(), random_parents(seed, 7)
  prompts, nodes = random_tokens(seed, 2, 5), random_tokens(seed + 9, 2, 7)
  lengths = jnp.array([5, 2])
  _, cache = prefill_logits(params, prompts, lengths, empty_cache(2))
  opened = ancestors(parents)
  depth = opened.sum(1) - 1
  hidden, _, new_kv = run(
    params, nodes, lengths[:, None] + depth, cache, jnp.asarray(opened[None])
  )
  got = HEAD(params, hidden)
  for node in range(7):
    path = root_path(parents, node)
    count, last = jnp.full(2, len(path)), len(path) - 1
    path = jnp.array([path + [0] * (6 - last)] * 2)  # padded: one shape
    chain = jnp.take_along_axis(nodes, path, axis=1)
    expected, grown = prefill_logits(params, chain, count, cache)
    np.testing.assert_allclose(got[:, node], expected[:, last], atol=1e-4)
    committed = COMMIT(cache, new_kv, path, count)
    chex.assert_trees_all_close(committed, grown, atol=1e-5)


def test_gradient_stops_at_what_is_not_an_ancestor():
  params, parents = random_params(), random_parents(4, 6)
  opened = ancestors(parents)
  nodes = jnp.arange(6)[None]  # distinct, so embedding rows tell nodes apart
  positions = jnp.asarray(opened.sum(1) - 1)[None]

  def logits(table):
    edited = params.replace(weights=params.weights | {'embed': table})
    hidden, _, _ = run(
      edited, nodes, positions, empty_cache(1), jnp.asarray(opened[None])
    )
    return llama_model.head(params, hidden)[0].sum(-1)

  reach = jax.jit(jax.jacrev(logits))(params.weights['embed'])[:, :6]
  touched = np.abs(reach).max(-1) > 0
  np.testing.assert_array_equal(touched, opened)


def test_a_query_that_sees_nothing_is_finite():
  params, tokens = random_params(), random_tokens(5, 1, 3)
  closed = jnp.zeros((1, 3, 3), bool)

  def total(params):
    hidden, _, _ = run(
      params, tokens, jnp.zeros((1, 3), int), empty_cache(1), closed
    )
    return llama_model.head(params, hidden).sum()

  chex.assert_tree_all_finite(jax.jit(jax.value_and_grad(total))(params))


def test_stashed_nodes_are_seen_through_the_cache_mask():
  params, tokens = random_params(), random_tokens(6, 1, 4)
  expected, cache = prefill_logits(
    params, tokens, jnp.array([4]), empty_cache(1)
  )
  new_kv = llama_cache.NewKV(cache.keys[..., :3], cache.values[..., :3, :])
  slots = jnp.array([[11, 15, 2]])
  scattered = llama_cache.stash(empty_cache(1), new_kv, slots)
  opened = jnp.zeros((1, 1, S), bool).at[0, 0, slots[0]].set(True)
  hidden, _, _ = llama_model.forward(
    params,
    tokens[:, 3:],
    jnp.array([[3]]),
    scattered,
    opened,
    mask.causal(1),
  )
  got = HEAD(params, hidden)
  np.testing.assert_allclose(got[:, 0], expected[:, 3], atol=1e-4)


def test_features_are_the_inputs_of_their_layers():
  params, tokens = random_params(), random_tokens(7, 1, 5)
  positions = jnp.arange(5)[None]
  _, got, _ = run(
    params,
    tokens,
    positions,
    empty_cache(1),
    mask.causal(5),
    features=(0, 2),
  )
  np.testing.assert_array_equal(got[:, :, 0], llama_model.embed(params, tokens))
  # The input of layer 2 is what layers 0 and 1 put out, before the norm.
  shallow = dataclasses.replace(CONFIG, num_layers=2)
  hidden, none, _ = run(
    params,
    tokens,
    positions,
    empty_cache(1, shallow),
    mask.causal(5),
    layers=(0, 1),
  )
  x = np.asarray(got[:, :, 1])
  scale = np.sqrt((x**2).mean(-1, keepdims=True) + CONFIG.norm_eps)
  expected = x / scale * params.weights['final_norm']
  np.testing.assert_allclose(hidden, expected, atol=1e-5)
  assert none.shape == (1, 5, 0, CONFIG.width)


def test_skipped_layers_are_as_if_absent():
  params, tokens = random_params(), random_tokens(8, 1, 5)
  two = dataclasses.replace(CONFIG, num_layers=2)
  stacks = jax.tree.map(lambda w: w[jnp.array([0, 2])], params.weights)
  weights = params.weights | {'layers': stacks['layers']}
  got, _, _ = run(
    params,
    tokens,
    jnp.arange(5)[None],
    empty_cache(1, two),
    mask.causal(5),
    layers=(0, 2),
  )
  expected, _ = PREFILL(
    llama_model.Params(weights, two),
    tokens,
    jnp.array([5]),
    empty_cache(1, two),
  )
  np.testing.assert_allclose(got, expected, atol=1e-5)


@pytest.mark.parametrize(
  ('static', 'message'),
  [
    ({'layers': (0, 3)}, 'layers of 0 to 2'),
    ({'layers': ()}, 'layers of 0 to 2'),
    ({'features': (3,)}, r'features among \(0, 1, 2\), got \(3,\)'),
    ({'layers': (0, 1)}, 'cache of 2 layers, got 3'),
  ],
)
def test_wrong_layers_are_named(static, message):
  with pytest.raises(ValueError, match=message):
    run(
      random_params(),
      random_tokens(0, 1, 2),
      jnp.arange(2)[None],
      empty_cache(1),
      mask.causal(2),
      **static,
    )


@pytest.mark.parametrize('dtype', [jnp.bfloat16, jnp.float16])
def test_narrow_weights_stay_near_float32(dtype):
  tokens, lengths = random_tokens(9, 2, 6), jnp.array([6, 6])
  exact, _ = prefill_logits(random_params(), tokens, lengths, empty_cache(2))
  cache = empty_cache(2, dtype=jnp.bfloat16)
  params = random_params(dtype=dtype)
  got, cache = prefill_logits(params, tokens, lengths, cache)
  assert got.dtype == np.float32
  assert cache.keys.dtype == jnp.bfloat16
  assert 0 < np.abs(got - exact).max() < 0.2


def test_one_trace_per_shape():
  step = jax.jit(chex.assert_max_traces(llama_model.prefill, n=2))
  cache = empty_cache(2)
  for seed in range(3):
    for num_tokens in (1, 4):
      lengths = jnp.array([1, seed % num_tokens])
      tokens = random_tokens(seed, 2, num_tokens)
      _, cache = step(random_params(), tokens, lengths, cache)


def test_a_pass_holds_one_matrix_at_most():
  config = dataclasses.replace(
    CONFIG, num_layers=12, width=256, ffn_width=768, vocab_size=2048
  )
  params = jax.eval_shape(
    lambda: llama_model.init_params(jax.random.key(0), config, jnp.float32)
  )
  cache = jax.eval_shape(lambda: empty_cache(1, config))
  tokens = jax.ShapeDtypeStruct((1, 4), jnp.int32)

  def logits(params, tokens, cache):
    hidden, cache = llama_model.prefill(params, tokens, jnp.array([4]), cache)
    return llama_model.head(params, hidden), cache

  compiled = jax.jit(logits).lower(params, tokens, cache).compile()
  # Copies of keys and values are all that grows with the layers.
  scratch = 2**18
  largest = 4 * config.width * config.ffn_width
  assert compiled.memory_analysis().temp_size_in_bytes < largest + scratch


def test_module_and_params_share_their_arrays():
  llama = llama_model.Llama(QWEN, rngs=nnx.Rngs(3), dtype=jnp.float32)
  params = llama_model.params_of(llama)
  assert params.config == QWEN
  assert 'head' not in params.weights
  assert params.weights['layers']['q'] is llama.layers.q.get_value()
  assert params.weights['layers']['q_norm'].shape == (3, 8)
