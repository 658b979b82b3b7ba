"""Laws planted by path, and a reader that keeps what it read in slots."""

import jax.numpy as jnp
import numpy as np

VOCAB = 7
NUM_LAWS = 64
TURN = 31


def planted_laws(seed=0, sharpness=2.0):
  """`[NUM_LAWS, V]` log-probabilities; some tokens cannot be, some rows few."""
  rng = np.random.default_rng(seed)
  logits = sharpness * rng.normal(size=(NUM_LAWS, VOCAB))
  logits[rng.random(logits.shape) < 0.2] = -np.inf
  logits[::9, 1:] = -np.inf
  logits[:, 0] = np.maximum(logits[:, 0], -3)
  log_q = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
  return np.minimum(log_q, 0).astype(np.float32)


def state_after(path):
  """What a path of tokens, the root first, has become."""
  state = 0
  for token in path:
    state = (state * TURN + int(token) + 1) % 2**32
  return state


def law_after(laws, path):
  return laws[state_after(path) % NUM_LAWS]


def reader(laws):
  """A `ReadFn` whose memory `[B, P]` holds the states by slot.

  A parent's state comes from its slot, so that a slot that was given away too
  early, or a wrong ancestor, gives another law.
  """
  laws = jnp.asarray(laws)

  def read(states, nodes):
    rows = jnp.arange(states.shape[0])[:, None]
    before = states[rows, jnp.maximum(nodes.parent_slots, 0)]
    before = jnp.where(nodes.parent_slots < 0, jnp.uint32(0), before)
    after = before * jnp.uint32(TURN) + nodes.tokens.astype(jnp.uint32) + 1
    # The ancestors are as many as the node is deep, or it has no law.
    is_sound = jnp.sum(nodes.above, axis=2) == nodes.depths
    is_sound |= nodes.slots == nodes.above.shape[2]
    log_q = jnp.where(is_sound[..., None], laws[after % NUM_LAWS], jnp.nan)
    return log_q, states.at[rows, nodes.slots].set(after, mode='drop')

  return read


def paths_of(tree, row):
  """The paths of a tree's present nodes, the root first, in their order."""
  paths = []
  for node in range(int(tree.num_nodes[row])):
    above = paths[tree.parents[row, node]] if node else ()
    paths.append((*above, int(tree.tokens[row, node])))
  return paths
