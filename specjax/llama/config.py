"""What one model of the Llama family is: sizes, RoPE and a few switches."""

import dataclasses

ROPE_KINDS = ('plain', 'linear', 'llama3')


@dataclasses.dataclass(frozen=True)
class RopeConfig:
  """Rotary position embedding; see `rope.inverse_frequencies`.

  Attributes:
    theta: base of the geometric series of wave lengths.
    kind: 'plain', 'linear' (positions divided by `factor`) or 'llama3'
      (only the slow frequencies divided by `factor`).
    factor: how much longer than in training the context may be.
    low_freq_factor: llama3: wave lengths above `original_max_positions /
      low_freq_factor` are divided by the whole factor.
    high_freq_factor: llama3: wave lengths below `original_max_positions /
      high_freq_factor` are left alone.
    original_max_positions: llama3: context length of the first training.
  """

  theta: float = 10000.0
  kind: str = 'plain'
  factor: float = 1.0
  low_freq_factor: float = 1.0
  high_freq_factor: float = 4.0
  original_max_positions: int = 8192

  def __post_init__(self):
    if self.kind not in ROPE_KINDS:
      raise ValueError(f'expected a rope kind in {ROPE_KINDS}, got {self.kind}')
    if self.theta <= 0 or self.factor <= 0:
      raise ValueError(
        'expected a rope theta and factor above 0, got '
        f'theta {self.theta}, factor {self.factor}'
      )
    if self.kind == 'llama3' and not (
      0 < self.low_freq_factor < self.high_freq_factor
    ):
      raise ValueError(
        'expected 0 < low_freq_factor < high_freq_factor, got '
        f'{self.low_freq_factor} and {self.high_freq_factor}'
      )


@dataclasses.dataclass(frozen=True)
class LlamaConfig:
  """Sizes and switches of one model; hashable, so it may be static to jit.

  Attributes:
    num_layers: `L`.
    width: `E`, of the residual stream.
    ffn_width: `F`, of the gated feed-forward layer.
    num_heads: `Q`, query heads.
    num_kv_heads: `K`, key/value heads; divides `Q`.
    head_dim: `H`, even.
    vocab_size: `V`.
    norm_eps: added to the mean square in RMSNorm.
    rope: rotary position embedding.
    tie_embeddings: whether the head is the embedding matrix.
    qk_norm: whether each query and key head is normalised (Qwen3).
    max_positions: the longest text that the model was made for, in tokens.
  """

  num_layers: int
  width: int
  ffn_width: int
  num_heads: int
  num_kv_heads: int
  head_dim: int
  vocab_size: int
  norm_eps: float = 1e-5
  rope: RopeConfig = RopeConfig()
  tie_embeddings: bool = False
  qk_norm: bool = False
  max_positions: int = 4096

  def __post_init__(self):
    for field in dataclasses.fields(self):
      size = getattr(self, field.name)
      if field.type is int and (not isinstance(size, int) or size < 1):
        raise ValueError(f'expected {field.name} of at least 1, got {size!r}')
    if self.num_heads % self.num_kv_heads:
      raise ValueError(
        'expected num_heads to be a multiple of num_kv_heads, got '
        f'{self.num_heads} and {self.num_kv_heads}'
      )
    if self.head_dim % 2:
      raise ValueError(f'expected an even head_dim, got {self.head_dim}')


_LLAMA_2_7B = LlamaConfig(
  num_layers=32,
  width=4096,
  ffn_width=11008,
  num_heads=32,
  num_kv_heads=32,
  head_dim=128,
  vocab_size=32000,
)
_LLAMA_3_1_8B = LlamaConfig(
  num_layers=32,
  width=4096,
  ffn_width=14336,
  num_heads=32,
  num_kv_heads=8,
  head_dim=128,
  vocab_size=128256,
  rope=RopeConfig(theta=500000.0, kind='llama3', factor=8.0),
  max_positions=131072,
)

PRESETS: dict[str, LlamaConfig] = {
  'llama-2-7b': _LLAMA_2_7B,
  'llama-2-13b': dataclasses.replace(
    _LLAMA_2_7B,
    num_layers=40,
    width=5120,
    ffn_width=13824,
    num_heads=40,
    num_kv_heads=40,
  ),
  'llama-3.1-8b': _LLAMA_3_1_8B,
  'llama-3.3-70b': dataclasses.replace(
    _LLAMA_3_1_8B, num_layers=80, width=8192, ffn_width=28672, num_heads=64
  ),
  'deepseek-r1-distill-llama-8b': _LLAMA_3_1_8B,
  'smollm2-135m': LlamaConfig(
    num_layers=30,
    width=576,
    ffn_width=1536,
    num_heads=9,
    num_kv_heads=3,
    head_dim=64,
    vocab_size=49152,
    rope=RopeConfig(theta=100000.0),
    tie_embeddings=True,
    max_positions=8192,
  ),
  'qwen3-8b': LlamaConfig(
    num_layers=36,
    width=4096,
    ffn_width=12288,
    num_heads=32,
    num_kv_heads=8,
    head_dim=128,
    vocab_size=151936,
    norm_eps=1e-6,
    rope=RopeConfig(theta=1e6),
    qk_norm=True,
    max_positions=40960,
  ),
}
