"""The flags of runs of the study, as far as their passes depend on them."""

from collections.abc import Mapping

from experiments.sweeps import grid
from specjax.llama import config as llama_config

_SHARED = {
  'model': 'smollm2-135m',
  'dtype': 'float32',
  'batch_size': '8',
  'max_length': '512',
  'parallel': 'none',
  'model_devices': '1',
}
_ALL_CAPACITIES = '1,2,4,8,16,32,64'

# Experiment -> its flags and their defaults, as its --help has them.  It
# defines them only when it is the main, so here they stand again.
DEFAULTS: Mapping[str, Mapping[str, str]] = {
  'speed_of_light': {
    **_SHARED,
    'capacities': _ALL_CAPACITIES,
    'drafters': 'lookup,bigram',
    'max_new_tokens': '32',
  },
  'acceptance': {
    **_SHARED,
    'capacities': '4,16,64',
    'drafters': 'lookup,suffix,bigram,layer_skip',
    'max_new_tokens': '16',
    'rules': 'match,without_replacement',
    'temperatures': '0.0,1.0',
    'trees': 'best_first,beam',
  },
  'entropy_profile': {
    **_SHARED,
    'cuts': 'top_p=0.9,top_k=20,min_p=0.1',
    'max_new_tokens': '32',
    'temperature': '1.0',
    'temperatures': '0.8,0.6,0.3',
  },
}


def of_run(run: grid.Run) -> dict[str, str]:
  """Returns the flags of a run as text, its experiment's defaults among them.

  Args:
    run: of an experiment of `DEFAULTS`.

  Raises:
    ValueError: a run with `--quick`, which has other defaults.
  """
  given = {}
  for flag in run.flags:
    name, _, value = flag.removeprefix('--').partition('=')
    given[name] = value
  if given.get('quick', 'false') != 'false':
    raise ValueError(f'expected runs without --quick, got {run.path}')
  return {**DEFAULTS[run.experiment], **given}


def models_of(flags: Mapping[str, str]) -> list[str]:
  """Returns what is asked for as the verifier, and as a model that drafts.

  Args:
    flags: of a run.
  """
  drafts = 'model' in words(flags.get('drafters', ''))
  return [flags['model'], *[flags.get('draft_model', '')] * drafts]


def preset_of(model: str) -> str | None:
  """Returns the preset that a model is, None for an unknown one.

  Its folder is called like the preset, with or without more behind a dash:
  `models/Llama-2-7b-chat-hf` is `llama-2-7b`.

  Args:
    model: what `--model` is given.
  """
  name = model_name(model).lower()
  found = [
    preset
    for preset in llama_config.PRESETS
    if name == preset or name.startswith(f'{preset}-')
  ]
  return max(found, key=len, default=None)


def model_name(model: str) -> str:
  """Returns what a model is called: the last part of its path.

  Args:
    model: what `--model` is given.
  """
  return model.rstrip('/').rpartition('/')[2]


def words(value: str) -> list[str]:
  """Returns the parts of a list, each once.

  Args:
    value: such as `lookup,eagle`.
  """
  return list(dict.fromkeys(filter(None, value.split(','))))


def integers(value: str) -> list[int]:
  """Returns the whole numbers of a list, rising, each once.

  Args:
    value: such as `1,4,16`.

  Raises:
    ValueError: what is no whole number.
  """
  return sorted({int(word) for word in words(value)})
