"""Which axis of each parameter several devices may share out.

Attention is shared out by heads, the feed-forward by its inner columns, the
embedding and the head by tokens; so a layer needs one sum over devices behind
attention and one behind the feed-forward (Shoeybi et al., arXiv 1909.08053).
"""

from specjax.llama import config as llama_config

# Parameter -> the axis, and the field of the configuration that counts what is
# shared out along it.  Norms are small and whole everywhere.
_SPLITS = {
  'embed': (0, 'vocab_size'),
  'head': (0, 'vocab_size'),
  'q': (2, 'num_heads'),
  'k': (2, 'num_kv_heads'),
  'v': (2, 'num_kv_heads'),
  'o': (1, 'num_heads'),
  'gate': (2, 'ffn_width'),
  'up': (2, 'ffn_width'),
  'down': (1, 'ffn_width'),
}


def axis(
  config: llama_config.LlamaConfig, name: str, num_parts: int
) -> int | None:
  """Returns the axis along which a parameter is cut into equal parts.

  Args:
    config: of the model.
    name: of the parameter in `Params.weights`, or in its `layers`.
    num_parts: devices that share out the model.

  Returns:
    The axis; None for a parameter that every device has whole, as keys and
    values are where their heads do not divide.
  """
  if name not in _SPLITS:
    return None
  found, counted = _SPLITS[name]
  return None if getattr(config, counted) % num_parts else found
