"""Sources, runs and policies to hold limits of whole runs against."""

import functools

import numpy as np
import reference_theory as reference


def regime_source():
  """Deterministic stretches, flat and peaked regimes, and an end of text."""
  vocab, eos = 8, 7
  laws = np.zeros((vocab, vocab))
  laws[0, 1] = laws[1, 2] = 1.0  # 0 -> 1 -> 2, surely
  laws[2] = [0.3, 0.05, 0.05, 0.3, 0.1, 0.1, 0.05, 0.05]
  laws[3] = [0.02, 0.0, 0.01, 0.9, 0.03, 0.0, 0.0, 0.04]  # sticky
  laws[4] = [1, 1, 1, 1, 1, 1, 1, 0.3]  # flat
  laws[5] = [0.0, 0.0, 0.0, 0.1, 0.4, 0.4, 0.1, 0.0]
  laws[6] = [0.5, 0.0, 0.0, 0.0, 0.0, 0.0, 0.5, 0.0]
  laws[7, 7] = 1.0
  return reference.MarkovSource(laws, eos)


def sampled_runs(source, num_texts, length, rng):
  """Lists of tokens after root 2, and their `Texts`."""
  runs = [source.sample(2, length, rng) for _ in range(num_texts)]
  num_tokens = np.array([len(run) for run in runs])
  tokens = np.zeros((num_texts, length), int)
  before = np.zeros((num_texts, length), int)
  for row, run in enumerate(runs):
    tokens[row, : len(run)] = run
    before[row, : len(run)] = [2, *run[:-1]]
  with np.errstate(divide='ignore'):
    log_p = np.log(source.laws)[before]
  return runs, reference.texts(log_p, tokens, num_tokens, eos_ids=[source.eos])


def policies(source, capacity, rng):
  """Tree policies, good and bad: name -> (history, root) -> tree."""
  oracle = functools.cache(lambda root: source.best_tree(root, capacity))

  def chain(history, root):
    path = [()]
    while len(path) < capacity:
      token = int(np.argmax(source.laws[path[-1][-1] if path[-1] else root]))
      path.append((*path[-1], token))
    return {p for p in path if source.eos not in p}

  def random(history, root):
    trees = [(), (int(rng.integers(7)),)]
    while len(trees) < capacity:
      parent = trees[rng.integers(len(trees))]
      trees.append((*parent, int(rng.integers(7))))
    return set(trees[:capacity])

  def adaptive(history, root):
    """Drafts nothing while the text does not repeat itself."""
    return oracle(root) if len(set(history[-4:])) < 4 else {()}

  return {
    'oracle': lambda history, root: oracle(root),
    'chain': chain,
    'random': random,
    'adaptive': adaptive,
  }


def least_calls(source, root, length, capacity):
  """Expected calls of the best policy for a text of `length`, by induction."""
  trees = source.trees(capacity)
  alphabet = range(len(source.laws))

  @functools.cache
  def best(before, left):
    if left == 0 or before == source.eos:
      return 0.0

    def after(tree, path, last, left):
      """Expected further calls, once `path` is followed within the tree."""
      total = 0.0
      for token in alphabet:
        p = source.laws[last, token]
        if p > 0.0:
          child = (*path, token)
          if child in tree and left > 1:
            total += p * after(tree, child, token, left - 1)
          else:
            total += p * best(token, left - 1)
      return total

    return 1.0 + min(after(tree, (), before, left) for tree in trees)

  return best(root, length)


def expected_totals(source, root, length, values):
  """Expected sum over a text of `values [V]`, indexed by the token before."""
  law, total = np.eye(len(source.laws))[root], 0.0
  for _ in range(length):
    if source.eos is not None:
      law = np.where(np.arange(len(law)) == source.eos, 0.0, law)
    total += law @ values
    law = law @ source.laws
  return total
