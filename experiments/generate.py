"""Answers questions by speculation, and says what that won.

  launch/run.sh generate --prompt='Why is the sky blue?'
  launch/run.sh generate --prompt='Name a bird.' --prompt='Where does it live?'
  launch/run.sh generate --prompt='Count to 20.' --stop=7 --temperature=1 \\
    --drafters=layer_skip --trees=beam --capacities=8

More than one --prompt are the turns of a conversation; a turn reads only what
is new in it.  Text comes as soon as it is sure.  Behind it stand D, the tokens
an iteration; how often drafts of each depth were proposed, reached by the text
and accepted; and where the time went.  To see that, the loop runs phase by
phase and waits for each; the split and the speed are those of such a run,
compilation and the reading of prompts left out.

Writes nothing but what --profile asks for.
"""

from collections.abc import Iterator, Sequence

import jax.numpy as jnp
from absl import flags

from experiments import (
  common,
  draft_flags,
  draft_models,
  drafters,
  model_flags,
  recipes,
)
from specjax import sampling as sampling_lib
from specjax.checkpoint import resolve
from specjax.decode import results
from specjax.decode import session as session_lib

FLAGS = flags.FLAGS

_PROMPT = flags.DEFINE_multi_string(
  'prompt', [], 'What to answer; given again, the next turn.'
)
_STOP = flags.DEFINE_multi_string(
  'stop', [], 'Ends an answer before this string; may be given again.'
)

NAME = 'generate'


def main():
  """Answers turn by turn, and says after each what it took."""
  if not _PROMPT.value:
    raise ValueError('expected a question, such as --prompt=Why?, got none')
  found = recipes.combine(FLAGS.drafters, FLAGS.trees, FLAGS.rules)
  if len(found) != 1 or len(FLAGS.capacities) != 1:
    raise ValueError(
      'expected one drafter with one tree and rule and one capacity, got '
      f'{", ".join(recipe.name for recipe in found)} and {FLAGS.capacities}'
    )
  model = model_flags.load()
  corpus = common.corpus(model.tokenizer)
  drafting = drafters.make(
    found[0],
    model.params,
    corpus,
    max_nodes=FLAGS.capacities[0],
    eos_ids=model.tokenizer.eos_ids,
    models=draft_models.load(
      FLAGS.drafters,
      model,
      corpus,
      jnp.dtype(FLAGS.dtype),
      **draft_flags.of_models(),
    ),
  )
  if FLAGS.profile:
    common.open_run(NAME)
  for turn in converse(
    model,
    drafting,
    _PROMPT.value,
    num_nodes=FLAGS.capacities[0],
    sampling=sampling_lib.make(
      1, FLAGS.temperature, FLAGS.top_k, FLAGS.top_p, FLAGS.min_p
    ),
    seeds=[FLAGS.seed],
    stops=[_STOP.value],
    max_new_tokens=FLAGS.max_new_tokens,
    max_length=FLAGS.max_length,
  ):
    print('\n\n' + say(*turn) + '\n')


def converse(
  model: resolve.Checkpoint,
  drafting: drafters.Drafting,
  questions: Sequence[str],
  **request,
) -> Iterator[tuple[results.Generation, int, int]]:
  """Answers questions one after the other, and prints answers as they come.

  Args:
    model: what answers.
    drafting: what drafts.
    questions: one for each turn.
    **request: what else `Session.generate` takes.

  Yields:
    The answer, the tokens of the conversation before it, and how many of those
    had been read in turns before.

  Raises:
    ValueError: what `Session.generate` refuses.
  """
  session = session_lib.Session(model.params)
  messages = []
  for question in questions:
    messages.append({'role': 'user', 'content': question})
    ids = model.tokenizer.chat(messages)
    print(f'> {question}\n')
    [answer] = session.generate(
      [ids],
      eos_ids=model.tokenizer.eos_ids,
      drafter=drafting.drafter,
      drafter_params=drafting.params,
      rule=drafting.rule,
      tokenizer=model.tokenizer,
      stream_fn=lambda _, text: print(text, end='', flush=True),
      chunk=1,
      is_timed=True,
      **request,
    )
    messages.append({'role': 'assistant', 'content': answer.text})
    yield answer, len(ids), session.num_reused[0]


def say(answer: results.Generation, num_before: int, num_reused: int) -> str:
  """Says in lines what an answer took.

  Args:
    answer: what was generated.
    num_before: tokens of the conversation before it.
    num_reused: those of them that were not read again.
  """
  times = answer.times
  tokens, steps = len(answer.tokens), len(answer.steps.start)
  parts = times.draft, times.verify, times.overhead
  total = sum(parts)
  split = ', '.join(
    f'{name} {1000 * part / times.num_iterations:.1f} ms ({part / total:.0%})'
    for name, part in zip(('draft', 'verify', 'overhead'), parts, strict=True)
  )
  lines = [
    f'{tokens} tokens in {steps} iterations: D = {tokens / steps:.2f}, '
    f'{tokens / total:.1f} tokens per second; ended by {answer.finish_reason}',
    f'before it {num_before} tokens, {num_reused} of them not read again',
    f'an iteration: {split}',
    'depth  proposed  reached  accepted',
  ]
  counts = zip(*answer.acceptance, strict=True)
  for depth, (proposed, reached, accepted) in enumerate(counts, 1):
    lines.append(f'{depth:5}{proposed:10}{reached:9}{accepted:10}')
  return '\n'.join(lines)


if __name__ == '__main__':
  draft_flags.define('trees', 'rules', *draft_flags.MODELS)
  common.run(
    main,
    drafters=recipes.NAMES,
    defaults={
      'drafters': ['lookup'],
      'trees': ['best_first'],
      'rules': ['match'],
      'capacities': [16],
      'temperature': 0.0,
      'max_new_tokens': 128,
      'max_length': 1024,
    },
    shared=[
      *model_flags.SHARED_FLAGS,
      *('temperature', 'top_k', 'top_p', 'min_p', 'drafters'),
      *('capacities', 'max_new_tokens', 'max_length', 'seed'),
    ],
  )
