"""Which layers may a verifier leave out when it drafts for itself?

Claim: some layers are hardly missed, and what runs without them is a drafter
that saves more than it costs.

  launch/run.sh layer_skip_search         under 7 min on 2 cores
  launch/run.sh layer_skip_search --quick    under 2 min

Greedy search: of all layers that are left, the one that is missed least is left
out next.  What is judged is the speed of a chain of best continuations over
plain decoding,

    max over d of E_d / (1 + c d),   E_d = 1 + sum over j <= d of a_j,

where `a_j` is the share of the starts in the verifier's own texts from which j
tokens in a row are those that the drafter ranks first, so that `E_d` is what a
chain of d drafts wins, and `c` the share of the verifier's weights that a pass
of the drafter reads: the time of a pass with few tokens.

Writes results/layer_skip_search/<run>/: record.json with the table, and
flags.txt, which other experiments take as --flagfile.
"""

import functools
from collections.abc import Callable, Mapping, Sequence

import jax.numpy as jnp
import numpy as np
import tqdm
from absl import flags

from experiments import common, layer_skipping, measure, model_flags, records
from specjax import sampling as sampling_lib
from specjax.decode import prefill

FLAGS = flags.FLAGS

NAME = 'layer_skip_search'

_MOST_SKIPPED = flags.DEFINE_integer(
  'most_skipped', 8, 'Layers that are left out at most.', lower_bound=1
)
_MOST_DRAFTS = flags.DEFINE_integer(
  'most_drafts', 8, 'Longest chain that is looked at.', lower_bound=1
)


def main():
  """Searches, writes, and says what came out."""
  model = model_flags.load(NAME)
  _, ids = common.load_prompts(
    model.tokenizer, FLAGS.prompts, FLAGS.prompts_per_kind, FLAGS.max_length
  )
  num_layers = model.params.config.num_layers
  if _MOST_SKIPPED.value >= num_layers:
    raise ValueError(
      f'expected --most_skipped below {num_layers}, the number of layers, got '
      f'{_MOST_SKIPPED.value}'
    )
  folder = common.open_run(NAME)
  record = records.new_record(NAME, common.flag_values())
  stages = records.Stages(
    folder, {**common.flag_values(), 'prompt_ids': records.digest(ids)}
  )
  if standing := records.standing(folder):
    print(standing, flush=True)
  texts = stages.arrays('texts', lambda: _texts(model, ids))
  packed = layer_skipping.pack(ids, texts)
  agrees_fn = functools.partial(
    layer_skipping.agrees,
    model.params,
    {k: jnp.asarray(v) for k, v in packed.items()},
  )
  table = search(
    lambda skipped: np.asarray(
      agrees_fn(layer_skipping.keeping(num_layers, skipped))
    ),
    stages,
    texts['num_tokens'],
    layer_skipping.shares(model.params),
    _MOST_SKIPPED.value,
    _MOST_DRAFTS.value,
  )
  best = max(table[1:], key=lambda row: row['speed'])
  records.finish_record(folder, record, table, skipped=best['skipped'])
  path = folder / 'flags.txt'
  layers = ','.join(map(str, sorted(best['skipped'])))
  path.write_text(f'--skipped_layers={layers}\n', 'utf-8')
  print(table_text(table))
  print()
  print(sentence(best))
  print(f'Drafts with it: launch/run.sh acceptance --flagfile={path}')


def search(
  agrees_fn: Callable[[Sequence[int]], np.ndarray],
  stages: records.Stages,
  num_tokens: np.ndarray,
  cost: np.ndarray,
  most_skipped: int,
  most_drafts: int,
) -> list[dict]:
  """Leaves out one layer after the other.

  Args:
    agrees_fn: from the layers that are left out to `[R, T]` bool, the places of
      the texts where the drafter's best token is the text's.
    stages: keeps the rounds that are done.
    num_tokens: `[R]` tokens of each text.
    cost: `[L + 1]` of a drafter's pass in passes of the verifier, by the number
      of layers left out.
    most_skipped: rounds.
    most_drafts: longest chain.

  Returns:
    A row for each number of layers left out, from 0 on: `skipped`, in the order
    in which they were, `agreement`, the share of places, and the chain that is
    fastest: its `drafts`, `D` and `speed` over plain decoding.
  """
  num_layers = len(cost) - 1
  none = np.arange(agrees_fn([]).shape[1]) < num_tokens[:, None]
  table = [_row([], none, num_tokens, cost, most_drafts)]
  total = sum(num_layers - done for done in range(most_skipped))
  with tqdm.tqdm(total=total, unit='layer') as bar:
    for number in range(most_skipped):
      skipped = table[-1]['skipped']
      left = [i for i in range(num_layers) if i not in skipped]

      def compute(skipped=skipped, left=left):
        found = []
        for layer in left:
          found.append(agrees_fn([*skipped, layer]))
          bar.update()
        return {'agrees': np.stack(found)}

      found = stages.arrays(f'round-{number}', compute)['agrees']
      rows = [
        _row([*skipped, layer], agree, num_tokens, cost, most_drafts)
        for layer, agree in zip(left, found, strict=True)
      ]
      # Agreement decides where no chain is worth its time.
      table.append(max(rows, key=lambda row: (row['speed'], row['agreement'])))
      bar.update(sum(num_layers - i for i in range(number + 1)) - bar.n)
  return table


def table_text(table: Sequence[Mapping]) -> str:
  """Returns the table, a line for each number of layers left out."""
  lines = ['left out  last  agreement  drafts      D  speed']
  for row in table:
    last = row['skipped'][-1] if row['skipped'] else '-'
    lines.append(
      f'{len(row["skipped"]):>8}{last:>6}{row["agreement"]:>11.2f}'
      f'{row["drafts"]:>8}{row["D"]:>7.2f}{row["speed"]:>7.2f}'
    )
  return '\n'.join(lines)


def sentence(best: Mapping) -> str:
  """Says what the fastest of the drafters is, and whether it pays.

  Args:
    best: a row of the table.
  """
  count = len(best['skipped'])
  text = (
    f'Without {count} layer{"s" if count > 1 else ""}, '
    f'{sorted(best["skipped"])}, the verifier drafts {best["agreement"]:.0%} '
    f'of its tokens; chains of {best["drafts"]} win {best["D"]:.2f} tokens an '
    f'iteration, by the weights that are read {best["speed"]:.2f} times the '
    'speed of plain decoding'
  )
  return f'{text}.' if best['speed'] > 1 else f'{text}: it does not pay.'


def _texts(model, ids):
  """Decodes plainly; returns `tokens [R, T]` and `num_tokens [R]`."""
  [batch] = prefill.read_prompts(
    model.params,
    ids,
    max_new_tokens=FLAGS.max_new_tokens,
    sampling=sampling_lib.make(len(ids), FLAGS.temperature),
    seeds=np.random.SeedSequence(FLAGS.seed).generate_state(len(ids)),
    max_length=FLAGS.max_length,
    batch_size=len(ids),
  )
  return measure.plain_texts(
    model.params,
    batch,
    model.tokenizer.eos_ids,
    FLAGS.max_new_tokens,
    lambda num_tokens: None,
  )


def _row(skipped, agree, num_tokens, cost, most_drafts):
  """Finds the fastest chain of a drafter."""
  won = layer_skipping.chain_tokens(agree, num_tokens, most_drafts)
  speeds = won / (1 + cost[len(skipped)] * np.arange(len(won)))
  # A drafter drafts; plain decoding is what it is compared with.
  drafts = 1 + int(np.argmax(speeds[1:]))
  is_place = np.arange(agree.shape[1]) < num_tokens[:, None]
  return {
    'skipped': list(skipped),
    'agreement': float(agree[is_place].mean()),
    'drafts': drafts,
    'D': float(won[drafts]),
    'speed': float(speeds[drafts]),
  }


if __name__ == '__main__':
  common.run(
    main,
    defaults={'prompts_per_kind': 1, 'temperature': 0.0},
    quick={'max_new_tokens': 16, 'most_skipped': 2},
    shared=[
      *model_flags.SHARED_FLAGS,
      *('prompts', 'prompts_per_kind', 'temperature'),
      *('max_new_tokens', 'max_length', 'seed', 'quick'),
    ],
  )
