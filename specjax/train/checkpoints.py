"""Checkpoints of a run: what a step changes, and where the data stand."""

import hashlib
import json
import pathlib
import shutil

import jax
import numpy as np
from absl import logging
from orbax.checkpoint import v1 as ocp

from specjax.train import step as step_lib

# How Orbax calls a checkpoint that it has not finished.
_UNFINISHED = '*.orbax-checkpoint-tmp*'


class Store:
  """The last checkpoints of a run, by step; a context manager.

  Each appears whole or not at all, and carries a digest of what it holds.
  """

  def __init__(self, folder: pathlib.Path, keep: int):
    """Opens a folder of checkpoints.

    Args:
      folder: where they are; made when it is absent.
      keep: how many of the newest are kept.

    Raises:
      ValueError: a `keep` below 1.
    """
    if keep < 1:
      raise ValueError(f'expected to keep at least 1 checkpoint, got {keep}')
    self._folder = pathlib.Path(folder).absolute()
    for path in self._folder.glob(_UNFINISHED):
      logging.warning('%s was never finished; it is removed', path)
      shutil.rmtree(path)
    policies = ocp.training.preservation_policies
    self._checkpointer = ocp.training.Checkpointer(
      self._folder, preservation_policy=policies.LatestN(keep)
    )

  def __enter__(self):
    return self

  def __exit__(self, *error):
    self._checkpointer.close()

  def save(self, state: step_lib.State, data_state: object) -> None:
    """Writes a checkpoint, and returns once it is there.

    Args:
      state: after some step.
      data_state: JSON values that say where the data stand.
    """
    facts = {'data': data_state, 'digest': _digest(state, data_state)}
    self._checkpointer.save(
      int(state.step), state, force=True, custom_metadata=facts
    )

  def restore(
    self, state: step_lib.State
  ) -> tuple[step_lib.State, object] | None:
    """Reads the newest checkpoint that is intact.

    Newer ones that are not are named in a warning, and removed.

    Args:
      state: one of the same run; shapes, types and devices alone are read.

    Returns:
      The state and where the data stood then; None if there is no checkpoint.

    Raises:
      ValueError: there are checkpoints, but none that can be read.
    """
    broken = []
    for step in sorted(self.steps, reverse=True):
      try:
        found = self._read(step, state)
      except Exception as error:  # Orbax raises all sorts for broken files.
        logging.warning(
          'the checkpoint of step %d in %s is skipped, for it is broken: %s',
          *(step, self._folder, error),
        )
        broken.append(step)
        continue
      # Only now is it sure that the files are at fault, not `state`.
      for newer in broken:
        self._checkpointer.delete(newer)
      return found
    if broken:
      raise ValueError(
        f'expected a checkpoint that can be read in {self._folder}, got '
        f'broken or unfit ones of the steps {sorted(broken)}'
      )
    return None

  @property
  def steps(self) -> list[int]:
    """After which steps there is a checkpoint, intact or not."""
    return [checkpoint.step for checkpoint in self._checkpointer.checkpoints]

  def _read(self, step, state):
    like = jax.tree.map(
      lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding),
      state,
    )
    found = self._checkpointer.load(step, like)
    facts = self._checkpointer.metadata(step).custom_metadata
    if facts.get('digest') != _digest(found, facts.get('data')):
      raise ValueError('expected what its digest says, got something else')
    return found, facts['data']


def _digest(state, data_state):
  """Names the bits: files whose bits have changed may be read unnoticed."""
  digest = hashlib.sha256(json.dumps(data_state, sort_keys=True).encode())
  for x in jax.tree.leaves(state):
    digest.update(np.asarray(x).tobytes())
  return digest.hexdigest()
