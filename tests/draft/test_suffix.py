"""The suffix drafter against a slow twin in plain Python."""

import collections

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference_decode
import reference_programs

from specjax.decode import generate
from specjax.draft import base, lookup, merge, suffix

VOCAB = 23
EOS = (4, 22)


def agreed(before, text, max_match):
  """How many tokens at the ends of two texts are equal."""
  size = 0
  while (
    size < min(max_match, len(before), len(text))
    and before[-1 - size] == text[-1 - size]
  ):
    size += 1
  return size


def slow_matches(text, corpus, depth, max_match):
  """All matches, the best first: size and what followed."""
  own = []
  for end in reversed(range(len(text) - 1)):
    draft = [
      text[end + 1 + step % (len(text) - 1 - end)] for step in range(depth)
    ]
    own.append((agreed(text[: end + 1], text, max_match), draft))
  others = []
  for other in corpus:
    for end in range(len(other) - 1):
      size = agreed(other[: end + 1], text, max_match)
      if size:
        others.append((size, other[end + 1 : end + 1 + depth]))
  return sorted(own + others, key=lambda match: -match[0])


def slow_values(matches):
  """`q` of every continuation that a match states."""
  values = collections.Counter()
  total = sum(8.0**size for size, _ in matches)
  for size, draft in matches:
    for depth in range(1, len(draft) + 1):
      share = 8.0**size / total * (size + 1) / (size + 1 + depth)
      values[tuple(draft[:depth])] += share
  return values


def propose(texts, num_nodes, corpus=(), **options):
  tokens = np.full((len(texts), 64), 2, np.int32)
  for row, text in zip(tokens, texts, strict=True):
    row[: len(text)] = text
  lengths = jnp.asarray([len(t) for t in texts])
  params = base.Params(None, corpus, None)
  propose_fn = jax.jit(suffix.make(**options).propose, static_argnums=4)
  proposal, _ = propose_fn(params, (), jnp.asarray(tokens), lengths, num_nodes)
  return proposal.tree


def random_texts(seed):
  rng = np.random.default_rng(seed)
  return [
    rng.integers(0, alphabet, size).tolist()
    for alphabet in (1, 2, 3, 6, VOCAB)
    for size in (1, 2, 3, 17, 50, 64)
  ]


def assert_equals(trees, row, text, matches, num_nodes):
  values = slow_values(matches)
  words = reference_decode.words_of(trees, row)
  assert trees.tokens[row, 0] == text[-1]
  assert len(set(words)) == len(words) == min(num_nodes, 1 + len(values))
  # Words of equal value may be taken in either order.
  best = sorted(values.values(), reverse=True)[: num_nodes - 1]
  got = [values[w] for w in words[1:]]
  np.testing.assert_allclose(got, best, rtol=1e-4)
  # The tree says what it takes the probabilities for.
  edges = {w: trees.log_q[row, i] for i, w in enumerate(words)}
  paths = [sum(edges[w[:d]] for d in range(len(w) + 1)) for w in words[1:]]
  np.testing.assert_allclose(np.exp(paths), best, rtol=1e-4)


@pytest.mark.parametrize('num_nodes, num_matches', [(1, 64), (5, 5), (16, 64)])
def test_equals_slow_twin_on_the_text_alone(num_nodes, num_matches):
  texts = random_texts(0)
  trees = propose(texts, num_nodes, max_match=3, num_matches=num_matches)
  for row, text in enumerate(texts):
    matches = slow_matches(text, (), num_nodes - 1, 3)[:num_matches]
    assert_equals(trees, row, text, matches, num_nodes)


def test_equals_slow_twin_with_a_corpus():
  num_nodes = 16
  texts, others = random_texts(1), random_texts(2)
  # All that match, however many.
  size = 64 + sum(map(len, others))
  trees = propose(
    texts,
    num_nodes,
    suffix.corpus(others, VOCAB),
    max_match=3,
    num_matches=size,
  )
  for row, text in enumerate(texts):
    matches = slow_matches(text, others, num_nodes - 1, 3)
    assert_equals(trees, row, text, matches, num_nodes)


def test_search_finds_a_longest_match_in_the_corpus():
  rng = np.random.default_rng(3)
  others = [rng.integers(0, 3, size).tolist() for size in (400, 1, 2, 0, 97)]
  texts = [rng.integers(0, 3, size).tolist() for size in range(1, 40)]
  ends = [others[0][:9], others[4][40:60], others[2][:1]]
  num_nodes = 4
  trees = propose(
    texts + ends,
    num_nodes,
    suffix.corpus(others, VOCAB),
    max_match=20,
    num_matches=1,
  )
  sizes = []
  for row, text in enumerate(texts + ends):
    matches = slow_matches(text, others, num_nodes - 1, 20)
    # The chain is the draft of one of the longest matches.
    sizes.append(matches[0][0])
    longest = [draft for size, draft in matches if size == sizes[-1]]
    words = reference_decode.words_of(trees, row)
    assert list(words[-1]) in longest
  assert max(sizes) == 20 and min(sizes) <= 3


def test_the_order_of_the_corpus_is_that_of_its_prefixes():
  texts = [[1, 2, 1, 2, 1], [2, 1, 2], [0], [1, 2, 1, 2, 1]]
  corpus = suffix.corpus(texts, 3)
  tokens = np.asarray(corpus.tokens).tolist()
  assert tokens == [-1, 1, 2, 1, 2, 1, -1, 2, 1, 2, -1, 0, -1, *tokens[1:7]]
  places = [
    p for p in range(len(tokens) - 1) if tokens[p] != -1 and tokens[p + 1] != -1
  ]
  backwards = lambda place: tokens[place::-1]
  assert corpus.places.tolist() == sorted(places, key=backwards)


# Kinds: fewer places than a round looks at, as many, many rounds; ends that
# stand in the corpus and ends that do not; equal ones.
@pytest.mark.parametrize('size', [1, 31, 32, 33, 1023, 1024, 1500])
def test_an_end_belongs_behind_all_places_of_less(size):
  rng = np.random.default_rng(size)
  corpus = suffix.corpus([rng.integers(0, 3, size + 1).tolist()], VOCAB)
  ends = np.asarray(suffix._before(corpus.tokens, corpus.places, 8))
  others = rng.integers(0, 3, (50, 8), np.int32)
  asked = np.concatenate([ends[rng.integers(0, size, 50)], others])
  rank = jax.vmap(lambda end: suffix._rank(corpus, end))
  wanted = [sum(tuple(x) < tuple(end) for x in ends) for end in asked]
  np.testing.assert_array_equal(jax.jit(rank)(asked), wanted)


def test_nothing_to_look_up_proposes_the_root_alone():
  corpus = suffix.corpus([[1, 2, 3]], VOCAB)
  tree = propose([[5], [3]], 8, corpus)
  np.testing.assert_array_equal(tree.num_nodes, [1, 1])
  np.testing.assert_array_equal(tree.tokens[:, 0], [5, 3])


def test_frequent_continuations_come_before_late_ones():
  # After 7 came 1 twice and 2 once, at last.
  text = [7, 1, 0, 7, 1, 9, 7, 2, 3, 7]
  words = reference_decode.words_of(propose([text], 8))
  assert words.index((1,)) < words.index((2,))


def test_a_longer_match_outweighs_two_short_ones():
  text = [5, 7, 2, 0, 7, 1, 9, 7, 1, 3, 5, 7]
  words = reference_decode.words_of(propose([text], 16))
  assert words.index((2,)) < words.index((1,))


def test_merging_keeps_the_most_probable_beginnings():
  drafts = jnp.array([[1, 2], [3, 4], [1, 5], [6, 6]])
  values = jnp.array([[0.2, 0.1], [0.3, 0.25], [0.2, 0.2], [0.0, 0.0]])
  tree = jax.jit(merge.merge, static_argnums=3)(9, drafts, values, 8)
  # A draft that has ended states nothing.
  assert tree.num_nodes == 6
  words = [(), (1,), (3,), (3, 4), (1, 5), (1, 2)]
  assert reference_decode.words_of(jax.tree.map(lambda x: x[None], tree)) == (
    words
  )
  paths = np.array([1.0, 0.4, 0.3, 0.25, 0.2, 0.1])
  parents = [0, 0, 0, 2, 1, 1]
  np.testing.assert_allclose(
    tree.log_q[:6], np.log(paths / paths[parents]), atol=1e-6
  )


@pytest.fixture(scope='module')
def prompts():
  rng = np.random.default_rng(0)
  random = [rng.integers(0, VOCAB, size).tolist() for size in (1, 7, 30)]
  return [*random, [1, 2, 3] * 6]


def decode(params, prompts, drafter=None, drafter_params=()):
  """Returns the texts, and the steps that all of them took together."""
  results = generate.generate(
    params,
    prompts,
    eos_ids=EOS,
    max_new_tokens=24,
    max_length=64,
    drafter=drafter,
    drafter_params=drafter_params,
    num_nodes=8,
  )
  num_steps = sum(len(r.steps.emitted) for r in results if r.steps is not None)
  return [r.tokens for r in results], num_steps


@pytest.fixture(scope='module')
def plain(tiny, prompts):
  return decode(tiny, prompts)[0]


# Kinds: values that are taken for constants of a program.
def test_other_requests_compile_nothing(tiny, prompts):
  decode(tiny, prompts, suffix.make())
  others = [prompt[1:] or [5] for prompt in prompts[::-1]]
  with reference_programs.compiled() as programs:
    decode(tiny, others, suffix.make())
  assert not programs


def test_decodes_the_same_texts_in_fewer_steps_than_lookup(
  tiny, prompts, plain
):
  by_lookup, lookup_steps = decode(tiny, prompts, lookup.make())
  by_suffix, suffix_steps = decode(tiny, prompts, suffix.make())
  assert by_lookup == by_suffix == plain
  assert suffix_steps < lookup_steps < sum(map(len, plain))


def test_a_corpus_of_the_very_texts_is_accepted_whole(tiny, prompts, plain):
  texts = [p + t for p, t in zip(prompts, plain, strict=True)]
  corpus = suffix.corpus(texts, VOCAB)
  drafter = suffix.make(max_match=24)
  by_suffix, num_steps = decode(tiny, prompts, drafter, corpus)
  assert by_suffix == plain
  # All but the first trees are deep chains.
  assert num_steps <= 1.5 * sum(-(-len(t) // 8) for t in plain)


@pytest.mark.parametrize(
  'make, message',
  [
    (lambda: suffix.make(max_match=0), 'max_match and num_matches >= 1'),
    (lambda: suffix.make(num_matches=0), 'max_match and num_matches >= 1'),
    (lambda: suffix.corpus([[1], [0, 9]], 5), r'text 1: .*\[0, 5\), got 9'),
    (lambda: suffix.corpus([[1], [], [2]], 5), 'at least 2 tokens'),
    (lambda: suffix.corpus([], 5), 'at least 2 tokens'),
  ],
)
def test_impossible_arguments_are_refused(make, message):
  with pytest.raises(ValueError, match=message):
    make()


def test_a_corpus_of_another_vocabulary_is_refused(tiny):
  params = base.Params(tiny, suffix.corpus([[1, 2]], 29), None)
  with pytest.raises(ValueError, match='of 23 tokens, got 29'):
    suffix.make().init(params, None)
