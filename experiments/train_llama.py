"""Trains a Llama of one's own, byte by byte.

Claim: from the texts that every Python installation holds, a Llama of a million
parameters learns in 3 minutes on 2 cores to spend less than 2.2 nats on a byte
of a text that it has not seen; it then decodes as any other model does.

  launch/run.sh train_llama --quick --run_name=small
  launch/run.sh train_llama --quick --run_name=smaller --preset=100k
  launch/run.sh speed_of_light --model=results/train_llama/small/model \\
    --max_length=2048
  launch/run.sh acceptance --model=results/train_llama/small/model \\
    --max_length=2048 --drafters=lookup,model \\
    --draft_model=results/train_llama/smaller/model

Writes results/train_llama/<run>/: model/, a folder that --model takes;
train.csv, evaluation.csv and tensorboard/, how it was learnt; checkpoints/; and
record.json.  A killed run, started again with the same --run_name, goes on from
its last checkpoint and ends with the very parameters that it would have had.
"""

import itertools
import pathlib
from collections.abc import Callable, Mapping, Sequence

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl import flags

from experiments import common, datasets, records, train_flags
from specjax import tokenizer as tokenizer_lib
from specjax.checkpoint import orbax_store
from specjax.llama import config as llama_config
from specjax.llama import model as llama_model
from specjax.theory import resample
from specjax.train import data as data_lib
from specjax.train import log
from specjax.train import loss as loss_lib
from specjax.train import step as step_lib

FLAGS = flags.FLAGS

NAME = 'train_llama'

# Layers, width, feed-forward width, query heads, key/value heads.
PRESETS = {
  '100k': (2, 64, 192, 4, 2),
  '1m': (5, 128, 384, 4, 2),
  '10m': (8, 320, 896, 5, 5),
}

_PRESET = flags.DEFINE_enum(
  'preset', '1m', list(PRESETS), 'Sizes, where no flag says otherwise.'
)
_SIZES = [
  flags.DEFINE_integer(name, None, text, lower_bound=1)
  for name, text in (
    ('layers', 'Number of layers.'),
    ('width', 'Width of the residual stream.'),
    ('ffn_width', 'Width of the feed-forward parts.'),
    ('heads', 'Query heads.'),
    ('kv_heads', 'Key/value heads.'),
  )
]
_MAX_POSITIONS = flags.DEFINE_integer(
  'max_positions',
  2048,
  'Longest text that the model may be given; it learns from those of --length.',
  lower_bound=1,
)
_REMAT = flags.DEFINE_bool(
  'remat', False, 'Compute layers a second time for gradients, to save memory.'
)
_DATASET = flags.DEFINE_string(
  'dataset', 'docstrings', 'As the head of experiments/datasets.py says.'
)
_FIELDS = flags.DEFINE_list(
  'fields', [], 'Of a dataset of TFDS: text, or question and answer.'
)
_DATA_DIR = flags.DEFINE_string(
  'tfds_data_dir', None, 'Folder of datasets; that of TFDS if none.'
)
_TRAIN_SPLIT = flags.DEFINE_string('train_split', 'train', 'What is learnt.')
_EVAL_SPLIT = flags.DEFINE_string('eval_split', 'validation', 'Held out.')


def main():
  """Trains, keeps the model, and says how well it does."""
  tokenizer = tokenizer_lib.byte_level()
  preset = PRESETS[_PRESET.value]
  sizes = [
    flag.value or size for flag, size in zip(_SIZES, preset, strict=True)
  ]
  config = make_config(sizes, tokenizer.vocab_size, _MAX_POSITIONS.value)
  batches = make_batches(tokenizer, _TRAIN_SPLIT.value)
  held_out = list(
    itertools.islice(
      make_batches(tokenizer, _EVAL_SPLIT.value, num_epochs=1),
      FLAGS.eval_batches,
    )
  )
  folder = common.open_run(NAME)
  flag_values = common.flag_values()
  records.Stages(folder, flag_values)
  record = records.new_record(NAME, flag_values)
  loss_fn = loss_lib.make(
    config, dtype=jnp.dtype(FLAGS.dtype), remat=_REMAT.value
  )
  evaluate = evaluation(loss_fn, held_out)
  key = jax.random.key(FLAGS.seed)
  weights = train_flags.fit(
    loss_fn,
    llama_model.init_params(key, config, jnp.float32).weights,
    None,
    batches,
    folder,
    lambda weights: step_lib.means(evaluate(weights)),
  )
  facts = measure(folder, weights, evaluate(weights), FLAGS.seed)
  if not (folder / 'model').exists():
    params = llama_model.Params(weights, config)
    orbax_store.save(folder / 'model', params, tokenizer, {**record, **facts})
  table = log.read_table(folder / 'evaluation.csv')
  records.finish_record(folder, record, table, **facts)
  print(sentence(folder, facts))


def make_config(
  sizes: Sequence[int], vocab_size: int, max_positions: int
) -> llama_config.LlamaConfig:
  """Makes the configuration of a model whose embedding is its head.

  Args:
    sizes: as in `PRESETS`.
    vocab_size: `V`.
    max_positions: longest text that it may be given, in tokens.

  Returns:
    The configuration; query heads share the width equally.

  Raises:
    ValueError: sizes that do not fit.
  """
  num_layers, width, ffn_width, num_heads, num_kv_heads = sizes
  if width % num_heads:
    raise ValueError(
      'expected --width to be a multiple of --heads, got '
      f'{width} and {num_heads}'
    )
  return llama_config.LlamaConfig(
    num_layers=num_layers,
    width=width,
    ffn_width=ffn_width,
    num_heads=num_heads,
    num_kv_heads=num_kv_heads,
    head_dim=width // num_heads,
    vocab_size=vocab_size,
    tie_embeddings=True,
    max_positions=max_positions,
  )


def make_batches(
  tokenizer: tokenizer_lib.Tokenizer, split: str, num_epochs: int | None = None
) -> data_lib.Batches:
  """Makes the batches that the flags ask for.

  Args:
    tokenizer: of the model.
    split: of the dataset.
    num_epochs: how often each text is read; None is without end.
  """
  dataset = datasets.load(
    _DATASET.value,
    tokenizer,
    split,
    data_dir=_DATA_DIR.value,
    fields=_FIELDS.value,
  )
  return data_lib.batches(
    dataset.source,
    dataset.document_fn,
    batch_size=FLAGS.rows,
    length=FLAGS.length,
    seed=FLAGS.seed,
    num_epochs=num_epochs,
  )


def evaluation(
  loss_fn: step_lib.LossFn, held_out: Sequence[data_lib.Batch]
) -> Callable[[chex.ArrayTree], list[step_lib.Metrics]]:
  """Makes a look at the held-out batches.

  Args:
    loss_fn: what is looked at.
    held_out: the batches.

  Returns:
    From weights to the metrics of each batch.
  """
  evaluate = step_lib.make_evaluation(loss_fn)
  return lambda weights: [evaluate(weights, None, batch) for batch in held_out]


def measure(
  folder: pathlib.Path,
  weights: chex.ArrayTree,
  metrics: Sequence[step_lib.Metrics],
  seed: int,
) -> dict[str, object]:
  """Sums a run up.

  Args:
    folder: of the run.
    weights: of the model.
    metrics: of each held-out batch.
    seed: of the bootstrap.

  Returns:
    `parameters`; `train_seconds`, of all starts together; `nats_per_byte`, of
    held-out texts, as `(value, low, high)`, 95 % over batches.
  """
  losses, counts = np.array([found['loss'] for found in metrics]).T
  return {
    'parameters': sum(x.size for x in jax.tree.leaves(weights)),
    'train_seconds': log.seconds(folder),
    'nats_per_byte': [
      float(part) for part in resample.ratio(losses, counts, seed)
    ],
  }


def sentence(folder: pathlib.Path, facts: Mapping[str, object]) -> str:
  """Says what came out.

  Args:
    folder: of the run.
    facts: what `measure` returned.
  """
  value, low, high = facts['nats_per_byte']
  return (
    f'{facts["parameters"]} parameters, trained in '
    f'{facts["train_seconds"]:.0f} s, spend {value:.2f} [{low:.2f}, '
    f'{high:.2f}] nats on a byte of held-out texts (95 % over batches).\n'
    f'The model is in {folder / "model"}.'
  )


if __name__ == '__main__':
  train_flags.define(num_steps=4000, learning_rate=4e-3, rows=8, length=512)
  common.run(
    main,
    quick={
      'num_steps': 420,
      'rows': 4,
      'length': 256,
      'eval_every': 210,
      'eval_batches': 16,
    },
    shared=['dtype', 'seed', 'quick'],
  )
