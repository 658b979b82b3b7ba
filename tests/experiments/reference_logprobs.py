"""Lines of log-probs as engines write them."""

import json
from typing import NamedTuple

import numpy as np


class Sample(NamedTuple):
  """A sampled text: `log_probs [T]`, `top [T, K]` or None, and its end."""

  log_probs: np.ndarray
  top: np.ndarray | None
  finish_reason: str


def chat(name, samples):
  """A chat response with a choice for each sample."""
  choices = []
  for i, sample in enumerate(samples):
    content = [
      {
        'token': 'x',
        'logprob': float(value),
        'bytes': [120],
        'top_logprobs': []
        if sample.top is None
        else [{'token': 'x', 'logprob': float(v)} for v in sample.top[t]],
      }
      for t, value in enumerate(sample.log_probs)
    ]
    choices.append(
      {
        'index': i,
        'message': {'role': 'assistant', 'content': 'x'},
        'logprobs': {'content': content},
        'finish_reason': sample.finish_reason,
      }
    )
  return {'id': name, 'object': 'chat.completion', 'choices': choices}


def completion(name, samples):
  """A response of the older kind; engines add the token to its top ones."""
  choices = []
  for i, sample in enumerate(samples):
    tops = None
    if sample.top is not None:
      tops = [
        {str(k): float(v) for k, v in enumerate(row)}
        | ({} if value in row else {'drawn': float(value)})
        for row, value in zip(sample.top, sample.log_probs, strict=True)
      ]
    choices.append(
      {
        'index': i,
        'text': 'x',
        'logprobs': {
          'tokens': ['x'] * len(sample.log_probs),
          'token_logprobs': [float(v) for v in sample.log_probs],
          'top_logprobs': tops,
        },
        'finish_reason': sample.finish_reason,
      }
    )
  return {'id': name, 'object': 'text_completion', 'choices': choices}


def batch_job(name, samples):
  """A line of the output of a batch job."""
  body = chat(f'chatcmpl-{name}', samples)
  return {'custom_id': name, 'response': {'status_code': 200, 'body': body}}


def plain(name, samples):
  """The plain form, which holds one sample."""
  (sample,) = samples
  return {
    'prompt_id': name,
    'logprobs': [float(v) for v in sample.log_probs],
    'finish_reason': sample.finish_reason,
  }


FORMATS = {
  'chat': chat,
  'completion': completion,
  'batch_job': batch_job,
  'plain': plain,
}


def write(path, lines):
  """Writes objects, or text as it stands, one a line."""
  path.write_text(
    ''.join(
      (line if isinstance(line, str) else json.dumps(line)) + '\n'
      for line in lines
    )
  )


def draw(rng, num_tokens, temperature=1.0, vocab_size=12, num_top=4):
  """A sample of random laws, drawn at a temperature that they may not tell."""
  logits = 2.0 * rng.normal(size=(num_tokens, vocab_size))
  log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
  if temperature == 0:
    tokens = np.argmax(log_p, axis=1)
  else:
    noise = rng.gumbel(size=log_p.shape)
    tokens = np.argmax(log_p / temperature + noise, axis=1)
  sampled = log_p[np.arange(num_tokens), tokens]
  top = -np.sort(-log_p, axis=1)[:, :num_top]
  return Sample(sampled, top, 'stop')
