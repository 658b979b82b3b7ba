"""The library `transformers` as ways of decoding, on the same weights.

It is no part of what specjax needs: the extra `parity` installs it.
"""

import functools
import os
import pathlib
from collections.abc import Sequence
from types import ModuleType

from experiments.speed import rounds
from specjax.checkpoint import configs, resolve

PLAIN, LOOKUP = 'transformers', 'transformers-lookup'

# Tokens that its prompt lookup proposes, as its documentation has it.
_NUM_LOOKED_UP = 10


class Library:
  """A model that the library has loaded."""

  def __init__(self, path: str, dtype: str, model: resolve.Checkpoint):
    """Loads the model; a GGUF file's matrices become values.

    Args:
      path: what `resolve.load` takes, but for folders of ours.
      dtype: name of the type of its weights.
      model: the same, as we loaded it.

    Raises:
      ValueError: the library is not installed, or cannot read the model.
    """
    file = _find(path)
    if dtype != 'float32':
      # A cast there would round the frequencies of the positions too.
      raise ValueError(f'expected float32 with --beside, got {dtype}')
    self._torch, library = _import()
    # As many threads as this process may have, which ours takes too.
    self._torch.set_num_threads(len(os.sched_getaffinity(0)))
    if file.suffix == '.gguf':
      loaded = _from_gguf(file, configs.to_hf(model.params.config))
    else:
      loaded = library.AutoModelForCausalLM.from_pretrained(file)
    self._model = loaded.float().eval()
    self._eos_ids = list(model.tokenizer.eos_ids)

  def ways(
    self, ids: Sequence[Sequence[int]], max_new_tokens: int
  ) -> list[rounds.Way]:
    """Returns its plain decoding and its prompt lookup, at temperature 0.

    Args:
      ids: prompts as token ids, which are decoded one at a time.
      max_new_tokens: most tokens of an output.
    """
    options = {
      PLAIN: {},
      LOOKUP: {'prompt_lookup_num_tokens': _NUM_LOOKED_UP},
    }
    return [
      rounds.Way(
        name,
        1 + options.get('prompt_lookup_num_tokens', 0),
        functools.partial(self._decode, ids, max_new_tokens, options),
        functools.partial(self._go_on, ids, max_new_tokens, options),
        is_whole=True,
      )
      for name, options in options.items()
    ]

  def _decode(self, ids, max_new_tokens, options, rows, batch):
    del batch  # Ours.
    texts = [self._generate(ids[i], max_new_tokens, options) for i in rows]
    return [rounds.Output(text, 0) for text in texts]

  def _go_on(self, ids, max_new_tokens, options, place, row, text):
    begin = [*ids[row], *text[:place]]
    return self._generate(begin, max_new_tokens - place, options)

  def _generate(self, prompt, max_new_tokens, options):
    tokens = self._torch.tensor([list(prompt)])
    output = self._model.generate(
      tokens,
      attention_mask=self._torch.ones_like(tokens),
      do_sample=False,
      max_new_tokens=max_new_tokens,
      eos_token_id=self._eos_ids,
      pad_token_id=self._eos_ids[0],
      **options,
    )
    return output[0, len(prompt) :].tolist()


def _import() -> tuple[ModuleType, ModuleType]:
  try:
    import torch
    import transformers
  except ImportError as error:
    raise ValueError(
      'expected torch and transformers for --beside=transformers, got none; '
      f'SPECJAX_EXTRAS=parity launch/run.sh speedup installs them ({error})'
    ) from error
  transformers.utils.logging.set_verbosity_error()
  transformers.utils.logging.disable_progress_bar()
  return torch, transformers


def _find(path):
  """Returns the GGUF file or the Hugging Face folder of a model."""
  if path == resolve.EMBEDDED:
    return resolve.embedded_file()
  found = pathlib.Path(path).expanduser()
  if found.suffix == '.gguf' or list(found.glob('*.safetensors')):
    return found
  raise ValueError(
    'expected a .gguf file or a Hugging Face folder with --beside, got '
    f'{path!r}'
  )


def _from_gguf(file, config):
  """Fills a model by the library's own reader of such files.

  Its `from_pretrained` wants a further package for them.
  """
  import torch
  import transformers
  from transformers import modeling_gguf_pytorch_utils as reader

  config = transformers.AutoConfig.for_model(**config)
  with torch.device('meta'):
    model = transformers.AutoModelForCausalLM.from_config(config)
  rotary = model.model.rotary_emb  # Its frequencies are no weights.
  model.model.rotary_emb = type(rotary)(config)
  read = reader.load_gguf_checkpoint(
    str(file), return_tensors=True, model_to_load=model
  )
  model.load_state_dict(read['tensors'], strict=False, assign=True)
  model.tie_weights()
  return model
