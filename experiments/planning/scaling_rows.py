"""Ways to split chips into copies of a model, and what each of them reaches."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from experiments.planning import groups
from specjax.theory import hardware, pass_times, planner, resample, roofline

# What takes longest -> what limits the pass.
_LIMITS = {
  'reading': 'memory',
  'computing': 'compute',
  'sending': 'links',
  'overhead': 'overhead',
}

# Mark of a row -> of which value it has most.
_MARKS = {
  'is_best': lambda row: row['rate'][0],
  'is_best_plain': lambda row: row['plain_rate'],
}


class Way(NamedTuple):
  """Chips of a slice, split into groups that hold a copy of the model each.

  Attributes:
    model: its name.
    chip: the name of one chip.
    num_chips: of all groups.
    group: one of them.
  """

  model: str
  chip: str
  num_chips: int
  group: groups.Group

  @property
  def num_copies(self) -> int:
    """How many copies of the model there are."""
    return self.num_chips // self.group.num_chips


def powers(most: int) -> list[int]:
  """Returns the powers of 2 up to a number.

  Args:
    most: at least 1.
  """
  return [2**i for i in range(most.bit_length())]


def rows_of_copy(way: Way, batch: int) -> int:
  """Returns the rows of the fullest copy; all are counted as slow as it is.

  Args:
    way: the chips.
    batch: rows in flight on all chips; with fewer rows than copies, the copies
      that are left have none.
  """
  return -(-batch // way.num_copies)


def key_of(way: Way, batch: int) -> dict:
  """Makes what names a row: the chips and how they are split.

  Args:
    way: the chips.
    batch: rows in flight on all chips.
  """
  chip, size = way.group.chip, way.group.num_chips
  return {
    'model': way.model,
    'chip': way.chip,
    'num_chips': way.num_chips,
    'batch': batch,
    'group': size,
    'copies': way.num_copies,
    'rows': rows_of_copy(way, batch),
    'slice': hardware.slice_of(chip, way.num_chips),
    'hosts': hardware.num_hosts(chip, way.num_chips),
    'group_hosts': -(-size // hardware.host_chips(chip, way.num_chips)),
    'kept': groups.kept_bytes(way.group, rows_of_copy(way, batch)),
    'usable': hardware.usable(chip),
  }


def row_of(
  way: Way,
  batch: int,
  capacities: Sequence[int],
  plan_fn: Callable[[pass_times.PassTimes], planner.Plan],
) -> dict | None:
  """Makes the row of one way, None where a chip has no room.

  Args:
    way: the chips.
    batch: rows in flight on all chips.
    capacities: nodes of a row's pass.
    plan_fn: from the pass times of a copy to its plan.
  """
  rows = rows_of_copy(way, batch)
  times = groups.times(way.group, rows, capacities)
  if times is None:
    return None
  found = plan_fn(times)
  best, plain = found.best, found.plain
  # A plan is for `rows` rows.
  rate = resample.Interval(*(x * batch / rows for x in best.rate))
  plain_rate = plain.rate.value * batch / rows
  dollars = way.num_chips * way.group.chip.price
  return {
    **key_of(way, batch),
    'is_forecast': True,
    'name': best.name,
    'capacity': best.num_nodes,
    'D': best.tokens,
    'rate': rate,
    'plain_rate': plain_rate,
    'speedup': best.speedup,
    'price': planner.price_per_million(rate.value, dollars),
    'plain_price': planner.price_per_million(plain_rate, dollars),
    'pass': _pass(way.group, rows, best.num_nodes),
    'plain_pass': _pass(way.group, rows, 1),
  }


def mark_best(table: Sequence[Mapping]) -> list[dict]:
  """Returns the rows, those of the best way to split their chips marked.

  Args:
    table: rows; those of one model, kind and number of chips, and batch are
      compared.  On a tie the first is the best.
  """
  best: dict[tuple, Mapping] = {}
  keys = lambda row: {mark: (mark, *_compared(row)) for mark in _MARKS}
  for row in table:
    for mark, key in keys(row).items():
      if _MARKS[mark](row) > _MARKS[mark](best.setdefault(key, row)):
        best[key] = row
  return [
    {**row, **{mark: best[key] is row for mark, key in keys(row).items()}}
    for row in table
  ]


def _compared(row):
  return tuple(row[name] for name in ('model', 'chip', 'num_chips', 'batch'))


def _pass(group, rows, num_nodes):
  """Where the time of a pass goes, what limits it and what a chip sends."""
  work = groups.work(group, rows, num_nodes)
  spent = roofline.spent(groups.machine(group), work)._asdict()
  return {
    'seconds': {name: float(x) for name, x in spent.items()},
    'limit': _LIMITS[max(spent, key=spent.get)],
    'sent': float(work.sent),
  }
