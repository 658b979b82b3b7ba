"""A small EAGLE-3 checkpoint from a seed, and its slow NumPy twin.

Names, shapes and arithmetic are written out here on their own: whole texts, no
cache, float64, the matrices as the file holds them.
"""

import jax
import jax.numpy as jnp
import numpy as np

from specjax.llama import cache as llama_cache
from specjax.llama import config as llama_config
from specjax.llama import mask
from specjax.llama import model as llama_model

VOCAB, WIDTH = 23, 16
# What the head can draft; the ids of the verifier, in no order.
TOKEN_IDS = np.array([4, 1, 22, 9, 0, 17, 13, 7, 2, 11, 20])
FEATURES = (2, 3, 4)  # of 7 layers: 2, L//2, L-3
CONFIG = {
  'model_type': 'llama',
  'num_hidden_layers': 1,
  'hidden_size': WIDTH,
  'intermediate_size': 24,
  'num_attention_heads': 4,
  'num_key_value_heads': 2,
  'head_dim': 8,
  'vocab_size': VOCAB,
  'draft_vocab_size': len(TOKEN_IDS),
  'rms_norm_eps': 1e-5,
  'rope_theta': 100.0,
  'max_position_embeddings': 512,
}


def verifier(seed=0):
  """A Llama of 7 layers whose laws are neither flat nor degenerate."""
  config = llama_config.LlamaConfig(
    num_layers=7,
    width=WIDTH,
    ffn_width=32,
    num_heads=2,
    num_kv_heads=1,
    head_dim=8,
    vocab_size=VOCAB,
    max_positions=512,
  )
  params = llama_model.init_params(jax.random.key(seed), config, jnp.float32)
  sharpen = lambda x: 1.5 * x if x.ndim > 1 else x
  return params.replace(weights=jax.tree.map(sharpen, params.weights))


def tensors(seed=0):
  """Name -> array of a head: norms near 1, matrices of more than unit gain."""
  shapes = {
    'fc.weight': (WIDTH, 3 * WIDTH),
    'midlayer.hidden_norm.weight': (WIDTH,),
    'midlayer.input_layernorm.weight': (WIDTH,),
    'midlayer.post_attention_layernorm.weight': (WIDTH,),
    'midlayer.self_attn.q_proj.weight': (32, 2 * WIDTH),
    'midlayer.self_attn.k_proj.weight': (16, 2 * WIDTH),
    'midlayer.self_attn.v_proj.weight': (16, 2 * WIDTH),
    'midlayer.self_attn.o_proj.weight': (WIDTH, 32),
    'midlayer.mlp.gate_proj.weight': (24, WIDTH),
    'midlayer.mlp.up_proj.weight': (24, WIDTH),
    'midlayer.mlp.down_proj.weight': (WIDTH, 24),
    'norm.weight': (WIDTH,),
    'lm_head.weight': (len(TOKEN_IDS), WIDTH),
  }
  rng, drawn = np.random.RandomState(seed), {}
  for name, shape in shapes.items():
    noise = rng.randn(*shape)
    drawn[name] = (
      1 + noise / 5 if len(shape) == 1 else 1.5 * noise / shape[1] ** 0.5
    ).astype(np.float32)
  drawn['d2t'] = TOKEN_IDS - np.arange(len(TOKEN_IDS))
  drawn['t2d'] = np.isin(np.arange(VOCAB), TOKEN_IDS)
  return drawn


def log_law(named, model, text, drafts=()):
  """`[V]` log-probabilities in nats of the token after a text and drafts.

  The head sees entries (what was known before, token), numbered from 0; the
  first token of a text has none, unless it is the last too.

  Args:
    named: the tensors.
    model: the verifier.
    text: ids that the verifier has seen, but for the last.
    drafts: ids behind them.
  """
  named = {name: values.astype(np.float64) for name, values in named.items()}
  embed = np.asarray(model.weights['embed'], np.float64)
  before = features(model, text)[:-1].astype(np.float64)
  known = [np.zeros(WIDTH), *(before @ named['fc.weight'].T)]
  first = min(1, len(text) - 1)
  known, read = known[first:], list(text[first:])
  for token in drafts:
    known.append(_states(named, embed[read], np.array(known))[-1])
    read.append(token)
  state = _states(named, embed[read], np.array(known))[-1]
  logits = named['lm_head.weight'] @ _norm(state, named['norm.weight'])
  log_q = np.full(VOCAB, -np.inf)
  for draft_id, logit in enumerate(logits):
    log_q[draft_id + int(named['d2t'][draft_id])] = logit
  return log_q - np.log(np.exp(logits).sum())


def best_nodes(law_fn, num_nodes, width, depth):
  """The words of EAGLE-2's tree, level by level, with Python lists.

  Args:
    law_fn: drafts -> `[V]`, in nats.
    num_nodes: that are kept of all.
    width: nodes of a level that go on, and children of each.
    depth: levels below the root.
  """
  level, found = [(0.0, ())], [(0.0, ())]
  for _ in range(depth):
    children = []
    for log_q, word in level:
      law = law_fn(word)
      for token in np.argsort(-law)[:width].tolist():
        children.append((log_q + law[token], (*word, token)))
    found += children
    level = sorted(children, reverse=True)[:width]
  return {word for _, word in sorted(found, reverse=True)[:num_nodes]}


def features(model, text):
  """What the verifier says of a text, `[T, 3 E]`, in one pass.

  The text is padded, so that few shapes are compiled.
  """
  padded = np.zeros((1, -(-len(text) // 16) * 16), np.int32)
  padded[0, : len(text)] = text
  return np.array(_padded_features(model, padded)[0, : len(text)])


@jax.jit
def _padded_features(model, tokens):
  cache = llama_cache.init(model.config, 1, 1, jnp.float32)
  _, features, _ = llama_model.forward(
    model,
    tokens,
    jnp.arange(tokens.shape[1])[None],
    cache,
    mask.committed(cache.length, 1),
    mask.causal(tokens.shape[1]),
    FEATURES,
  )
  return jnp.concatenate([features[:, :, i] for i in range(3)], axis=-1)


def _states(named, embedded, known):
  """`[T, E]`: the decoder layer over all entries at once."""
  weight = lambda name: named[f'midlayer.{name}.weight']
  both = np.concatenate(
    [
      _norm(embedded, weight('input_layernorm')),
      _norm(known, weight('hidden_norm')),
    ],
    axis=1,
  )
  size = len(both)
  heads = lambda name: (both @ weight(f'self_attn.{name}').T).reshape(
    size, -1, 8
  )
  q, k, v = _turned(heads('q_proj')), _turned(heads('k_proj')), heads('v_proj')
  mixed = np.zeros_like(q)
  for t in range(size):
    for head in range(4):
      scores = k[: t + 1, head // 2] @ q[t, head] / np.sqrt(8)
      shares = np.exp(scores) / np.exp(scores).sum()
      mixed[t, head] = shares @ v[: t + 1, head // 2]
  x = known + mixed.reshape(size, -1) @ weight('self_attn.o_proj').T
  y = _norm(x, weight('post_attention_layernorm'))
  gate = y @ weight('mlp.gate_proj').T
  inner = gate / (1 + np.exp(-gate)) * (y @ weight('mlp.up_proj').T)
  return x + inner @ weight('mlp.down_proj').T


def _norm(x, scale):
  return scale * x / np.sqrt(np.mean(x**2, axis=-1, keepdims=True) + 1e-5)


def _turned(x):
  """Rotates coordinate i of each head with i + 4, by RoPE."""
  turns = np.arange(len(x))[:, None] * 100.0 ** (-np.arange(4) / 4)
  pairs = x[..., :4] + 1j * x[..., 4:]
  pairs = pairs * np.exp(1j * turns)[:, None]
  return np.concatenate([pairs.real, pairs.imag], axis=-1)
