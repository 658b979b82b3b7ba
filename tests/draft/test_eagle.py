"""The EAGLE-3 head against its slow twin: laws, trees, memory and texts."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import reference_checkpoint
import reference_decode
import reference_eagle
import reference_programs

from specjax import sampling as sampling_lib
from specjax.checkpoint import eagle as eagle_files
from specjax.decode import generate, loop, prefill
from specjax.draft import base, eagle, filled, grown
from specjax.llama import eagle as llama_eagle
from specjax.llama import storage
from specjax.trees import grow, rules, shapes

EOS = (3,)  # the head cannot draft it
# The last is longer than a piece.
PROMPTS = [[4], [9, 3], [1, 2, 3, 11, 0], list(range(22)) * 3]
SEEDS = [5, 6, 7, 8]
TEMPERATURES = (0.0, 1.0, 0.0, 0.7)
MAX_NEW = 24
COMB = 9  # nodes of a comb that is four deep, of which every other can be right
# Drafts that are planted right, by the length of the text modulo 7.
NUM_RIGHT = np.array([2, 0, 4, 1, 3, 0, 4])


@pytest.fixture(scope='module')
def model():
  return reference_eagle.verifier()


@pytest.fixture(scope='module')
def head(model, tmp_path_factory):
  folder = tmp_path_factory.mktemp('head')
  reference_checkpoint.write_folder(
    folder, reference_eagle.CONFIG, reference_eagle.tensors()
  )
  return eagle_files.load(folder, model, jnp.float32)


@pytest.fixture(scope='module')
def reader(model, head):
  return eagle.reader(head.config, model.config)


@pytest.fixture(scope='module')
def drafters(reader):
  """The same objects for all tests, so compiled once."""
  return {
    'beam': grown.make(reader, lambda n: rules.beam(n, 3, 3), 12, EOS),
    'drawn': filled.drawn(reader, lambda n: shapes.k_ary(n, 2), 7, False),
    'comb': filled.best(reader, reference_decode.comb, COMB, EOS),
  }


def log_law(model, text, drafts=()):
  return reference_eagle.log_law(reference_eagle.tensors(), model, text, drafts)


def read_prompts(model, prompts=PROMPTS, seeds=SEEDS):
  sampling = sampling_lib.make(len(prompts))
  [batch] = prefill.read_prompts(
    model,
    prompts,
    max_new_tokens=MAX_NEW,
    sampling=sampling.replace(temperature=jnp.asarray(TEMPERATURES)),
    seeds=seeds,
    features=reference_eagle.FEATURES,
  )
  return batch


@functools.partial(jax.jit, static_argnums=(0, 5))
def propose_of(drafter, *args):
  return drafter.propose(*args)[0]


def propose(model, head, drafter, num_nodes):
  """The first trees after the prompts, ranked and drawn at temperature 1."""
  prefix = read_prompts(model).prefix
  params = base.Params(model, head, sampling_lib.make(len(PROMPTS)))
  state = drafter.init(params, prefix)
  args = (params, state, prefix.tokens, prefix.lengths, num_nodes)
  return jax.device_get(propose_of(drafter, *args))


# Kinds: embedding and state swapped, ids of the head taken for the verifier's,
# a node that is fed the state of another than its parent.
@pytest.mark.parametrize('order', storage.ORDERS)
def test_it_grows_the_tree_of_its_twin(model, head, drafters, order):
  head = llama_eagle.ordered(head, order)
  tree = propose(model, head, drafters['beam'], 12).tree
  for row, prompt in enumerate(PROMPTS):
    law = functools.cache(lambda word, p=prompt: log_law(model, p, word))
    words = reference_decode.words_of(tree, row)
    assert set(words) == reference_eagle.best_nodes(law, 12, 3, 3)
    for node, word in enumerate(words[1:], start=1):
      expected = law(word[:-1])[word[-1]]
      np.testing.assert_allclose(tree.log_q[row, node], expected, atol=1e-4)


def test_it_draws_from_the_laws_of_its_twin(model, head, drafters):
  proposal = propose(model, head, drafters['drawn'], 7)
  for row, prompt in enumerate(PROMPTS):
    words = reference_decode.words_of(proposal.tree, row)
    for node, word in enumerate(words[:3]):
      law = proposal.log_q_full[row, node]
      np.testing.assert_allclose(law, log_law(model, prompt, word), atol=1e-4)
  assert np.all(np.isin(proposal.tree.tokens[:, 1:], reference_eagle.TOKEN_IDS))


def planted(drafter, texts):
  """The same drafter, but as many levels are right as `NUM_RIGHT` says.

  Of two siblings the second is right, so that accepted nodes are scattered.
  """
  shape = reference_decode.comb(COMB)
  can_be_right = shape.ranks == np.minimum(shape.depths, 1)

  def propose(params, state, tokens, lengths, num_nodes):
    proposal, (memory, (_, slots)) = drafter.propose(
      params, state, tokens, lengths, num_nodes
    )
    truth = jnp.take_along_axis(
      texts, lengths[:, None] - 1 + shape.depths, axis=1, mode='clip'
    )
    num_right = jnp.asarray(NUM_RIGHT)[lengths % len(NUM_RIGHT)]
    is_right = can_be_right & (shape.depths <= num_right[:, None])
    drafts = jnp.where(is_right, truth, (truth + 1) % reference_eagle.VOCAB)
    tree = proposal.tree.replace(tokens=drafts)
    return base.Proposal(tree), (memory, (drafts, slots))

  return drafter._replace(propose=propose)


@functools.partial(jax.jit, static_argnums=0)
def next_log_law(reader, params, state):
  """What the head says after the last token, from its memory."""
  roots = base.last_tokens(state.tokens, state.lengths)[:, None]
  nodes = grow.Nodes(
    tokens=roots,
    depths=jnp.zeros_like(roots),
    slots=jnp.ones_like(roots),
    parent_slots=jnp.full_like(roots, grow.NO_SLOT),
    above=jnp.zeros((*roots.shape, 1), bool),
  )
  logits = reader.read(params, state.drafter, nodes)[0][:, 0]
  return jax.nn.log_softmax(logits)


# Kinds: features of scattered nodes taken for those of a dense prefix, a hole
# behind a tree that was accepted whole.
@pytest.mark.parametrize('order', ['in_out', 'out_in'])
def test_after_every_iteration_it_knows_the_text(
  model, head, reader, drafters, order
):
  """Features and states of drafts, accepted or not, leave no trace."""
  head = llama_eagle.ordered(head, order)
  batch = read_prompts(model)
  plain = generate.decode(model, batch, eos_ids=EOS)
  texts = [p + result.tokens for p, result in zip(PROMPTS, plain, strict=True)]
  table = np.zeros((len(texts), max(map(len, texts)) + COMB), np.int32)
  for row, text in zip(table, texts, strict=True):
    row[: len(text)] = text
  drafter = planted(drafters['comb'], jnp.asarray(table))
  params = base.Params(model, head, batch.sampling)
  state = loop.start(
    batch.prefix, batch.limits, drafter.init(params, batch.prefix), MAX_NEW
  )
  state, found = jax.tree.map(jnp.copy, state), set()
  while not np.all(state.is_done):
    state = loop.run(
      params, state, 1, drafter=drafter, num_nodes=COMB, eos_ids=EOS
    )
    laws = next_log_law(reader, params, state)
    for row, length in enumerate(np.asarray(state.lengths)):
      expected = log_law(model, texts[row][:length])
      np.testing.assert_allclose(laws[row], expected, atol=1e-4)
  for row, count in enumerate(np.asarray(state.num_steps)):
    length = int(state.lengths[row])
    assert state.tokens[row, :length].tolist() == texts[row]
    found |= set(np.asarray(state.steps.depth[row, :count]).tolist())
  assert found == set(range(1 + COMB // 2))


# The rule that accepts by chance gives greedy rows alone their own text.
@pytest.mark.parametrize(
  ('name', 'num_nodes', 'rule', 'rows'),
  [
    ('beam', 12, 'match', range(4)),
    ('drawn', 7, 'without_replacement', (0, 2)),
  ],
)
def test_texts_are_those_of_plain_decoding(
  model, head, drafters, name, num_nodes, rule, rows
):
  def check(prompts, seeds, weights):
    batch = read_prompts(model, prompts, seeds)
    plain = generate.decode(model, batch, eos_ids=EOS)
    results = generate.decode(
      model,
      batch,
      eos_ids=EOS,
      drafter=drafters[name],
      drafter_params=weights,
      num_nodes=num_nodes,
      rule=rule,
    )
    for row in rows:
      assert results[row].tokens == plain[row].tokens
    return [r.steps.depth.max() for r in results]

  depths = check(PROMPTS, SEEDS, head)
  assert max(depths) > 0
  others = jax.tree.map(lambda x: -x, head.weights)
  # Other weights, seeds, prompts, lengths and acceptances compile nothing.
  with reference_programs.compiled() as programs:
    check([[8, 8], [2] * 70, [0], [5, 6]], [1, 2, 3, 4], head)
    check(PROMPTS, SEEDS, head.replace(weights=others))
  assert not programs


def test_generate_reads_prompts_with_the_features(model, head, drafters):
  ask = functools.partial(
    generate.generate,
    model,
    PROMPTS,
    eos_ids=EOS,
    max_new_tokens=MAX_NEW,
    seeds=SEEDS,
  )
  results = ask(drafter=drafters['beam'], drafter_params=head, num_nodes=12)
  assert [r.tokens for r in results] == [r.tokens for r in ask()]


@pytest.mark.parametrize(
  ('change', 'message'),
  [
    ({'vocab_size': 29}, 'the vocab_size of its verifier, 29, got 23'),
    ({'width': 32}, 'the width of its verifier, 32, got 16'),
    ({'num_layers': 4}, r'layers 0 to 3, got \(2, 3, 4\)'),
  ],
)
def test_a_head_of_another_verifier_is_refused(model, head, change, message):
  other = dataclasses.replace(model.config, **change)
  with pytest.raises(ValueError, match=message):
    eagle.reader(head.config, other)


def test_prompts_that_it_cannot_start_from_are_refused(model, head, drafters):
  params = base.Params(model, head, sampling_lib.make(1))
  [batch] = prefill.read_prompts(model, [[1, 2]], max_new_tokens=1)
  with pytest.raises(ValueError, match=r'features \(2, 3, 4\) .* got \(\)'):
    drafters['beam'].init(params, batch.prefix)
  layer = dataclasses.replace(head.config.layer, max_positions=100)
  config = dataclasses.replace(head.config, layer=layer)
  short = grown.make(
    eagle.reader(config, model.config), rules.best_first, 4, EOS
  )
  with pytest.raises(ValueError, match='at most 100 tokens.* room for 128'):
    short.init(params, read_prompts(model).prefix)
