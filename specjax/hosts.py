"""Several hosts work on one job, and put together what they found.

Each is a process; they share no memory and need share no disk.  All come to
every `gather`, in the same order.
"""

import atexit
import io
import os
import sys
from collections.abc import Mapping, Sequence

import jax
import numpy as np
from jax.experimental import multihost_utils

# Seconds without a sign of life after which a host counts as dead and the job
# ends on all others; and for which a host that fails waits for them.
_SILENCE = 20


def join(
  coordinator: str | None = None,
  num_hosts: int | None = None,
  host: int | None = None,
) -> None:
  """Makes this process one of several; to be called before anything of JAX.

  A host that dies ends the job: the others stop with an error in less than a
  minute, whatever they are doing.

  Args:
    coordinator: `HOST:PORT` of the first of them, where nothing listens yet;
      None for what the environment says, of a TPU pod, SLURM, Open MPI or
      Kubernetes.
    num_hosts: how many there are; None alike.
    host: which of them this is, from 0; None alike.

  Raises:
    ValueError: an environment that does not say.
  """
  try:
    jax.distributed.initialize(
      coordinator,
      num_hosts,
      host,
      heartbeat_timeout_seconds=_SILENCE,
      shutdown_timeout_seconds=_SILENCE,
    )
  except ValueError as error:
    raise ValueError(
      'expected the address of the first host, the number of hosts and which '
      f'of them this is, or an environment that tells, got: {error}'
    ) from error


def is_first() -> bool:
  """Returns whether this host writes what all have found."""
  return jax.process_index() == 0


def share(num_items: int) -> range:
  """Returns the items that this host works on; hosts take turns.

  Args:
    num_items: of all hosts.
  """
  return range(jax.process_index(), num_items, jax.process_count())


def gather(
  parts: Mapping[int, Mapping[str, np.ndarray]],
) -> dict[int, dict[str, np.ndarray]]:
  """Puts together what all hosts have found.

  Args:
    parts: what this host found, by item.

  Returns:
    What was found for every item, in their order, on every host.

  Raises:
    OSError: a host that has died.
  """
  if jax.process_count() == 1:
    return dict(sorted(parts.items()))
  names = {
    f'{item}/{k}': v for item, part in parts.items() for k, v in part.items()
  }
  file = io.BytesIO()
  np.savez(file, **names)
  found = {}
  for content in _exchanged(file.getbuffer()):
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
      for name, array in arrays.items():
        item, key = name.split('/')
        found.setdefault(int(item), {})[key] = array
  return dict(sorted(found.items()))


def wait_for_all() -> None:
  """Waits until all hosts are here: who leaves earlier is taken for dead.

  Raises:
    OSError: a host that has died.
  """
  _exchanged(b'')


def leave_at_once(status: int) -> None:
  """Ends this process without the farewell that all hosts have to come to.

  Args:
    status: with which it ends.
  """

  def leave():
    sys.stdout.flush()
    os._exit(status)

  # Called before what JAX registered, for the last comes first.
  atexit.register(leave)


def _exchanged(content) -> Sequence[bytes]:
  """Returns the bytes that each host brings."""
  own = np.frombuffer(content, np.uint8)
  try:
    sizes = multihost_utils.process_allgather(np.array(own.size, np.int32))
    padded = np.zeros(max(sizes.max(), 1), np.uint8)
    padded[: own.size] = own
    rows = multihost_utils.process_allgather(padded)
  except jax.errors.JaxRuntimeError as error:
    raise OSError(
      f'expected an answer of all {jax.process_count()} hosts, one has died: '
      f'{error}'
    ) from error
  return [row[:size].tobytes() for row, size in zip(rows, sizes, strict=True)]
