"""Slow NumPy oracles of the theory: best trees, exact bounds, sampled texts."""

import heapq

import jax
import jax.numpy as jnp
import numpy as np

from specjax.theory import entropy as entropy_lib

ZIPF = np.arange(1.0, 51.0) ** -1.5 / np.sum(np.arange(1.0, 51.0) ** -1.5)
PEAKED = np.array([0.85] + 30 * [0.005])


def moments(law):
  """Returns `mu` and `mu2` of one law."""
  p = np.asarray(law)[np.asarray(law) > 0]
  return -np.sum(p * np.log(p)), np.sum(p * np.log(p) ** 2)


def node_probabilities(law, num_nodes):
  """Returns the falling probabilities of the best-first tree's nodes.

  A lazy heap: popping the r-th best child of a node offers the next one, and
  its own best child.
  """
  law = np.sort(np.asarray(law))[::-1]
  law = law[law > 0]
  taken, heap = [1.0], [(-law[0], 1.0, 0)]
  while len(taken) < num_nodes and heap:
    p, parent, rank = heapq.heappop(heap)
    taken.append(-p)
    heapq.heappush(heap, (p * law[0], -p, 0))
    if rank + 1 < len(law):
      heapq.heappush(heap, (-parent * law[rank + 1], parent, rank + 1))
  return np.array(taken)


def optimum(law, num_nodes):
  """Returns `D(1 .. num_nodes)` of the best trees for one law."""
  return np.cumsum(node_probabilities(law, num_nodes))


def heap_tree(env, root, num_nodes):
  """Returns `{path: cost}` of the best-first tree of an environment.

  A lazy heap: popping the r-th best child of a node offers the next one, and
  its own best child.  Costs are added as the simulator adds them, in its type.
  """
  law_fn, child_fn = jax.jit(env.log_law), jax.jit(env.child)
  tree, heap = {(): np.zeros((), law_fn(root).dtype)}, []

  def offer(rank, path, cost, law, order, state):
    if rank < len(law) and law[order[rank]] > -np.inf:
      token = int(order[rank])
      child_cost = cost - law[token]
      entry = (child_cost, len(path) + 1, (*path, token))
      heapq.heappush(heap, (*entry, rank, cost, law, order, state))

  def open_node(path, cost, state):
    law = np.asarray(law_fn(state))
    offer(0, path, cost, law, np.argsort(-law, kind='stable'), state)

  open_node((), tree[()], root)
  while len(tree) < num_nodes:
    cost, _, path, rank, *parent, state = heapq.heappop(heap)
    tree[path] = cost
    offer(rank + 1, path[:-1], *parent, state)
    open_node(path, cost, child_fn(state, path[-1]))
  return tree


def paths(tree):
  """Returns the nodes of a `Tree` as tuples of tokens, in its order."""
  found = [()]
  for node in range(1, int(tree.num_nodes)):
    parent = int(tree.parents[node])
    found.append((*found[parent], int(tree.tokens[node])))
  return found


def exact_dual(nodes, capacity, t):
  """Returns the dual bound, from all nodes with `p >= e^-t`."""
  return capacity * np.exp(-t) + np.sum(np.maximum(nodes - np.exp(-t), 0.0))


def exact_counting(nodes, capacity, t):
  """Returns the counting bound, from all nodes with `p >= e^-t`."""
  return (capacity - 1) * np.exp(-t) + np.sum(nodes[nodes >= np.exp(-t)])


def texts(log_p, tokens, num_tokens=None, num_top=None, eos_ids=()):
  """Returns `Texts` from laws `[R, T, V]` and tokens `[R, T]`."""
  log_p, tokens = jnp.asarray(log_p), jnp.asarray(tokens, jnp.int32)
  if num_tokens is None:
    num_tokens = np.full(tokens.shape[0], tokens.shape[1])
  return entropy_lib.Texts(
    laws=entropy_lib.summarise(log_p, tokens, num_top or log_p.shape[-1]),
    tokens=tokens,
    num_tokens=jnp.asarray(num_tokens, jnp.int32),
    eos_ids=jnp.asarray(eos_ids, jnp.int32),
  )


def iid_texts(law, num_rows, length, rng):
  """Returns `Texts` whose tokens are all drawn from one law."""
  tokens = rng.choice(len(law), (num_rows, length), p=law / np.sum(law))
  log_p = np.broadcast_to(np.log(law), (num_rows, length, len(law)))
  return texts(log_p, tokens)


def walk_dual(log_p, tokens, num_tokens, eos, position, capacity, t):
  """Returns one start's dual sample, term by term, and whether it is open.

  Args:
    log_p: `[T, V]`.
    tokens: `[T]`.
    num_tokens: how many of them are recorded.
    eos: set of ids.
    position: the first token after the root.
    capacity: `N`.
    t: threshold.
  """
  total, surprisal = capacity * np.exp(-t) + 1 - np.exp(-t), 0.0
  for depth in range(1, capacity):  # the depth whose mean is added
    at = position + depth - 1
    if at >= num_tokens:
      worst = (capacity - depth) * (1 - np.exp(surprisal - t))
      return total + worst, True
    for token, log_prob in enumerate(log_p[at]):
      if token not in eos:
        excess = np.exp(log_prob) - np.exp(surprisal - t)
        total += max(excess, 0.0)
    surprisal -= log_p[at, tokens[at]]
    if surprisal > t or tokens[at] in eos:
      break
  return total, False


class MarkovSource:
  """A source whose next-token law depends on the token before it.

  Attributes:
    laws: `[V, V]`, the law after each token.
    eos: the token that ends a text, or None.
  """

  def __init__(self, laws, eos=None):
    self.laws = np.asarray(laws) / np.sum(laws, axis=1, keepdims=True)
    self.eos = eos

  def sample(self, root, length, rng):
    """Returns a text of at most `length` tokens after `root`."""
    text = []
    while len(text) < length and (not text or text[-1] != self.eos):
      before = text[-1] if text else root
      text.append(int(rng.choice(len(self.laws), p=self.laws[before])))
    return text

  def best_tree(self, root, num_nodes):
    """Returns the best-first tree, as a set of tuples with the empty one."""
    tree, heap = {()}, []

    def offer(path, p):
      law = self.laws[path[-1] if path else root]
      for token in np.flatnonzero(law):
        if token != self.eos:
          child = (*path, int(token))
          heapq.heappush(heap, (-p * law[token], len(child), child))

    offer((), 1.0)
    while len(tree) < num_nodes and heap:
      p, _, path = heapq.heappop(heap)
      tree.add(path)
      offer(path, -p)
    return tree

  def trees(self, num_nodes):
    """Yields every prefix-closed set of at most `num_nodes` paths, no EOS."""
    alphabet = [t for t in range(len(self.laws)) if t != self.eos]
    seen, level = set(), {frozenset({()})}
    while level:
      seen |= level
      level = {
        tree | {(*path, token)}
        for tree in level
        if len(tree) < num_nodes
        for path in tree
        for token in alphabet
      } - seen
    return seen


def num_calls(text, root, tree_fn):
  """Returns the iterations that emit `text` with the trees of a policy.

  Args:
    text: list of tokens.
    root: the token before it.
    tree_fn: `(tokens so far, last of them) -> tree`.
  """
  place = calls = 0
  while place < len(text):
    tree = tree_fn(text[:place], text[place - 1] if place else root)
    depth = 0
    while tuple(text[place : place + depth + 1]) in tree and (
      place + depth + 1 < len(text)
    ):
      depth += 1
    place += depth + 1
    calls += 1
  return calls
