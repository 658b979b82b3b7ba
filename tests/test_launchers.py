"""Launchers say what they would do, and do what they say.

The syntax of foreign commands is written out here as their documentation has
it: the reference of `gcloud compute tpus`, the manual of `sbatch`, and the API
reference of JobSet v1alpha2 and of Kubernetes.
"""

import os
import pathlib
import re
import shlex
import subprocess
import sys

import pytest
import yaml

ROOT = pathlib.Path(__file__).parents[1]
LAUNCH = ROOT / 'launch'

# Command of gcloud compute tpus -> positional arguments, then flags; those that
# must be there, which all others may.  True for flags that take a value.
ZONE = {'--zone': True}
WIDE = {'--project': True, '--quiet': False, '--format': True}
GCLOUD = {
  'queued-resources describe': (1, {}, ZONE),
  'queued-resources delete': (1, {}, {'--async': False, '--force': False}),
  'queued-resources create': (
    1,
    {'--node-id': True, '--accelerator-type': True, '--runtime-version': True},
    {'--spot': False, '--valid-until-duration': True, '--async': False},
  ),
  'tpu-vm scp': (2, {}, {'--recurse': False, '--worker': True}),
  'tpu-vm ssh': (1, {}, {'--command': True, '--worker': True}),
}

SBATCH = {
  '--job-name',
  '--nodes',
  '--ntasks-per-node',
  '--gres',
  '--cpus-per-task',
  '--time',
  '--requeue',
  '--open-mode',
}

# Plays gcloud, srun or kubectl: notes its words and what it is given; fails
# where they hold $FAIL_ON; tells the next of the states of $STATES.
FAKE = """#!/usr/bin/env bash
printf '%q ' "$(basename "$0")" "$@" >>"$LOG"
echo >>"$LOG"
[[ $0 == */kubectl ]] && cat >>"$LOG"
[[ $* != *"$FAIL_ON"* ]] || exit 7
if [[ $* == *' describe '* ]]; then
  state=$(head -n 1 "$STATES")
  sed -i 1d "$STATES"
  [[ $state ]] && echo "$state"
fi
"""


class Cloud:
  """A folder with commands that only note what they are asked."""

  def __init__(self, folder):
    self.folder = folder
    self.log = folder / 'log'
    for name in ('gcloud', 'srun', 'kubectl', 'python'):
      file = folder / 'bin' / name
      file.parent.mkdir(exist_ok=True)
      file.write_text(FAKE)
      file.chmod(0o755)

  def run(self, script, *arguments, states=(), fail_on='no such word'):
    """Runs a launcher; returns its result and what was asked."""
    self.log.write_text('')
    (self.folder / 'states').write_text(''.join(f'{s}\n' for s in states))
    result = subprocess.run(
      [LAUNCH / script, *arguments],
      cwd=self.folder,
      env={
        **os.environ,
        'PATH': f'{self.folder / "bin"}:{os.environ["PATH"]}',
        'LOG': str(self.log),
        'STATES': str(self.folder / 'states'),
        'FAIL_ON': fail_on,
        'POLL': '0',
        'TMPDIR': str(self.folder),
        'SPECJAX_VENV': str(self.folder),
      },
      capture_output=True,
      text=True,
    )
    return result, self.log.read_text().splitlines()


@pytest.fixture
def cloud(tmp_path, monkeypatch):
  # What tests themselves are started with is none of a launcher's business.
  monkeypatch.delenv('SPECJAX_EXTRAS', raising=False)
  return Cloud(tmp_path)


TPU_FLAGS = ('--zone=us-west4-a', '--accelerator=v5litepod-16', '--project=p')
EXPERIMENT = ('my-run', 'speed_of_light', '--prompts=two words.jsonl')


def dry_run(cloud, script, *arguments):
  result, asked = cloud.run(script, '--dry_run', *arguments)
  assert result.returncode == 0, result.stderr
  assert asked == []
  return result.stdout.splitlines()


def words_after(line, *start):
  words = shlex.split(line)
  assert tuple(words[: len(start)]) == start
  return words[len(start) :]


def remote(line):
  """The command that a line of gcloud runs on hosts."""
  [command] = [w for w in shlex.split(line) if w.startswith('--command=')]
  return command.removeprefix('--command=')


@pytest.mark.parametrize('more', [(), ('--spot', '--valid_until=2d')])
def test_commands_of_gcloud_are_as_documented(cloud, more):
  lines = dry_run(cloud, 'tpu_vm.sh', *TPU_FLAGS, *more, *EXPERIMENT)
  lines = [line for line in lines if line.startswith('gcloud')]
  asked = []
  for line in lines:
    group, verb, *words = words_after(line, 'gcloud', 'compute', 'tpus')
    asked.append(f'{group} {verb}')
    num_positional, needed, possible = GCLOUD[asked[-1]]
    flags = dict(w.partition('=')[::2] for w in words if w.startswith('--'))
    assert len(words) - len(flags) == num_positional
    assert needed.keys() | ZONE.keys() <= flags.keys()
    known = needed | possible | ZONE | WIDE
    for name, value in flags.items():
      assert bool(value) == known[name], line
  assert set(asked) == set(GCLOUD)
  assert ('--spot' in lines[1]) == ('--spot' in more)


@pytest.mark.parametrize(
  'accelerator, runtime',
  [
    ('v6e-16', 'v2-alpha-tpuv6e'),
    ('v5p-32', 'v2-alpha-tpuv5'),
    ('v5litepod-16', 'v2-alpha-tpuv5-lite'),
    ('v4-8', 'tpu-ubuntu2204-base'),
  ],
)
def test_accelerators_have_the_runtimes_that_go_with_them(
  cloud, accelerator, runtime
):
  flags = ('--zone=z', f'--accelerator={accelerator}')
  lines = dry_run(cloud, 'tpu_vm.sh', *flags, *EXPERIMENT)
  assert f'--runtime-version={runtime}' in shlex.split(lines[1])


def test_a_slice_runs_what_was_said_and_is_deleted(cloud):
  said = dry_run(cloud, 'tpu_vm.sh', *TPU_FLAGS, *EXPERIMENT)
  result, asked = cloud.run(
    'tpu_vm.sh', *TPU_FLAGS, *EXPERIMENT, states=['', 'PROVISIONING', 'ACTIVE']
  )
  assert result.returncode == 0, result.stderr
  # It looks once more until the slice is there.
  assert asked[2] == asked[3]
  local = [line for line in said if not line.startswith('gcloud')]
  assert asked[:2] + asked[3:] == [line for line in said if line not in local]
  archive = cloud.folder / 'specjax-my-run.tar.gz'
  listed = subprocess.run(['tar', '-tzf', archive], capture_output=True)
  names = set(listed.stdout.decode().splitlines())
  assert './launch/run.sh' in names
  assert not any(name.startswith('./.venv') for name in names)
  assert shlex.split(remote(asked[-3])) == [
    *('cd', 'specjax', '&&', 'SPECJAX_EXTRAS=tpu', 'launch/run.sh'),
    *('speed_of_light', '--run_name=my-run', '--results_dir=results'),
    *('--parallel=shard_map', '--coordinator=auto', EXPERIMENT[-1]),
  ]
  for command in map(remote, (asked[-4], asked[-3])):
    subprocess.run(['bash', '-n'], input=command.encode(), check=True)


def verbs(asked):
  return [' '.join(shlex.split(line)[3:5]) for line in asked]


def test_a_slice_that_is_there_is_used_again_and_kept(cloud):
  result, asked = cloud.run(
    'tpu_vm.sh', '--keep', *TPU_FLAGS, *EXPERIMENT, states=['ACTIVE'] * 2
  )
  assert result.returncode == 0, result.stderr
  assert 'my-run is there, and paid for' in result.stderr
  assert not {'queued-resources create', 'queued-resources delete'} & set(
    verbs(asked)
  )


def test_a_slice_that_was_taken_away_is_made_again(cloud):
  states = ['SUSPENDED', 'ACTIVE']
  _, asked = cloud.run('tpu_vm.sh', *TPU_FLAGS, *EXPERIMENT, states=states)
  assert verbs(asked)[:3] == [
    'queued-resources describe',
    'queued-resources delete',
    'queued-resources create',
  ]


@pytest.mark.parametrize(
  'fail_on, is_fetched', [('speed_of_light --run', True), ('apt-get', False)]
)
def test_a_slice_is_deleted_whatever_fails(cloud, fail_on, is_fetched):
  result, asked = cloud.run(
    'tpu_vm.sh',
    *TPU_FLAGS,
    *EXPERIMENT,
    states=['', 'ACTIVE'],
    fail_on=fail_on,
  )
  assert result.returncode == 7
  assert verbs(asked)[-1] == 'queued-resources delete'
  assert ('--recurse' in asked[-2]) == is_fetched


def test_a_slice_that_never_comes_is_an_error(cloud):
  result, asked = cloud.run(
    'tpu_vm.sh', *TPU_FLAGS, *EXPERIMENT, states=['', 'FAILED']
  )
  assert result.returncode == 2
  assert result.stderr == 'error: my-run is FAILED\n'
  assert verbs(asked)[-1] == 'queued-resources delete'


def test_options_of_sbatch_are_as_documented():
  lines = (LAUNCH / 'slurm.sbatch').read_text().splitlines()
  options = [
    line.split()[1].partition('=')[0]
    for line in lines
    if line.startswith('#SBATCH')
  ]
  assert len(options) == len(set(options)) > 0
  assert set(options) <= SBATCH
  # The last comes before the first line that is no comment.
  first_command = [bool(line) and line[0] != '#' for line in lines].index(True)
  assert lines.index('#SBATCH --open-mode=append') < first_command
  subprocess.run(
    [
      pathlib.Path(sys.executable).parent / 'shellcheck',
      *('--shell=bash', '-x', '-P', ROOT, LAUNCH / 'slurm.sbatch'),
    ],
    check=True,
  )


def test_a_job_of_slurm_runs_what_was_said(cloud):
  said = dry_run(cloud, 'slurm.sbatch', *EXPERIMENT[1:], '--run_name=x')
  result, asked = cloud.run('slurm.sbatch', *EXPERIMENT[1:], '--run_name=x')
  assert result.returncode == 0, result.stderr
  assert said[-1] == f'SPECJAX_EXTRAS=gpu {asked[-1]}'
  assert words_after(asked[-1], 'srun', '--kill-on-bad-exit=1') == [
    *('launch/run.sh', 'speed_of_light', '--coordinator=auto'),
    *('--prompts=two words.jsonl', '--run_name=x'),
  ]


# Field -> what it has to be: a type, a pattern, a nested schema, or a list of
# one; a star is for names of one's own.  Fields are all there are.
QUANTITY = 'google.com/tpu'
POD = {
  'restartPolicy': 'Never',
  'serviceAccountName': str,
  'nodeSelector': {'*': str},
  'containers': [
    {
      'name': str,
      'image': str,
      'workingDir': str,
      'command': [str],
      'env': [{'name': str, 'value': str}],
      'ports': [{'containerPort': int}],
      'resources': {'limits': {QUANTITY: int}},
      'volumeMounts': [{'name': str, 'mountPath': str}],
    }
  ],
  'volumes': [
    {'name': str, 'csi': {'driver': str, 'volumeAttributes': {'*': str}}}
  ],
}
JOB_SET = {
  'apiVersion': 'jobset.x-k8s.io/v1alpha2',
  'kind': 'JobSet',
  'metadata': {'name': str, 'namespace': str, 'annotations': {'*': str}},
  'spec': {
    'failurePolicy': {'maxRestarts': int},
    'network': {'enableDNSHostnames': bool, 'publishNotReadyAddresses': bool},
    'replicatedJobs': [
      {
        'name': str,
        'replicas': int,
        'template': {
          'spec': {
            'parallelism': int,
            'completions': int,
            'backoffLimit': int,
            'template': {'metadata': {'annotations': {'*': str}}, 'spec': POD},
          }
        },
      }
    ],
  },
}


def check_schema(found, schema, place='manifest'):
  if isinstance(schema, dict):
    assert isinstance(found, dict), place
    names = {'*': next(iter(schema.values()))}
    schema = dict.fromkeys(found, names['*']) if '*' in schema else schema
    assert found.keys() == schema.keys(), place
    for name, value in found.items():
      check_schema(value, schema[name], f'{place}.{name}')
  elif isinstance(schema, list):
    assert isinstance(found, list) and found, place
    for value in found:
      check_schema(value, schema[0], f'{place}[]')
  elif isinstance(schema, str):
    assert found == schema, place
  else:
    assert type(found) is schema, place


GKE_FLAGS = ('--image=eu.pkg.dev/p/r:1', '--bucket=my-bucket')


@pytest.mark.parametrize(
  'topology, chips, hosts', [('4x4', 4, 4), ('2x2x4', 4, 4), ('2x4', 8, 1)]
)
def test_the_manifest_is_a_jobset_of_whole_slices(
  cloud, topology, chips, hosts
):
  lines = dry_run(
    cloud,
    'gke.sh',
    *(*GKE_FLAGS, f'--topology={topology}', f'--chips_per_host={chips}'),
    *(*EXPERIMENT, '--model=a "quoted" & $\\name'),
  )
  assert lines[0] == '# kubectl apply --filename=- <<END'
  manifest = yaml.safe_load('\n'.join(lines))
  check_schema(manifest, JOB_SET)
  [job] = manifest['spec']['replicatedJobs']
  spec = job['template']['spec']
  assert spec['parallelism'] == spec['completions'] == hosts
  pod = spec['template']['spec']
  [host] = pod['containers']
  assert host['resources']['limits'] == {QUANTITY: chips}
  assert host['command'][-2:] == [
    '--prompts=two words.jsonl',
    '--model=a "quoted" & $\\name',
  ]
  assert '--run_name=my-run' in host['command']
  selected = pod['nodeSelector']['cloud.google.com/gke-tpu-topology']
  assert selected == topology
  mounts = {mount['name'] for mount in host['volumeMounts']}
  assert mounts == {volume['name'] for volume in pod['volumes']}


def test_kubectl_is_given_what_was_said(cloud):
  said = dry_run(cloud, 'gke.sh', *GKE_FLAGS, *EXPERIMENT)
  result, asked = cloud.run('gke.sh', *GKE_FLAGS, *EXPERIMENT)
  assert result.returncode == 0, result.stderr
  assert words_after(asked[0], 'kubectl') == ['apply', '--filename=-']
  assert asked[1:] == said[1:-1]


@pytest.mark.parametrize(
  'script, arguments, message',
  [
    ('tpu_vm.sh', ('--zone=z', *EXPERIMENT), 'expected --zone=ZONE'),
    ('tpu_vm.sh', (*TPU_FLAGS, '--sport', *EXPERIMENT), "got '--sport'"),
    ('tpu_vm.sh', (*TPU_FLAGS, 'My_run', 'x'), "dashes, got 'My_run'"),
    (
      'tpu_vm.sh',
      ('--zone=z', '--accelerator=v9-8', *EXPERIMENT),
      "expected --runtime for the accelerator 'v9-8', got none",
    ),
    ('gke.sh', ('--bucket=b', *EXPERIMENT), "got '' for image"),
    (
      'gke.sh',
      (*GKE_FLAGS, '--topology=4x3', '--chips_per_host=8', *EXPERIMENT),
      'expected hosts of 8 chips to fill 4x3',
    ),
    ('gke.sh', (*GKE_FLAGS, '--topology=16', *EXPERIMENT), "got '16'"),
    ('slurm.sbatch', (), 'expected EXPERIMENT FLAGS, got nothing'),
    ('local_pod.sh', (), 'got no experiment'),
    ('local_pod.sh', ('--processes=0', 'x'), 'got --processes=0'),
    ('local_pod.sh', ('--hosts=2', 'x'), "got '--hosts=2'"),
  ],
)
def test_mistakes_are_told_and_nothing_is_done(
  cloud, script, arguments, message
):
  result, asked = cloud.run(script, *arguments)
  assert result.returncode == 2
  assert re.fullmatch(f'error: .*{re.escape(message)}.*\n', result.stderr)
  assert asked == []


def test_a_local_pod_says_its_commands(cloud):
  lines = dry_run(cloud, 'local_pod.sh', '--processes=3', *EXPERIMENT[1:])
  assert len(lines) == 3
  ports = set()
  for host, line in enumerate(lines):
    words = words_after(line, 'env', 'JAX_PLATFORMS=cpu')
    assert words[0].endswith('--xla_force_host_platform_device_count=4')
    assert words[1:5] == [
      *(str(LAUNCH / 'run.sh'), 'speed_of_light', '--parallel=shard_map'),
      '--prompts=two words.jsonl',
    ]
    ports.add(words[5])
    assert words[6:8] == ['--num_hosts=3', f'--host={host}']
    assert words[-1] == '&'
  [coordinator] = ports
  assert re.fullmatch(r'--coordinator=127.0.0.1:\d+', coordinator)
