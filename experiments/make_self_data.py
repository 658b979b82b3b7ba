"""Lets the verifier write what its draft heads are trained on.

  launch/run.sh make_self_data --run_name=self
  launch/run.sh make_self_data --quick

Asks prompts of its own making, thousands of the six kinds of our own set, or
those of --prompts; what is too near to the prompts of our own set, with which
heads are evaluated, is left out.  Answers are decoded plainly, in batches; the
temperatures take turns.

Writes results/make_self_data/<run>/texts/*.array_record, a file a batch, which
`specjax.train.continuations` reads, and record.json.  A killed run, started
again with the same --run_name, loses the batch that it was at.
"""

import collections
from collections.abc import Callable, Mapping, Sequence

import jax.numpy as jnp
import numpy as np
import tqdm
from absl import flags

from experiments import common, draft_flags, model_flags, records
from experiments import prompts as prompts_lib
from experiments.self_data import exclusion, requests
from specjax import sampling as sampling_lib
from specjax import tokenizer as tokenizer_lib
from specjax.checkpoint import resolve
from specjax.decode import generate
from specjax.train import continuations

FLAGS = flags.FLAGS

NAME = 'make_self_data'

SHARED_FLAGS = (
  *model_flags.SHARED_FLAGS,
  'batch_size',
  'max_length',
  'max_new_tokens',
  'prompts',
  'prompts_per_kind',
  'quick',
  'seed',
)

# Batches for which prompts are looked through at a time: their prompts are
# alike in length and temperature, and a part of a run is still a mixture.
_BATCHES_AHEAD = 12


def main():
  """Asks, batch by batch, and says what came."""
  model = model_flags.load(NAME)
  is_excluded = exclusion.of(prompt.text for prompt in prompts_lib.load())
  texts = unanswered(
    model.tokenizer, _prompts(is_excluded), FLAGS.temperatures, FLAGS.seed
  )
  room = FLAGS.max_length - FLAGS.max_new_tokens
  texts = [text for text in texts if len(text.prompt_ids) <= room]
  folder = common.open_run(NAME)
  flag_values = common.flag_values()
  digest = records.digest([text.prompt_ids for text in texts])
  records.Stages(folder, {**flag_values, 'prompt_ids': digest})
  record = records.new_record(NAME, flag_values)
  (folder / 'texts').mkdir(exist_ok=True)
  with tqdm.tqdm(total=len(texts), unit='prompt') as bar:
    for index, batch in enumerate(plan(texts, FLAGS.batch_size)):
      path = continuations.shard_path(folder / 'texts', index)
      if not path.exists():
        answered = answer(model, batch, FLAGS.max_new_tokens)
        continuations.write(path, answered)
      bar.update(len(batch))
  table = summary(
    continuations.Source(folder / 'texts'), model.tokenizer.eos_ids
  )
  records.finish_record(folder, record, table)
  for row in table:
    print('  '.join(f'{name} {value}' for name, value in row.items()))
  print(f'{sum(row["tokens"] for row in table)} tokens in {folder / "texts"}')


def unanswered(
  tokenizer: tokenizer_lib.Tokenizer,
  prompts: Sequence[prompts_lib.Prompt],
  temperatures: Sequence[float],
  seed: int,
) -> list[continuations.Continuation]:
  """Returns what is to be asked, with answers still empty.

  Args:
    tokenizer: of the model.
    prompts: what is asked.
    temperatures: those that the prompts of each kind take turns at.
    seed: from which each request gets one of its own.
  """
  turns = collections.Counter()
  texts = []
  for index, prompt in enumerate(prompts):
    [own_seed] = np.random.SeedSequence([seed, index]).generate_state(1)
    message = {'role': 'user', 'content': prompt.text}
    texts.append(
      continuations.Continuation(
        id=prompt.id,
        kind=prompt.kind,
        prompt=prompt.text,
        prompt_ids=tokenizer.chat([message]),
        answer_ids=[],
        temperature=temperatures[turns[prompt.kind] % len(temperatures)],
        seed=int(own_seed),
      )
    )
    turns[prompt.kind] += 1
  return texts


def plan(
  texts: Sequence[continuations.Continuation], batch_size: int
) -> list[list[continuations.Continuation]]:
  """Cuts texts into batches that are alike in temperature and length.

  Temperature 0 needs no noise, which is dear, and a batch is as wide as its
  longest prompt.

  Args:
    texts: in any order, which is kept from one stretch of batches to the next.
    batch_size: texts of a batch; the last of a stretch may have fewer.
  """
  stretch = _BATCHES_AHEAD * batch_size
  batches = []
  for start in range(0, len(texts), stretch):
    alike = sorted(
      texts[start : start + stretch],
      key=lambda text: (text.temperature, len(text.prompt_ids)),
    )
    batches += [
      alike[i : i + batch_size] for i in range(0, len(alike), batch_size)
    ]
  return batches


def answer(
  model: resolve.Checkpoint,
  texts: Sequence[continuations.Continuation],
  max_new_tokens: int,
) -> list[continuations.Continuation]:
  """Returns the texts with their answers.

  Args:
    model: what answers.
    texts: decoded in one batch.
    max_new_tokens: tokens of an answer at most.
  """
  temperatures = jnp.asarray([t.temperature for t in texts], jnp.float32)
  longest = max(len(text.prompt_ids) for text in texts)
  answers = generate.generate(
    model.params,
    [text.prompt_ids for text in texts],
    eos_ids=model.tokenizer.eos_ids,
    max_new_tokens=max_new_tokens,
    sampling=sampling_lib.make(len(texts)).replace(temperature=temperatures),
    seeds=[text.seed for text in texts],
    max_length=longest + max_new_tokens,
    batch_size=len(texts),
  )
  return [
    text._replace(answer_ids=answer.tokens)
    for text, answer in zip(texts, answers, strict=True)
  ]


def summary(
  texts: Sequence[continuations.Continuation], eos_ids: Sequence[int]
) -> list[Mapping[str, object]]:
  """Returns how many texts and tokens there are, by kind and temperature.

  Args:
    texts: with their answers.
    eos_ids: tokens that end a text.

  Returns:
    A row for each kind and temperature; `ended` counts the answers that came to
    their own end.
  """
  groups = collections.defaultdict(list)
  for text in texts:
    groups[text.kind, text.temperature].append(text)
  return [
    {
      'kind': kind,
      'temperature': temperature,
      'texts': len(group),
      'tokens': sum(len(text.answer_ids) for text in group),
      'ended': sum(text.answer_ids[-1] in eos_ids for text in group),
    }
    for (kind, temperature), group in sorted(groups.items())
  ]


def _prompts(is_excluded: Callable[[str], bool]) -> list[prompts_lib.Prompt]:
  """Returns the prompts that the flags ask for."""
  if FLAGS.prompts is None:
    num_prompts = FLAGS.prompts_per_kind * len(requests.KINDS)
    return requests.make(num_prompts, FLAGS.seed, is_excluded)
  given = prompts_lib.load(FLAGS.prompts, FLAGS.prompts_per_kind)
  return [prompt for prompt in given if not is_excluded(prompt.text)]


if __name__ == '__main__':
  draft_flags.define('temperatures')
  common.run(
    main,
    defaults={
      'batch_size': 32,
      'max_new_tokens': 128,
      'prompts_per_kind': 1600,
    },
    quick={'batch_size': 24, 'max_new_tokens': 32, 'prompts_per_kind': 8},
    shared=SHARED_FLAGS,
  )
