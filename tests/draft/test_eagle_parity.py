"""The EAGLE-3 head against a plain PyTorch twin that reads the same files."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference_checkpoint
import reference_eagle

from specjax import sampling as sampling_lib
from specjax.checkpoint import eagle as eagle_files
from specjax.decode import prefill
from specjax.draft import base, eagle, filled
from specjax.trees import grow, shapes

torch = pytest.importorskip('torch')
safetensors_torch = pytest.importorskip('safetensors.torch')

# The last is longer than a piece.
PROMPTS = [[9, 3], [1, 2, 3, 11, 0], list(range(22)) * 3]
NUM_STEPS = 5
CONFIG = reference_eagle.CONFIG
WIDTH, FFN_WIDTH = CONFIG['hidden_size'], CONFIG['intermediate_size']
HEAD_DIM = CONFIG['head_dim']
NUM_HEADS, NUM_KV_HEADS = (
  CONFIG[f'num_{kind}_heads'] for kind in ('attention', 'key_value')
)


def linear(size_in, size_out):
  return torch.nn.Linear(size_in, size_out, bias=False)


def norm():
  return torch.nn.RMSNorm(WIDTH, eps=CONFIG['rms_norm_eps'])


class Attention(torch.nn.Module):
  """Causal attention of the entries over one another."""

  def __init__(self):
    super().__init__()
    self.q_proj = linear(2 * WIDTH, NUM_HEADS * HEAD_DIM)
    self.k_proj = linear(2 * WIDTH, NUM_KV_HEADS * HEAD_DIM)
    self.v_proj = linear(2 * WIDTH, NUM_KV_HEADS * HEAD_DIM)
    self.o_proj = linear(NUM_HEADS * HEAD_DIM, WIDTH)

  def forward(self, x):
    q, k, v = (
      project(x).unflatten(1, (-1, HEAD_DIM)).transpose(0, 1)
      for project in (self.q_proj, self.k_proj, self.v_proj)
    )
    mixed = torch.nn.functional.scaled_dot_product_attention(
      rotated(q), rotated(k), v, is_causal=True, enable_gqa=True
    )
    return self.o_proj(mixed.transpose(0, 1).flatten(1))


def rotated(x):
  """RoPE of `[heads, T, H]`, coordinate i turned with i + H / 2."""
  speeds = CONFIG['rope_theta'] ** (-torch.arange(0, HEAD_DIM, 2) / HEAD_DIM)
  turns = torch.arange(x.shape[1])[:, None] * torch.cat([speeds, speeds])
  first, second = x.chunk(2, dim=-1)
  turned = torch.cat([-second, first], dim=-1)
  return x * turns.cos() + turned * turns.sin()


class Mlp(torch.nn.Module):
  """The gated feed-forward."""

  def __init__(self):
    super().__init__()
    self.gate_proj = linear(WIDTH, FFN_WIDTH)
    self.up_proj = linear(WIDTH, FFN_WIDTH)
    self.down_proj = linear(FFN_WIDTH, WIDTH)

  def forward(self, x):
    gate = torch.nn.functional.silu(self.gate_proj(x))
    return self.down_proj(gate * self.up_proj(x))


class Layer(torch.nn.Module):
  """The decoder layer, fed with embeddings and what was known before them."""

  def __init__(self):
    super().__init__()
    self.hidden_norm = norm()
    self.input_layernorm = norm()
    self.self_attn = Attention()
    self.post_attention_layernorm = norm()
    self.mlp = Mlp()

  def forward(self, embedded, known):
    both = [self.input_layernorm(embedded), self.hidden_norm(known)]
    x = known + self.self_attn(torch.cat(both, dim=-1))
    return x + self.mlp(self.post_attention_layernorm(x))


class Head(torch.nn.Module):
  """The head; its tensors are named as the file names them."""

  def __init__(self):
    super().__init__()
    num_drafts = CONFIG['draft_vocab_size']
    self.fc = linear(3 * WIDTH, WIDTH)
    self.midlayer = Layer()
    self.norm = norm()
    self.lm_head = linear(WIDTH, num_drafts)
    self.register_buffer('d2t', torch.zeros(num_drafts, dtype=torch.int64))
    self.register_buffer('t2d', torch.zeros(CONFIG['vocab_size']).bool())

  def draft(self, embed, text, features):
    """Drafts a greedy chain behind a text.

    Args:
      embed: `[V, E]` the verifier's.
      text: token ids.
      features: `[T - 1, 3 E]` of all its tokens but the last.

    Returns:
      Logits `[NUM_STEPS, V_draft]`, states `[NUM_STEPS, E]`, and the drafts.
    """
    # The first token has nothing before it.
    known, read, logits, drafts = self.fc(features), list(text[1:]), [], []
    for _ in range(NUM_STEPS):
      state = self.midlayer(embed[read], known)[-1:]
      logits.append(self.lm_head(self.norm(state)))
      best = int(logits[-1].argmax())
      drafts.append(best + int(self.d2t[best]))
      known, read = torch.cat([known, state]), [*read, drafts[-1]]
    return torch.cat(logits).numpy(), known[-NUM_STEPS:].numpy(), drafts


@pytest.fixture(scope='module')
def model():
  return reference_eagle.verifier()


@pytest.fixture(scope='module')
def folder(tmp_path_factory):
  folder = tmp_path_factory.mktemp('head')
  reference_checkpoint.write_folder(folder, CONFIG, reference_eagle.tensors())
  return folder


@pytest.fixture(scope='module')
def theirs(model, folder):
  """What the twin drafts behind each prompt."""
  head = Head()
  file = folder / 'model.safetensors'
  head.load_state_dict(safetensors_torch.load_file(file), strict=True)
  embed = torch.from_numpy(np.array(model.weights['embed']))
  with torch.no_grad():
    return [
      head.draft(
        embed,
        prompt,
        torch.from_numpy(reference_eagle.features(model, prompt[:-1])),
      )
      for prompt in PROMPTS
    ]


@pytest.fixture(scope='module')
def ours(model, folder):
  """Parameters, reader and prompts."""
  head = eagle_files.load(folder, model, jnp.float32)
  [batch] = prefill.read_prompts(
    model, PROMPTS, max_new_tokens=NUM_STEPS, features=head.config.features
  )
  params = base.Params(model, head, sampling_lib.make(len(PROMPTS)))
  return params, eagle.reader(head.config, model.config), batch.prefix


def chain_node(tokens, depth):
  """A node of a chain, to be read behind those that were."""
  full = lambda value: jnp.full((len(PROMPTS), 1), value, jnp.int32)
  slots = jnp.arange(NUM_STEPS)
  return grow.Nodes(
    tokens=jnp.asarray(tokens, jnp.int32)[:, None],
    depths=full(depth),
    slots=full(depth),
    parent_slots=full(depth - 1 if depth else grow.NO_SLOT),
    above=jnp.broadcast_to(slots < depth, (len(PROMPTS), 1, NUM_STEPS)),
  )


def test_logits_and_states_of_a_chain_are_those_of_the_twin(ours, theirs):
  params, reader, prefix = ours
  memory, read = reader.init(params, prefix, NUM_STEPS), jax.jit(reader.read)
  tokens = base.last_tokens(prefix.tokens, prefix.lengths)
  for step in range(NUM_STEPS):
    logits, memory = read(params, memory, chain_node(tokens, step))
    for row, (their_logits, _, _) in enumerate(theirs):
      own = logits[row, 0, reference_eagle.TOKEN_IDS]
      np.testing.assert_allclose(own, their_logits[step], rtol=0, atol=1e-4)
    tokens = [drafts[step] for _, _, drafts in theirs]
  for row, (_, states, _) in enumerate(theirs):
    np.testing.assert_allclose(memory.states[row], states, rtol=0, atol=1e-4)


def test_the_drafts_are_those_of_the_twin(ours, theirs):
  params, reader, prefix = ours
  drafter = filled.best(reader, shapes.chain, 1 + NUM_STEPS, ())
  propose = jax.jit(drafter.propose, static_argnums=4)
  state = drafter.init(params, prefix)
  args = (params, state, prefix.tokens, prefix.lengths, 1 + NUM_STEPS)
  tokens = propose(*args)[0].tree.tokens
  assert tokens[:, 1:].tolist() == [drafts for _, _, drafts in theirs]
