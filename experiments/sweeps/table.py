"""Where the runs of a sweep stand, as a table and a sentence."""

import collections
import datetime
from collections.abc import Mapping, Sequence

from experiments import text_tables
from experiments.sweeps import claims, grid


def table_text(
  runs: Sequence[grid.Run], standings: Mapping[str, claims.Standing]
) -> str:
  """Returns a line for each run: its state, and what its last claim says.

  Args:
    runs: of the sweep.
    standings: by path.
  """
  rows = [('run', 'state', 'claims', 'failures', 'worker', 'heard of')]
  for run in runs:
    standing = standings[run.path]
    claim = standing.claim
    rows.append(
      (
        run.path,
        standing.state,
        str(standing.number),
        str(standing.failures),
        str(claim.get('worker', '')),
        _age(claim.get('changed')),
      )
    )
  return text_tables.aligned(rows)


def sentence(standings: Mapping[str, claims.Standing]) -> str:
  """Returns how many runs are in which state.

  Args:
    standings: by path.
  """
  counts = collections.Counter(x.state for x in standings.values())
  parts = [f'{counts[state]} {state}' for state in claims.STATES]
  return f'{len(standings)} runs: {", ".join(parts)}'


def failures_text(standings: Mapping[str, claims.Standing]) -> str:
  """Returns what runs said before they failed for good, '' if none did.

  Args:
    standings: by path.
  """
  return '\n\n'.join(
    f'{path} failed with exit code {standing.claim["code"]}:\n'
    + standing.claim['log'].rstrip()
    for path, standing in standings.items()
    if standing.state == 'failed'
  )


def _age(changed: str | None) -> str:
  if changed is None:
    return ''
  now = datetime.datetime.now(datetime.UTC)
  age = now - datetime.datetime.fromisoformat(changed)
  return f'{max(age.total_seconds(), 0):.0f} s ago'
