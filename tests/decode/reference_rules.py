"""Verification rules in float64, one row, one node and one token at a time."""

import itertools

import numpy as np
import reference_edits

# What a request may ask of the law that is sampled, one by one and together.
_asked = reference_edits.Setting
SETTINGS = {
  'nothing': _asked(),
  'temperature': _asked(temperature=0.6),
  'greedy': _asked(temperature=0.0),
  'top-k': _asked(top_k=2),
  'top-p': _asked(top_p=0.6),
  'min-p': _asked(temperature=1.3, min_p=0.5),
  'repetition': _asked(repetition=1.5),
  'presence, frequency': _asked(presence=0.7, frequency=0.4),
  'bias': _asked(bias=((0, 0.8), (1, -1.0))),
  'minimum length': _asked(min_new_tokens=3),
  'all': _asked(
    temperature=0.8,
    top_p=0.95,
    min_p=0.02,
    repetition=1.2,
    presence=-0.3,
    frequency=0.2,
    bias=((0, 0.8),),
    min_new_tokens=2,
  ),
}


def residual(p, q, kept=1.0):
  """Mass and law of what `kept * p` has more than q; p if that is nothing."""
  more = np.maximum(kept * p - q, 0)
  return more.sum(), more / more.sum() if more.sum() > 0 else p


def certain(q, token):
  """The law that a draft came from: certainty where q cannot give it."""
  return q if q[token] > 0 else np.eye(len(q))[token]


def used_up(q, token):
  """What is left of q for a further draw without replacement."""
  rest = np.where(np.arange(len(q)) == token, 0, q)
  return rest / rest.sum() if rest.sum() > 0 else rest


def rejection_chances(p, q, drafts, replaced):
  """Chance of each child in turn, and the law where all are rejected."""
  chances = []
  for token in drafts:
    d = certain(q, token)
    chances.append(min(1, p[token] / d[token]))
    _, p = residual(p, d)
    if not replaced:
      q = used_up(q, token)
  return chances, p


def block_chances(laws, drafter_laws, drafts):
  """Chance and law of leaving a chain after each number of its drafts."""
  kept, chances, leaving = 1.0, [], []
  for depth, p in enumerate(laws):
    if depth == len(drafts):
      chances.append(kept)
      leaving.append(p)
    else:
      q = certain(drafter_laws[depth], drafts[depth])
      mass, law = residual(p, q, kept)
      some = mass + 1 - kept
      chances.append(mass / some if some > 0 else 1.0)
      leaving.append(law)
      kept = min(1, kept * p[drafts[depth]] / q[drafts[depth]])
  return chances, leaving


def children(parents, num_nodes, node):
  return [i for i in range(1, num_nodes) if parents[i] == node]


def first_chain(parents, num_nodes):
  """The root, its first child, that one's first child, and so on."""
  chain = [0]
  while follow := children(parents, num_nodes, chain[-1]):
    chain.append(follow[0])
  return chain


def walk(rule, tree, laws, drafter_laws, coins, draw_fn):
  """Nodes visited and tokens emitted of one row.

  Args:
    rule: its name.
    tree: tokens, parents and number of nodes.
    laws: `[N, V]` the verifier's after each node.
    drafter_laws: `[N, V]`.
    coins: `[N]`.
    draw_fn: `(law, depth) -> token`.
  """
  tokens, parents, num_nodes = tree
  if rule == 'block':
    chain = first_chain(parents, num_nodes)
    drafts = [tokens[node] for node in chain[1:]]
    chances, leaving = block_chances(
      [laws[node] for node in chain],
      [drafter_laws[node] for node in chain],
      drafts,
    )
    last = max(i for i, node in enumerate(chain) if coins[node] < chances[i])
    return chain[: last + 1], [*drafts[:last], draw_fn(leaving[last], last)]
  path, emitted = [0], []
  while True:
    node = path[-1]
    tried = children(parents, num_nodes, node)
    chances, rest = rejection_chances(
      laws[node],
      drafter_laws[node],
      [tokens[i] for i in tried],
      rule == 'with_replacement',
    )
    won = [i for i, c in zip(tried, chances, strict=True) if coins[i] < c]
    if not won:
      return path, [*emitted, draw_fn(rest, len(emitted))]
    path.append(won[0])
    emitted.append(tokens[won[0]])


def drafting_chance(rule, tree, words, drafter_laws):
  """Probability that the tokens of a tree are drawn.

  Args:
    rule: 'without_replacement', or any other for draws with replacement.
    tree: tokens, parents and number of nodes.
    words: the branch of each node.
    drafter_laws: laws `[V]` by branch. Where one is used up the first token
      stands, which is a draw that is no draw.
  """
  tokens, parents, num_nodes = tree
  chance = 1.0
  for node in range(num_nodes):
    q = drafter_laws[words[node]]
    for child in children(parents, num_nodes, node):
      chance *= q[tokens[child]] if q.sum() > 0 else tokens[child] == 0
      if rule == 'without_replacement':
        q = used_up(q, tokens[child])
  return chance


def all_trees(parents, vocab_size):
  """All ways of putting tokens on a shape: tree and branch of each node."""
  num_nodes = len(parents)
  for drafts in itertools.product(range(vocab_size), repeat=num_nodes - 1):
    tokens = [0, *drafts]
    words = [()]
    for node in range(1, num_nodes):
      words.append((*words[parents[node]], tokens[node]))
    yield (tokens, list(parents), num_nodes), words
