"""Trains an EAGLE-3 head on texts that its verifier wrote.

  launch/run.sh make_self_data --run_name=self
  launch/run.sh train_eagle --run_name=head \\
    --self_data=results/make_self_data/self/texts

First the verifier reads all texts, once, and what it says of them is kept; then
the head learns from that, epoch by epoch.  Each --unroll weighs a step of
drafting that is trained: the first drafts from the verifier's features, the
others from the head's own states.

Writes results/train_eagle/<run>/: lessons/ (about 5 kB a token; --lessons puts
them elsewhere, to be shared among runs), checkpoints/, train.csv and
evaluation.csv, tensorboard/, head/ (for --eagle of other experiments), figure
and record.json.  A killed run, started again with the same --run_name, goes on
where it stopped, exactly.
"""

import dataclasses
import pathlib
import sys
from collections.abc import Mapping

import chex
import jax
import jax.numpy as jnp
import numpy as np
from absl import flags

from experiments import common, records, train_flags
from experiments.heads import reading, report
from specjax import parallel
from specjax.checkpoint import packaged, resolve
from specjax.llama import eagle as eagle_lib
from specjax.train import eagle, lesson_files, log
from specjax.train import step as step_lib

FLAGS = flags.FLAGS

NAME = 'train_eagle'

_TEXTS = flags.DEFINE_string(
  'self_data', None, 'Folder of texts that make_self_data wrote.'
)
_LESSONS = flags.DEFINE_string(
  'lessons',
  None,
  "Folder of lessons to share among runs; the run's own if none.",
)
_DRAFT_VOCAB = flags.DEFINE_integer(
  'draft_vocab', 8192, 'Tokens that can be drafted.', lower_bound=1
)
_UNROLL = flags.DEFINE_multi_float(
  'unroll', [1.0, 0.8, 0.64, 0.51], 'Weight of each step of drafting.'
)
_NUM_KV_HEADS = flags.DEFINE_integer(
  'num_kv_heads', None, "Of the head; the verifier's if none.", lower_bound=1
)


def main():
  """Reads, trains, and writes the head."""
  if _TEXTS.value is None:
    raise ValueError(
      'expected --self_data=FOLDER, as make_self_data writes it, got none'
    )
  model = resolve.load(FLAGS.model, jnp.float32)
  folder = common.open_run(NAME)
  flag_values = common.flag_values()
  records.Stages(folder, flag_values)
  record = records.new_record(NAME, flag_values)
  train, held_out = reading.read(
    model,
    pathlib.Path(_TEXTS.value),
    pathlib.Path(_LESSONS.value or folder / 'lessons'),
    FLAGS.length,
  )
  counts = train.count_targets(model.params.config.vocab_size)
  token_ids = most_frequent(counts, _DRAFT_VOCAB.value)
  coverage = {
    'train': covered(counts, token_ids),
    'held_out': covered(held_out.count_targets(len(counts)), token_ids),
  }
  print(
    f'{len(train)} rows, {counts.sum()} targets; of the held-out ones '
    f'{coverage["held_out"]:.2%} can be drafted'
  )
  config = head_config(model.params.config, len(token_ids))
  head = eagle.init(
    jax.random.key(FLAGS.seed),
    config,
    model.params,
    token_ids,
    train.take([0]),
  )
  frozen = eagle.freeze(model.params, token_ids)
  layout = parallel.make_layout('shard_map', devices=jax.devices())
  frozen = parallel.spread(frozen, layout)
  weights = learn(head, frozen, train, held_out, folder)
  table = log.read_table(folder / 'evaluation.csv')
  facts = {
    'verifier': model.name,
    'command': ' '.join(['python', '-m', f'experiments.{NAME}', *sys.argv[1:]]),
    'commit': record['commit'],
    'targets': int(counts.sum()),
    'steps': FLAGS.num_steps,
    'tokens_per_step': FLAGS.rows * FLAGS.length,
    'hours': round(log.seconds(folder) / 3600, 2),
    'coverage': coverage,
    'held_out': table[-1],
  }
  if not (folder / 'head').exists():
    packaged.save(folder / 'head', head.replace(weights=weights), facts)
  records.finish_record(folder, record, table, coverage=coverage)
  report.show({**record, 'table': table}, folder)


def most_frequent(counts: np.ndarray, size: int) -> np.ndarray:
  """Returns the most frequent tokens, by id.

  Args:
    counts: `[V]` how often each is a target.
    size: how many.

  Raises:
    ValueError: more than there are tokens.
  """
  if size > len(counts):
    raise ValueError(
      f'expected --draft_vocab of at most {len(counts)}, got {size}'
    )
  return np.sort(np.argsort(-counts, kind='stable')[:size])


def covered(counts: np.ndarray, token_ids: np.ndarray) -> float:
  """Returns the share of targets that can be drafted.

  Args:
    counts: `[V]` how often each token is a target.
    token_ids: what can be drafted.
  """
  return float(counts[token_ids].sum() / counts.sum())


def head_config(config, draft_vocab_size: int) -> eagle_lib.EagleConfig:
  """Returns the sizes of the head: a layer of the verifier, tied to it.

  Args:
    config: of the verifier.
    draft_vocab_size: tokens that can be drafted.
  """
  layer = dataclasses.replace(
    config,
    num_layers=1,
    num_kv_heads=_NUM_KV_HEADS.value or config.num_kv_heads,
    tie_embeddings=True,
    qk_norm=False,
  )
  features = eagle_lib.published_features(config.num_layers)
  return eagle_lib.EagleConfig(layer, draft_vocab_size, features)


def learn(
  head: eagle_lib.Params,
  frozen: eagle.Frozen,
  train: lesson_files.Lessons,
  held_out: lesson_files.Lessons,
  folder: pathlib.Path,
) -> Mapping[str, jax.Array]:
  """Trains, as the flags say.

  Args:
    head: before the first step.
    frozen: of the verifier.
    train: what is learnt from.
    held_out: what the curves are of.
    folder: of the run.

  Returns:
    The weights after the last step.
  """
  loss_fn = eagle.make_loss(head.config, _UNROLL.value)
  evaluate = step_lib.make_evaluation(loss_fn)

  def evaluate_all(weights: chex.ArrayTree) -> dict[str, float]:
    return step_lib.means(
      [
        evaluate(weights, frozen, lesson)
        for lesson in reading.in_order(held_out, FLAGS.rows, FLAGS.eval_batches)
      ]
    )

  return train_flags.fit(
    loss_fn,
    head.weights,
    frozen,
    lesson_files.Shuffled(train, FLAGS.rows, FLAGS.seed),
    folder,
    evaluate_all,
  )


if __name__ == '__main__':
  train_flags.define(num_steps=4000, learning_rate=1e-3, rows=4, length=512)
  common.run(
    main,
    quick={
      'num_steps': 20,
      'rows': 2,
      'length': 256,
      'eval_every': 10,
      'warmup_steps': 5,
    },
    shared=('model', 'seed', 'quick'),
  )
