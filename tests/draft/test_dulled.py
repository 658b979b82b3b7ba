"""How dull the dulled verifier is."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference_decode

from specjax.decode import prefill
from specjax.draft import base, dulled
from specjax.trees import grow


def random_laws(seed, num_laws, vocab_size):
  rng = np.random.default_rng(seed)
  logits = 2 * rng.normal(size=(num_laws, vocab_size))
  logits[0, 1:] = -np.inf
  logits[1, 3:] = -np.inf
  return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))


def slow_divergence(log_p, noise, sigma):
  total = 0.0
  for law, g in zip(log_p, noise, strict=True):
    kept = np.isfinite(law)
    p = np.exp(law[kept])
    q = p * np.exp(sigma * g[kept])
    total += np.sum(p * np.log(p / (q / q.sum())))
  return total / len(log_p)


def test_mean_divergence_equals_its_definition():
  log_p = random_laws(0, 6, 11)
  noise = np.random.default_rng(1).normal(size=log_p.shape)
  for sigma in (0.0, 0.3, 2.0):
    got = dulled.mean_divergence(log_p, noise, sigma)
    np.testing.assert_allclose(
      got, slow_divergence(log_p, noise, sigma), atol=1e-12
    )


# Kinds: noise of tokens that cannot be hides those that can.
def test_a_divergence_of_unlikely_tokens_is_finite():
  log_p = np.array([[0.0, -300 * np.log(10), -np.inf]])
  got = dulled.mean_divergence(log_p, np.array([[0.0, 1.0, 900.0]]), 800.0)
  np.testing.assert_allclose(got, 800 - 300 * np.log(10), rtol=1e-6)


@pytest.mark.parametrize('divergence', [0.01, 0.5, 3.0])
def test_sigma_gives_the_divergence_that_was_asked_for(divergence):
  log_p = random_laws(2, 2000, 30)
  sigma = dulled.sigma_for(log_p, divergence)
  fresh = np.random.default_rng(7).normal(size=log_p.shape)
  got = slow_divergence(log_p, fresh, sigma)
  np.testing.assert_allclose(got, divergence, rtol=0.1)
  assert dulled.sigma_for(log_p, 0.0) < 1e-9


def test_the_drafter_loses_what_sigma_was_made_for(tiny):
  rng = np.random.default_rng(0)
  prompts = rng.integers(0, 23, (256, 3)).tolist()
  laws = [reference_decode.logits_after(tiny, p)[-1] for p in prompts]
  log_p = np.asarray(jax.nn.log_softmax(jnp.asarray(laws)))
  sigma = dulled.sigma_for(log_p, 0.3)
  [batch] = prefill.read_prompts(
    tiny, prompts, max_new_tokens=1, batch_size=len(prompts)
  )
  prefix = batch.prefix
  params = base.Params(tiny, jnp.float32(sigma), batch.sampling)
  reader = dulled.reader()
  roots = base.last_tokens(prefix.tokens, prefix.lengths)[:, None]
  nodes = grow.Nodes(
    tokens=roots,
    depths=jnp.zeros_like(roots),
    slots=jnp.zeros_like(roots),
    parent_slots=jnp.full_like(roots, grow.NO_SLOT),
    above=jnp.zeros((*roots.shape, 1), bool),
  )
  memory = reader.init(params, prefix, 1)
  logits = jax.jit(reader.read)(params, memory, nodes)[0][:, 0]
  log_q = np.asarray(jax.nn.log_softmax(logits))
  lost = np.sum(np.exp(log_p) * (log_p - log_q), axis=1)
  error = lost.std() / np.sqrt(len(lost))
  assert abs(lost.mean() - 0.3) < 4 * error
  # Equal contexts err alike, and no others.
  gaps = np.abs((log_q - log_p)[:, None] - (log_q - log_p)).max(axis=2)
  same = np.all(np.array(prompts)[:, None] == np.array(prompts), axis=2)
  assert same.sum() > len(prompts)
  np.testing.assert_array_equal(gaps < 1e-3, same)


@pytest.mark.parametrize(
  'log_p, divergence, message',
  [
    (np.log([[0.5, 0.5]]), -0.1, 'divergence >= 0, got -0.1'),
    (np.array([[0.0, -np.inf]]), 0.1, 'more than one token'),
  ],
)
def test_what_cannot_be_dulled_is_refused(log_p, divergence, message):
  with pytest.raises(ValueError, match=message):
    dulled.sigma_for(log_p, divergence)
