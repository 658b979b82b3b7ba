"""From plans to the rows of the record of `plan`."""

from collections.abc import Mapping

from experiments.planning import cases as cases_lib
from specjax.theory import planner


def row_of(case: cases_lib.Case, batch: int, found: planner.Plan) -> dict:
  """Makes the row of a plan.

  Args:
    case: what is planned for.
    batch: rows that share a pass.
    found: the plan.
  """
  best = found.best
  price = lambda choice: (
    planner.price_per_million(choice.rate.value, case.price_per_hour)
    if case.price_per_hour is not None
    else None
  )
  return {
    **key_of(case, batch),
    'is_forecast': case.is_forecast,
    'name': best.name,
    'capacity': best.num_nodes,
    'D': best.tokens,
    'seconds': best.seconds,
    'rate': best.rate,
    'speedup': best.speedup,
    'ceiling': found.ceiling and found.ceiling.rate.value,
    'plain_rate': found.plain.rate.value,
    'price': price(best),
    'plain_price': price(found.plain),
  }


def surface_of(
  case: cases_lib.Case, batch: int, found: planner.Plan
) -> list[dict]:
  """Makes the rows of a batch's surface: the best candidate of every size.

  Args:
    case: what is planned for.
    batch: rows that share a pass.
    found: the plan.
  """
  best: dict[int, planner.Choice] = {}
  for choice in found.choices:  # The fastest first.
    best.setdefault(choice.num_nodes, choice)
  return [
    {
      **key_of(case, batch),
      'capacity': size,
      'rate': choice.rate.value,
      'speedup': choice.speedup.value,
      'is_best': choice is found.best,
    }
    for size, choice in sorted(best.items())
  ]


def key_of(case: cases_lib.Case, batch: int) -> Mapping[str, object]:
  """Returns what a plan is for.

  Args:
    case: what is planned for.
    batch: rows that share a pass.
  """
  return {'model': case.model, 'machine': case.machine, 'batch': batch}
