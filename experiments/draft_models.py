"""Models that draft: the verifier made poorer, and what is in files."""

import math
from collections.abc import Callable, Mapping, Sequence

import jax.numpy as jnp
import numpy as np

from experiments import drafters, measure, records
from specjax.checkpoint import eagle as eagle_files
from specjax.checkpoint import packaged, resolve
from specjax.decode import prefill
from specjax.draft import dulled as dulled_lib
from specjax.draft import eagle as eagle_lib
from specjax.draft import reader as reader_lib
from specjax.llama import config as llama_config
from specjax.llama import eagle

# The dulled verifier is made for the laws of so many tokens of answers, to so
# many prompts.
_TOKENS_A_TEXT = 8
_MOST_TEXTS = 8


def load(
  names: Sequence[str],
  verifier: resolve.Checkpoint,
  prompts: Sequence[Sequence[int]],
  dtype: jnp.dtype,
  *,
  skipped_layers: Sequence[int] | None = None,
  dulled_kl: float = 0.5,
  eagle: str | None = None,
  draft_model: str | None = None,
) -> dict[str, drafters.DraftModel]:
  """Loads the models that some drafters draft with.

  Args:
    names: of drafters; those without a model are passed over.
    verifier: the model that decides.
    prompts: as token ids, whose answers `dulled` is made for.
    dtype: of the parameters of other models.
    skipped_layers: what `layer_skip` leaves out; see `kept_layers`.
    dulled_kl: mean KL(p || q) of `dulled` in nats.
    eagle: folder of the head for `eagle`; see `head`.
    draft_model: what `model` is, as `resolve.load` takes it.

  Returns:
    The models by the drafter's name.

  Raises:
    ValueError: a model that is not told or does not go with the verifier, a bad
      file, or layers that the verifier lacks.
  """
  config = verifier.params.config
  load_fns: Mapping[str, Callable[[], drafters.DraftModel]] = {
    'layer_skip': lambda: layer_skip(config, skipped_layers),
    'model': lambda: small_llama(draft_model, verifier, dtype),
    'eagle': lambda: head(eagle, verifier, dtype),
    'dulled': lambda: dulled(verifier, prompts, dulled_kl),
  }
  return {name: load_fns[name]() for name in names if name in load_fns}


def layer_skip(
  config: llama_config.LlamaConfig, skipped: Sequence[int] | None
) -> drafters.DraftModel:
  """Returns the verifier without some layers.

  Args:
    config: of the verifier.
    skipped: the layers left out; see `kept_layers`.

  Raises:
    ValueError: layers that the verifier lacks, or all that it has.
  """
  kept = kept_layers(config.num_layers, skipped)
  return drafters.DraftModel(reader_lib.layer_skip(config, kept))


def kept_layers(
  num_layers: int, skipped: Sequence[int] | None
) -> tuple[int, ...]:
  """Returns the layers that run if some are left out.

  Args:
    num_layers: `L` of the verifier.
    skipped: those left out; every third one of the middle third if None.

  Raises:
    ValueError: a layer that the verifier lacks.
  """
  if skipped is None:
    skipped = range(num_layers // 3, 2 * num_layers // 3, 3)
  if outside := [i for i in skipped if not 0 <= i < num_layers]:
    raise ValueError(
      f'expected layers in [0, {num_layers}) to leave out, got {outside[0]}'
    )
  return tuple(i for i in range(num_layers) if i not in skipped)


def head(
  folder: str | None, verifier: resolve.Checkpoint, dtype: jnp.dtype
) -> drafters.DraftModel:
  """Returns an EAGLE-3 head on the verifier.

  Args:
    folder: in the published layout; see `specjax.checkpoint.eagle`.  None takes
      the head that comes with the package.
    verifier: the model that decides.
    dtype: of the parameters.

  Raises:
    ValueError: no folder where no head comes with the verifier, a bad one, or a
      head for another verifier.
  """
  folder = folder or packaged.find(verifier.name)
  if folder is None:
    raise ValueError(
      'expected --eagle=FOLDER of an EAGLE-3 head for the drafter eagle, since '
      f'none comes with {verifier.name}, got none'
    )
  params = eagle_files.load(folder, verifier.params, dtype)
  params = eagle.ordered(params, verifier.order)
  reader = eagle_lib.reader(params.config, verifier.params.config)
  return drafters.DraftModel(reader, params, records.digest_files(folder))


def small_llama(
  path: str | None, verifier: resolve.Checkpoint, dtype: jnp.dtype
) -> drafters.DraftModel:
  """Returns another Llama of the verifier's vocabulary.

  Args:
    path: what `resolve.load` takes.
    verifier: the model that decides.
    dtype: of the parameters.

  Raises:
    ValueError: no path, a bad file, or another vocabulary.
  """
  if path is None:
    raise ValueError(
      'expected --draft_model=PATH of a Llama for the drafter model, got none'
    )
  found = resolve.load(path, dtype)
  reader = reader_lib.small_llama(found.params.config, verifier.params.config)
  if _vocabulary(found) != _vocabulary(verifier):
    raise ValueError(
      f'expected a drafter with the tokens of its verifier, got others in '
      f'{path}'
    )
  is_file = path != resolve.EMBEDDED
  content = records.digest_files(path) if is_file else ''
  return drafters.DraftModel(reader, found.params, content)


def dulled(
  verifier: resolve.Checkpoint,
  prompts: Sequence[Sequence[int]],
  divergence: float,
) -> drafters.DraftModel:
  """Returns the verifier made dull, and says how dull it is.

  Args:
    verifier: the model.
    prompts: as token ids; the laws are those along the first tokens of answers
      to some of them, sampled at temperature 1.
    divergence: mean of KL(p || q) over these laws, in nats.

  Raises:
    ValueError: a divergence below 0.
  """
  log_p = _laws(verifier, prompts[:: -(-len(prompts) // _MOST_TEXTS)])
  sigma = dulled_lib.sigma_for(log_p, divergence)
  noise = np.random.default_rng(1).normal(size=log_p.shape)
  reached = [
    dulled_lib.mean_divergence(law[None], its_noise[None], sigma)
    for law, its_noise in zip(log_p, noise, strict=True)
  ]
  error = np.std(reached) / math.sqrt(len(reached))
  print(
    f'dulled: sigma {sigma:.3f} for a mean KL(p || q) of {divergence:g} nats '
    f'over {len(log_p)} laws of answers; with noise drawn anew it is '
    f'{np.mean(reached):.3f}, standard error {error:.3f}'
  )
  return drafters.DraftModel(dulled_lib.reader(), jnp.float32(sigma))


def _laws(verifier, prompts):
  """`[M, V]` log-probabilities along answers, in nats."""
  params = verifier.params
  [batch] = prefill.read_prompts(
    params,
    prompts,
    max_new_tokens=_TOKENS_A_TEXT,
    max_length=params.config.max_positions,
    batch_size=len(prompts),
  )
  texts = measure.plain_texts(
    params,
    batch,
    verifier.tokenizer.eos_ids,
    _TOKENS_A_TEXT,
    lambda num_tokens: None,
  )
  log_p = measure.at_places(
    params,
    measure.read_texts(params, batch, texts, 0),
    texts,
    batch.sampling,
    _whole_law,
  )
  is_said = np.arange(_TOKENS_A_TEXT) < texts['num_tokens'][:, None]
  return log_p[is_said].astype(np.float64)


def _whole_law(log_p, tokens):
  del tokens
  return log_p


def _vocabulary(model):
  """What each token alone says."""
  decode = lambda i: model.tokenizer.decode([i], skip_special=False)
  return [decode(i) for i in range(model.tokenizer.vocab_size)]
