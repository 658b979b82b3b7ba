"""Slow NumPy twins of the Llama pass and of its cache, in float64."""

import numpy as np


def random_weights(shapes, seed):
  """Weights that any program can draw again from the seed.

  Args:
    shapes: nested dicts of things with a `shape`, as `Params.weights`.
    seed: of one `RandomState`, read in alphabetical order of names.

  Returns:
    The same dicts of float32 arrays: vectors near 1, matrices and tables of
    the standard deviation `1/sqrt(their smaller side)`.
  """
  rng = np.random.RandomState(seed)

  def draw(name, node):
    if isinstance(node, dict):
      return {key: draw(key, node[key]) for key in sorted(node)}
    noise = rng.randn(*node.shape)
    if name.endswith('norm'):
      return (1 + 0.1 * noise).astype(np.float32)
    return (noise / min(node.shape[-2:]) ** 0.5).astype(np.float32)

  return draw('', shapes)


def logits(config, weights, tokens, positions, visible):
  """Logits of one row of tokens by one full pass, one query at a time.

  Args:
    config: `LlamaConfig` without RoPE scaling.
    weights: as in `Params`, of NumPy arrays.
    tokens: `[T]`.
    positions: `[T]`.
    visible: `[T, T]` bool, query by key.

  Returns:
    `[T, V]`.
  """
  weights = _float64(weights)
  group = config.num_heads // config.num_kv_heads
  x = weights['embed'][tokens]
  for number in range(config.num_layers):
    layer = {name: w[number] for name, w in weights['layers'].items()}
    h = _norm(config, x, layer['attention_norm'])
    heads = lambda y: y.reshape(len(tokens), -1, config.head_dim)
    q, k, v = (heads(h @ layer[name]) for name in 'qkv')
    if config.qk_norm:
      q = _norm(config, q, layer['q_norm'])
      k = _norm(config, k, layer['k_norm'])
    q, k = _rotate(config, q, positions), _rotate(config, k, positions)
    mixed = np.zeros_like(q)
    for t in range(len(tokens)):
      keys = np.flatnonzero(visible[t])
      for head in range(config.num_heads):
        scores = k[keys, head // group] @ q[t, head] / config.head_dim**0.5
        shares = np.exp(scores - scores.max())
        mixed[t, head] = shares @ v[keys, head // group] / shares.sum()
    x = x + mixed.reshape(len(tokens), -1) @ layer['o']
    h = _norm(config, x, layer['ffn_norm'])
    gate = h @ layer['gate']
    x = x + (gate / (1 + np.exp(-gate)) * (h @ layer['up'])) @ layer['down']
  head = weights['embed' if config.tie_embeddings else 'head']
  return _norm(config, x, weights['final_norm']) @ head.T


def commit(keys, values, length, new_keys, new_values, path, num_accepted):
  """`cache.commit`, one token at a time; arrays as there."""
  keys, values, num_slots = keys.copy(), values.copy(), keys.shape[-1]
  for row, count in enumerate(num_accepted):
    for order in range(count):
      slot, token = length[row] + order, path[row, order]
      if slot < num_slots:
        keys[:, row, :, :, slot] = new_keys[:, row, :, :, token]
        values[:, row, :, slot] = new_values[:, row, :, token]
  return keys, values, length + num_accepted


def _float64(tree):
  if isinstance(tree, dict):
    return {name: _float64(value) for name, value in tree.items()}
  return np.asarray(tree, np.float64)


def _norm(config, x, scale):
  return x / np.sqrt((x**2).mean(-1, keepdims=True) + config.norm_eps) * scale


def _rotate(config, x, positions):
  """As complex numbers: coordinate `i` and `i + H/2` are one of them."""
  half = config.head_dim // 2
  speeds = config.rope.theta ** (-np.arange(half) / half)
  turned = (x[..., :half] + 1j * x[..., half:]) * np.exp(
    1j * positions[:, None, None] * speeds
  )
  return np.concatenate([turned.real, turned.imag], axis=-1)
