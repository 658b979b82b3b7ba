"""The loss of a language model: nats of the next token."""

import jax
import jax.numpy as jnp

from specjax.llama import config as llama_config
from specjax.llama import model as llama_model
from specjax.llama import packed
from specjax.train import step


def make(
  config: llama_config.LlamaConfig,
  *,
  dtype: jnp.dtype = jnp.float32,
  remat: bool = False,
) -> step.LossFn:
  """Makes the loss with which a Llama is trained.

  `sum of -log p(t_i | the text before it)` over the targets `i`.

  Args:
    config: of the model.
    dtype: of the arithmetic, float32 or bfloat16; parameters and their
      gradients keep their own.
    remat: whether the backward pass computes each layer anew, to save memory.

  Returns:
    A loss of the weights of a `model.Params`, of nothing that is frozen (None),
    and of batches with `tokens`, `documents`, `positions` and `is_target`, each
    `[B, T]`; no target is the first token of its text.  Further mean:
    `accuracy`, how often the most probable token is the right one.
  """

  def loss_fn(weights, frozen, batch):
    del frozen
    weights = jax.tree.map(lambda x: x.astype(dtype), weights)
    params = llama_model.Params(weights, config)
    hidden = packed.forward(
      params, batch.tokens, batch.positions, batch.documents, remat
    )
    is_target = batch.is_target[:, 1:]
    log_p = jax.nn.log_softmax(llama_model.head(params, hidden[:, :-1]))
    right = batch.tokens[:, 1:]
    log_p_right = jnp.take_along_axis(log_p, right[..., None], axis=-1)[..., 0]
    num_targets = jnp.sum(is_target)
    num_hits = jnp.sum((jnp.argmax(log_p, axis=-1) == right) & is_target)
    loss = -jnp.sum(jnp.where(is_target, log_p_right, 0))
    return loss, num_targets, {'accuracy': (num_hits, num_targets)}

  return loss_fn
