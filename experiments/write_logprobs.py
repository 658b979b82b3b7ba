"""Log-probs of our own decoder, written as engines write theirs.

  launch/run.sh write_logprobs --run_name=try     12 prompts, under a minute
  launch/run.sh bound_from_logprobs \\
    --input=results/write_logprobs/try/chat.jsonl

A log to try `bound_from_logprobs` with, and to compare your engine's with.  The
texts are those that `speed_of_light` decodes plainly with the same flags, so
that limits from its runs and from these logs can be held against each other.

Writes results/write_logprobs/<run>/, the same texts in every format:
chat.jsonl, completion.jsonl and batch_job.jsonl with their --top_logprobs most
probable tokens, and plain.jsonl.gz, numbers alone.  A killed run, started again
with the same --run_name, goes on where it stopped.
"""

import gzip
import json
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
from absl import flags

from experiments import common, measure, model_flags, records
from experiments import study as study_lib
from specjax import sampling as sampling_lib
from specjax.theory import entropy

FLAGS = flags.FLAGS

_TOP_LOGPROBS = flags.DEFINE_integer(
  'top_logprobs',
  20,
  'Most probable tokens listed with every token.',
  lower_bound=1,
  upper_bound=measure.NUM_TOP,
)

NAME = 'write_logprobs'

# The shared flags that have a meaning here.
SHARED_FLAGS = (
  *model_flags.SHARED_FLAGS,
  'batch_size',
  'max_length',
  'max_new_tokens',
  'min_p',
  'prompts',
  'prompts_per_kind',
  'seed',
  'temperature',
  'top_k',
  'top_p',
)


class Text(NamedTuple):
  """An answer with its log-probs, in nats.

  Attributes:
    prompt: name of its prompt.
    content: its words.
    tokens: a name for each token.
    log_probs: of each token.
    tops: the most probable tokens at each place, name -> log-prob, falling.
    finish_reason: 'stop', or 'length' if a limit cut it.
  """

  prompt: str
  content: str
  tokens: list[str]
  log_probs: list[float]
  tops: list[dict[str, float]]
  finish_reason: str


# Makes a line of a text.
LineFn = Callable[[Text], Mapping]


def main():
  """Decodes, writes, and says where."""
  model = model_flags.load(NAME)
  prompts, ids = common.load_prompts(
    model.tokenizer, FLAGS.prompts, FLAGS.prompts_per_kind, FLAGS.max_length
  )
  folder = common.open_run(NAME)
  stage_keys = {**common.flag_values(), 'prompt_ids': records.digest(ids)}
  del stage_keys['top_logprobs']
  study = study_lib.Study(
    model,
    ids,
    {},  # No drafter is run.
    sampling_lib.make(
      len(ids), FLAGS.temperature, FLAGS.top_k, FLAGS.top_p, FLAGS.min_p
    ),
    records.Stages(folder, stage_keys),
    seed=FLAGS.seed,
    capacities=[1],
    max_new_tokens=FLAGS.max_new_tokens,
    max_length=FLAGS.max_length,
    batch_size=FLAGS.batch_size,
  )
  if standing := records.standing(folder):
    print(standing, flush=True)
  texts = [
    text._replace(prompt=prompt.id, content=model.tokenizer.decode(tokens))
    for prompt, (text, tokens) in zip(
      prompts, texts_of(study.texts, _TOP_LOGPROBS.value), strict=True
    )
  ]
  for name, to_line in FORMATS.items():
    path = folder / name
    open_fn = gzip.open if path.suffix == '.gz' else open
    with open_fn(path, 'wt') as file:
      file.writelines(json.dumps(to_line(text)) + '\n' for text in texts)
    print(path)
  num_tokens = sum(len(text.tokens) for text in texts)
  print(f'{num_tokens} tokens of {len(texts)} texts in each file.')


def texts_of(
  texts: entropy.Texts, num_top: int
) -> Iterator[tuple[Text, list[int]]]:
  """Gives texts for the formats, and their token ids.

  Args:
    texts: of R prompts, with their laws.
    num_top: most probable tokens to list.
  """
  laws = texts.laws
  ends = np.asarray(texts.eos_ids)
  for row, length in enumerate(np.asarray(texts.num_tokens)):
    ids = np.asarray(texts.tokens[row, :length]).tolist()
    top_ids, top_log_p = (
      np.asarray(x[row, :length, :num_top]).tolist()
      for x in (laws.top_tokens, laws.top_log_p)
    )
    text = Text(
      prompt=str(row),
      content='',
      tokens=[_token(i) for i in ids],
      log_probs=(-np.asarray(laws.surprisal[row, :length])).tolist(),
      tops=[
        # JSON has no infinity, and engines write this for filtered tokens.
        {_token(i): max(v, -9999.0) for i, v in zip(*top, strict=True)}
        for top in zip(top_ids, top_log_p, strict=True)
      ],
      finish_reason='stop' if ids and ids[-1] in ends else 'length',
    )
    yield text, ids


def chat(text: Text) -> Mapping:
  """Returns the response of a chat, the form of most engines."""
  content = [
    {
      'token': token,
      'logprob': log_prob,
      'top_logprobs': [{'token': k, 'logprob': v} for k, v in top.items()],
    }
    for token, log_prob, top in zip(
      text.tokens, text.log_probs, text.tops, strict=True
    )
  ]
  choice = {
    'index': 0,
    'message': {'role': 'assistant', 'content': text.content},
    'logprobs': {'content': content},
    'finish_reason': text.finish_reason,
  }
  return {'id': text.prompt, 'object': 'chat.completion', 'choices': [choice]}


def completion(text: Text) -> Mapping:
  """Returns a response of the older form; it lists the sampled token too."""
  choice = {
    'index': 0,
    'text': text.content,
    'logprobs': {
      'tokens': text.tokens,
      'token_logprobs': text.log_probs,
      'top_logprobs': [
        {**top, token: log_prob}
        for token, log_prob, top in zip(
          text.tokens, text.log_probs, text.tops, strict=True
        )
      ],
    },
    'finish_reason': text.finish_reason,
  }
  return {'id': text.prompt, 'object': 'text_completion', 'choices': [choice]}


def batch_job(text: Text) -> Mapping:
  """Returns a line of the output of a batch job."""
  response = {'status_code': 200, 'body': chat(text)}
  return {'custom_id': text.prompt, 'response': response}


def plain(text: Text) -> Mapping:
  """Returns numbers alone, the form for tokens of any kind."""
  return {
    'prompt_id': text.prompt,
    'logprobs': text.log_probs,
    'finish_reason': text.finish_reason,
  }


# File -> what makes its lines.
FORMATS = {
  'chat.jsonl': chat,
  'completion.jsonl': completion,
  'batch_job.jsonl': batch_job,
  'plain.jsonl.gz': plain,
}


def _token(token_id):
  """Returns a token's name, unlike its text always one of its own."""
  return f'token_id:{token_id}'


if __name__ == '__main__':
  common.run(main, defaults={'prompts_per_kind': 2}, shared=SHARED_FLAGS)
