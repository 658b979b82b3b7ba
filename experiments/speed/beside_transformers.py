"""What the library `transformers` does; the extra `parity` installs it."""

import dataclasses
import functools
import os
import pathlib
from collections.abc import Sequence

import torch
import transformers
from transformers import modeling_gguf_pytorch_utils as gguf_reader

from experiments.speed import engines
from specjax.checkpoint import configs, resolve
from specjax.llama import config as llama_config

PLAIN, LOOKUP = 'transformers', 'transformers-lookup'
ASSISTED = 'transformers-assisted'

# Tokens that its prompt lookup proposes, as its documentation has it, and that
# an assistant drafts at most, its default.
_NUM_LOOKED_UP, _NUM_DRAFTED = 10, 20


def load(
  file: pathlib.Path,
  model: resolve.Checkpoint,
  *,
  dtype: str,
  assistant_layers: Sequence[int],
) -> list[engines.Engine]:
  """Loads the model; a GGUF file's matrices become values.

  Args:
    file: a .gguf file or a Hugging Face folder.
    model: the same model, as we loaded it.
    dtype: name of the type of our arithmetic.
    assistant_layers: its layers that draft in assisted decoding.

  Returns:
    Plain decoding, prompt lookup and assisted decoding.

  Raises:
    ValueError: a model or a type that it cannot take part with.
  """
  if file.suffix != '.gguf' and not list(file.glob('*.safetensors')):
    raise ValueError(
      'expected a .gguf file or a Hugging Face folder with '
      f'--beside=transformers, got {file}'
    )
  if dtype != 'float32':
    # A cast there would round the frequencies of the positions too.
    raise ValueError(
      f'expected float32 with --beside=transformers, got {dtype}'
    )
  transformers.utils.logging.set_verbosity_error()
  transformers.utils.logging.disable_progress_bar()
  # As many threads as this process may have, which ours takes too.
  torch.set_num_threads(len(os.sched_getaffinity(0)))
  config = model.params.config
  if file.suffix == '.gguf':
    loaded = _from_gguf(file, config)
  else:
    loaded = transformers.AutoModelForCausalLM.from_pretrained(file)
  loaded = loaded.float().eval()
  assistant = with_layers(loaded, config, assistant_layers)
  assistant.generation_config.num_assistant_tokens = _NUM_DRAFTED
  eos_ids = list(model.tokenizer.eos_ids)
  engine = lambda name, num_proposed, **options: engines.Engine(
    name,
    1 + num_proposed,
    functools.partial(_generate, loaded, eos_ids, options),
  )
  return [
    engine(PLAIN, 0),
    engine(LOOKUP, _NUM_LOOKED_UP, prompt_lookup_num_tokens=_NUM_LOOKED_UP),
    engine(ASSISTED, _NUM_DRAFTED, assistant_model=assistant),
  ]


def with_layers(
  loaded: transformers.PreTrainedModel,
  config: llama_config.LlamaConfig,
  kept: Sequence[int],
) -> transformers.PreTrainedModel:
  """Returns a model with some layers of another, without a copy of weights.

  Args:
    loaded: the other model.
    config: of it.
    kept: numbers of the layers.
  """
  model = _empty(dataclasses.replace(config, num_layers=len(kept)))
  model.load_state_dict(loaded.state_dict(), strict=False, assign=True)
  for layer, number in zip(model.model.layers, kept, strict=True):
    tensors = loaded.model.layers[number].state_dict()
    layer.load_state_dict(tensors, assign=True)
  return model.eval()


def _generate(model, eos_ids, options, prompt, max_new_tokens):
  tokens = torch.tensor([prompt])
  output = model.generate(
    tokens,
    attention_mask=torch.ones_like(tokens),
    do_sample=False,
    max_new_tokens=max_new_tokens,
    eos_token_id=eos_ids,
    pad_token_id=eos_ids[0],
    **options,
  )
  return output[0, len(prompt) :].tolist()


def _from_gguf(file, config):
  """Fills a model by the library's own reader of such files.

  Its `from_pretrained` wants a further package for them.
  """
  model = _empty(config)
  read = gguf_reader.load_gguf_checkpoint(
    str(file), return_tensors=True, model_to_load=model
  )
  model.load_state_dict(read['tensors'], strict=False, assign=True)
  model.tie_weights()
  return model


def _empty(config):
  """Makes a model that waits for its weights and takes no memory."""
  config = transformers.AutoConfig.for_model(**configs.to_hf(config))
  with torch.device('meta'):
    model = transformers.AutoModelForCausalLM.from_config(config)
  rotary = model.model.rotary_emb  # Its frequencies are no weights.
  model.model.rotary_emb = type(rotary)(config)
  return model
