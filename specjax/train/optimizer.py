"""AdamW with the schedule that is usual for transformers."""

import chex
import jax
import optax

# What is left of the learning rate at the end.
_END = 0.1


def schedule(
  learning_rate: float, num_steps: int, num_warmup: int
) -> optax.Schedule:
  """The learning rate: a linear rise, then half a cosine.

  With `W = num_warmup`, `T = num_steps` and `r = learning_rate`, step `t`, from
  0, is taken with

    r (t + 1) / W                                       for t < W
    r (0.1 + 0.9 (1 + cos(pi (t - W) / (T - W))) / 2)   from there to T

  Source: Loshchilov and Hutter, arXiv 1608.03983.

  Args:
    learning_rate: the highest.
    num_steps: of the run.
    num_warmup: steps of the rise, below `num_steps`.

  Returns:
    A function of the number of steps taken.

  Raises:
    ValueError: a rise that is negative or takes the whole run.
  """
  if not 0 <= num_warmup < num_steps:
    raise ValueError(
      f'expected a warm-up of 0 to {num_steps - 1} steps, got {num_warmup}'
    )
  fall = optax.cosine_decay_schedule(
    learning_rate, num_steps - num_warmup, alpha=_END
  )
  if not num_warmup:
    return fall
  rise = optax.linear_schedule(
    learning_rate / num_warmup,
    learning_rate * (1 + 1 / num_warmup),
    num_warmup,
  )
  return optax.join_schedules([rise, fall], [num_warmup])


def adamw(
  learning_rate: optax.ScalarOrSchedule,
  *,
  weight_decay: float = 0.1,
  max_norm: float = 1.0,
) -> optax.GradientTransformation:
  """AdamW on clipped gradients, without decay of norms.

  Source: Loshchilov and Hutter, arXiv 1711.05101; the decay rates of the
  moments, 0.9 and 0.95, are those of Touvron et al., arXiv 2302.13971.

  Args:
    learning_rate: of each step.
    weight_decay: share of the learning rate by which weights shrink.
    max_norm: longer gradients, all together, are shortened to it.

  Returns:
    The optimiser.
  """
  return optax.chain(
    optax.clip_by_global_norm(max_norm),
    optax.adamw(
      learning_rate, b2=0.95, weight_decay=weight_decay, mask=_decays
    ),
  )


def _decays(params: chex.ArrayTree) -> chex.ArrayTree:
  """Marks all but norms, whose names tell them: stacks of them have 2 axes."""
  return jax.tree_util.tree_map_with_path(
    lambda path, _: 'norm' not in jax.tree_util.keystr(path), params
  )
