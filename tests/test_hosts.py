"""Two processes as hosts, told of one another by SLURM's variables."""

import json
import os
import pathlib
import socket
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[1]

# Three items of unlike sizes; the second host has one of them.
_SCRIPT = """
import json
import numpy as np
from specjax import hosts

hosts.join()
own = hosts.share(3)
found = hosts.gather(
  {
    item: {'x': np.full((item, 2), item / 2), 'n': np.int32([2**31 - 1 - item])}
    for item in own
  }
)
nothing = hosts.gather({} if hosts.is_first() else {7: {'y': np.arange(3) > 1}})
hosts.wait_for_all()
plain = lambda tree: {i: {k: v.tolist() for k, v in part.items()}
                      for i, part in tree.items()}
print(json.dumps([hosts.is_first(), list(own), plain(found), plain(nothing)]))
"""


def free_port():
  with socket.socket() as server:
    server.bind(('127.0.0.1', 0))
    return server.getsockname()[1]


def start(script, **variables):
  settings = {'PYTHONPATH': str(ROOT), 'JAX_PLATFORMS': 'cpu'}
  return subprocess.Popen(
    [sys.executable, '-c', script],
    env=os.environ | settings | variables,
    text=True,
    stdout=subprocess.PIPE,
    stderr=subprocess.PIPE,
  )


def test_hosts_find_one_another_and_gather_all_items():
  slurm = {
    'SLURM_JOB_ID': '123',
    'SLURM_STEP_NODELIST': 'localhost',
    'SLURM_NTASKS': '2',
    'SLURM_LOCALID': '0',
    'JAX_COORDINATOR_PORT': str(free_port()),
  }
  jobs = [start(_SCRIPT, **slurm, SLURM_PROCID=host) for host in '01']
  said = [job.communicate() for job in jobs]
  expected = {
    str(i): {'x': [[i / 2] * 2] * i, 'n': [2**31 - 1 - i]} for i in range(3)
  }
  nothing = {'7': {'y': [False, False, True]}}
  for host, (job, (out, err)) in enumerate(zip(jobs, said, strict=True)):
    assert job.returncode == 0, err
    assert json.loads(out.splitlines()[-1]) == [
      host == 0,
      [[0, 2], [1]][host],
      expected,
      nothing,
    ]


def test_an_environment_that_does_not_tell_is_refused():
  job = start('from specjax import hosts\nhosts.join()')
  _, err = job.communicate()
  assert job.returncode == 1
  assert 'ValueError: expected the address of the first host' in err
