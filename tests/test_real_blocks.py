"""SmolLM2 in the blocks of its file: what it says, and what a pass holds."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from experiments import drafters, identity, recipes
from specjax.checkpoint import resolve, weights
from specjax.llama import cache as llama_cache
from specjax.llama import mask, storage
from specjax.llama import model as llama_model

TEXT = 'Repeat after me: one two three, one two three, one two three.'
NUM_NEW = 24


@pytest.fixture(scope='module')
def model(smollm2):
  del smollm2  # Skips where there is none.
  return resolve.load(resolve.EMBEDDED, jnp.float32, blocks=True)


def in_order(params, order):
  layers = storage.ordered(params.weights['layers'], order)
  return params.replace(weights=params.weights | {'layers': layers})


def no_progress(num_tokens):
  del num_tokens


def test_speculation_emits_the_plain_text(model):
  ids = [model.tokenizer.chat([{'role': 'user', 'content': TEXT}])]
  eos_ids = model.tokenizer.eos_ids
  params = in_order(model.params, 'both')
  comparison = identity.Comparison(
    params, eos_ids, ids, seed=0, max_new_tokens=NUM_NEW, max_length=128
  )
  plain = comparison.plain(0.0, 1, no_progress)
  drafting = drafters.make(
    recipes.Recipe('lookup'), params, ids, max_nodes=4, eos_ids=eos_ids
  )
  arrays = comparison.compare(
    plain,
    drafting=drafting,
    num_nodes=4,
    temperature=0.0,
    batch_size=1,
    progress_fn=no_progress,
  )
  assert np.all(arrays['gap'] < arrays['limit'])
  np.testing.assert_array_equal(arrays['num_compared'], plain['num_tokens'])
  assert arrays['num_steps'].sum() < arrays['num_tokens'].sum()


def test_blocks_say_what_their_values_say(model, smollm2):
  tokens = jnp.asarray([smollm2.tokenizer.encode(TEXT)])

  @jax.jit
  def logits(params):
    hidden, *_ = llama_model.read(
      params, tokens, jnp.array([tokens.shape[1]]), tokens.shape[1]
    )
    return llama_model.head(params, hidden[0])

  of_values, of_blocks = logits(smollm2.params), logits(model.params)
  assert np.std(of_values) > 1
  np.testing.assert_allclose(of_blocks, of_values, atol=1e-4)


def steps(params, cache, tokens, num_steps):
  """Passes in a loop, out of which XLA might take copies of weights."""
  num_nodes = tokens.shape[1]
  order = jnp.arange(num_nodes)[None]

  def step(_, state):
    cache, tokens = state
    hidden, _, new_kv = llama_model.forward(
      params,
      tokens,
      cache.length[:, None] + order,
      cache,
      mask.committed(cache.length, cache.num_slots),
      mask.causal(num_nodes),
    )
    chosen = jnp.argmax(llama_model.head(params, hidden[:, -1]), axis=-1)
    cache = llama_cache.commit(cache, new_kv, order, jnp.array([1]))
    return cache, tokens.at[:, 0].set(chosen)

  return jax.lax.fori_loop(0, num_steps, step, (cache, tokens))


@pytest.mark.parametrize('order', storage.ORDERS)
@pytest.mark.parametrize('is_blocks', [True, False])
@pytest.mark.parametrize('num_nodes', [1, 8])
def test_a_pass_holds_little_beside_weights(model, order, is_blocks, num_nodes):
  config = model.params.config
  stored = model.params if is_blocks else weights.shapes(config, jnp.float32)
  params = jax.eval_shape(lambda params: in_order(params, order), stored)
  cache = jax.eval_shape(lambda: llama_cache.init(config, 1, 512, jnp.float32))
  tokens = jax.ShapeDtypeStruct((1, num_nodes), jnp.int32)
  program = jax.jit(steps, donate_argnums=1).lower(params, cache, tokens, 9)
  memory = program.compile().memory_analysis()
  # A matrix of values is 3.5 MB, the cache 23 MB, a head of values 113 MB.
  assert memory.temp_size_in_bytes < 6e6
  assert memory.alias_size_in_bytes > 23e6
