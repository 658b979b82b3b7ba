import jax.numpy as jnp
import numpy as np

from specjax.llama import config as llama_config
from specjax.llama import rope


def test_rotation_is_a_complex_product():
  x = np.random.RandomState(0).randn(2, 3, 4, 8).astype(np.float32)
  positions = np.array([[0, 1, 300], [7, 4095, 2]])
  plain = llama_config.RopeConfig(theta=100.0)
  turned = rope.rotate(jnp.asarray(x), *rope.angles(plain, 8, positions))
  speeds = 100.0 ** (-np.arange(4) / 4)
  phases = np.exp(1j * positions[..., None, None] * speeds)
  expected = (x[..., :4] + 1j * x[..., 4:]) * phases
  np.testing.assert_allclose(turned[..., :4], expected.real, atol=2e-3)
  np.testing.assert_allclose(turned[..., 4:], expected.imag, atol=2e-3)


def test_position_257_is_not_rounded():
  plain = llama_config.RopeConfig()
  cos, sin = rope.angles(plain, 2, jnp.array([[257]]))
  np.testing.assert_allclose(cos.item(), np.cos(257.0), atol=1e-6)
  np.testing.assert_allclose(sin.item(), np.sin(257.0), atol=1e-6)


def test_linear_scaling_divides_positions():
  linear = llama_config.RopeConfig(kind='linear', factor=4.0)
  np.testing.assert_array_equal(
    rope.inverse_frequencies(linear, 16) * 4,
    rope.inverse_frequencies(llama_config.RopeConfig(), 16),
  )


def test_llama3_scaling_case_by_case():
  scaled = llama_config.PRESETS['llama-3.1-8b'].rope
  plain = llama_config.RopeConfig(theta=scaled.theta)
  got = rope.inverse_frequencies(scaled, 128)
  for f, g in zip(rope.inverse_frequencies(plain, 128), got, strict=True):
    wave = 2 * np.pi / f
    if wave < 8192 / 4:
      expected = f
    elif wave > 8192 / 1:
      expected = f / 8
    else:
      smooth = (8192 / wave - 1) / (4 - 1)
      expected = (1 - smooth) * f / 8 + smooth * f
    np.testing.assert_allclose(g, expected, rtol=1e-6)
