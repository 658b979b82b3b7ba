"""Texts of one way of decoding, followed along those of plain decoding.

Passes of different width add up in different order.  Two ways of decoding may
therefore part where the best scores are a tie (see `ties`); decoding then goes
on behind it with the token of plain decoding.
"""

import functools
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from experiments import drafters, measure, ties
from specjax import sampling as sampling_lib
from specjax.decode import generate, prefill
from specjax.llama import model as llama_model

Arrays = Mapping[str, np.ndarray]
ProgressFn = Callable[[int], None]

# One of the texts has ended.
_END = ties.Gap(math.inf, 0.0)


class Comparison:
  """Some prompts: their plain texts, and other ways of decoding against them.

  Arrays have one row a prompt, `R` of them.
  """

  def __init__(
    self,
    verifier: llama_model.Params,
    eos_ids: tuple[int, ...],
    ids: Sequence[Sequence[int]],
    *,
    seed: int,
    max_new_tokens: int,
    max_length: int,
    features: tuple[int, ...] = (),
    tie: float | None = ties.TIE,
  ):
    """Binds model and prompts; nothing is run.

    Args:
      verifier: the model.
      eos_ids: tokens that end a text.
      ids: prompts as token ids.
      seed: of the prompts' own seeds.
      max_new_tokens: most tokens of an output.
      max_length: most tokens of prompt and output.
      features: layers whose inputs drafters want; see `drafters.features_of`.
      tie: scores closer than this are a tie; None measures it at every parting.
    """
    self._verifier = verifier
    self._eos_ids = eos_ids
    self._ids = ids
    self._seeds = np.random.SeedSequence(seed).generate_state(len(ids))
    self._max_new_tokens = max_new_tokens
    self._max_length = max_length
    self._features = features
    self._tie = tie
    # Caches are large: those of one batch size are held.
    self._read = functools.lru_cache(1)(self._read_prompts)

  def plain(
    self, temperature: float, batch_size: int, progress_fn: ProgressFn
  ) -> Arrays:
    """Decodes plainly.

    Args:
      temperature: of the law that is sampled.
      batch_size: most prompts decoded together.
      progress_fn: told how many tokens were emitted since the last call.

    Returns:
      `tokens [R, T]`, padded with 0, and `num_tokens [R]`.
    """
    return _join(
      measure.plain_texts(
        self._verifier, batch, self._eos_ids, self._max_new_tokens, progress_fn
      )
      for batch in self._batches(temperature, batch_size)
    )

  def compare(
    self,
    plain: Arrays,
    drafting: drafters.Drafting,
    *,
    temperature: float,
    num_nodes: int,
    batch_size: int,
    progress_fn: ProgressFn,
  ) -> Arrays:
    """Decodes by speculation and follows each output along its plain text.

    Args:
      plain: what `plain` returned at the same temperature.
      drafting: proposes the trees; its rule is 'match'.
      temperature: of the law that is sampled.
      num_nodes: capacity `N`.
      batch_size: most prompts decoded together.
      progress_fn: told how many tokens were emitted since the last call.

    Returns:
      `num_tokens [R]` and `num_steps [R]` of the outputs, `num_compared [R]`,
      and of every parting `row`, `place`, `gap` and `limit`; see `follow`.
    """
    run = _join(
      measure.drafter_run(
        self._verifier,
        batch,
        self._eos_ids,
        drafting,
        num_nodes,
        self._max_new_tokens,
        progress_fn,
      )
      for batch in self._batches(temperature, batch_size)
    )
    decode_on_fn = functools.partial(
      self.decode_on,
      temperature=temperature,
      drafting=drafting,
      num_nodes=num_nodes,
    )
    return {
      'num_tokens': run['num_tokens'],
      'num_steps': run['num_steps'],
      **self.along(plain, run, temperature, decode_on_fn),
    }

  def along(
    self,
    plain: Arrays,
    run: Arrays,
    temperature: float,
    decode_on_fn: Callable[[int, int, list[int]], list[int]],
  ) -> Arrays:
    """Follows outputs along their plain texts.

    Args:
      plain: `tokens [R, T]` and `num_tokens [R]` of plain decoding.
      run: those of another way at the same temperature.
      temperature: of the law that is sampled.
      decode_on_fn: `(place, row, text) -> tokens`: decodes in that way what
        follows `text[:place]`.

    Returns:
      `num_compared [R]`, and of every parting `row`, `place`, `gap` and
      `limit`; see `follow`.
    """
    num_compared, partings = [], []
    texts = zip(_to_lists(plain), _to_lists(run), strict=True)
    for row, (text, output) in enumerate(texts):
      here = {'row': row, 'text': text}
      count, gaps = follow(
        text,
        output,
        functools.partial(self._gap, **here, temperature=temperature),
        functools.partial(decode_on_fn, **here),
      )
      num_compared.append(count)
      partings += [(row, place, *gap) for place, gap in gaps.items()]
    rows, places, gaps, limits = np.reshape(partings, (-1, 4)).T
    return {
      'num_compared': np.array(num_compared),
      'row': rows.astype(int),
      'place': places.astype(int),
      'gap': gaps,
      'limit': limits,
    }

  def decode_on(
    self,
    place: int,
    row: int,
    text: list[int],
    *,
    temperature: float,
    drafting: drafters.Drafting,
    num_nodes: int,
  ) -> list[int]:
    """Decodes by speculation what follows the beginning of a text.

    Args:
      place: how many tokens of the text there are.
      row: of the prompt.
      text: behind it.
      temperature: of the law that is sampled.
      drafting: proposes the trees.
      num_nodes: capacity `N`.
    """
    result = generate.generate(
      self._verifier,
      [[*self._ids[row], *text[:place]]],
      eos_ids=self._eos_ids,
      max_new_tokens=self._max_new_tokens - place,
      drafter=drafting.drafter,
      drafter_params=drafting.params,
      num_nodes=num_nodes,
      sampling=sampling_lib.make(1, temperature),
      seeds=self._seeds[row : row + 1],
      max_length=self._max_length,
    )
    return result[0].tokens

  def _gap(self, place, token, *, row, text, temperature):
    return ties.gap(
      self._verifier,
      self._ids[row],
      text[:place],
      (token, text[place]),
      sampling_lib.make(1, temperature),
      self._seeds[row],
      self._tie,
    )

  def _batches(self, temperature, batch_size):
    for batch in self._read(batch_size):
      sampling = sampling_lib.make(len(batch.limits), temperature)
      yield batch._replace(sampling=sampling)

  def _read_prompts(self, batch_size):
    return prefill.read_prompts(
      self._verifier,
      self._ids,
      max_new_tokens=self._max_new_tokens,
      seeds=self._seeds,
      max_length=self._max_length,
      batch_size=batch_size,
      features=self._features,
    )


def follow(
  text: list[int],
  output: list[int],
  gap_fn: Callable[[int, int], ties.Gap],
  decode_on_fn: Callable[[int], list[int]],
) -> tuple[int, dict[int, ties.Gap]]:
  """Follows an output along the text that it should be, and on behind ties.

  Args:
    text: what plain decoding emitted.
    output: what is compared.
    gap_fn: `(place, token) -> gap`: between the best score at the place and
      those of that token and the text's own.
    decode_on_fn: `place -> tokens`: decodes anew what follows `text[:place]`.

  Returns:
    The number of tokens compared, and the gap at each place of a parting. Only
    the last gap can be other than a tie, and then nothing behind it was
    compared; it is infinite where one of both has ended.
  """
  done, gaps = 0, {}
  while output != text[done:]:
    same = _num_common(output, text[done:])
    place = done + same
    have_both = same < len(output) and place < len(text)
    gaps[place] = gap_fn(place, output[same]) if have_both else _END
    if gaps[place].size >= gaps[place].limit:
      return place, gaps
    done = place + 1
    output = decode_on_fn(done) if done < len(text) else []
  return len(text), gaps


def _num_common(left, right):
  """Length of the longest common beginning."""
  for place, pair in enumerate(zip(left, right, strict=False)):
    if pair[0] != pair[1]:
      return place
  return min(len(left), len(right))


def _join(parts):
  """Joins the arrays of batches along their rows."""
  parts = list(parts)
  return {k: np.concatenate([part[k] for part in parts]) for k in parts[0]}


def _to_lists(arrays):
  """Turns `tokens [R, T]` and `num_tokens [R]` into a list a row."""
  return [
    row[:count].tolist()
    for row, count in zip(arrays['tokens'], arrays['num_tokens'], strict=True)
  ]
