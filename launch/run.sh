#!/usr/bin/env bash
# Runs an experiment: launch/run.sh EXPERIMENT [FLAGS].  The first run sets up
# what it needs.  Paths in flags, and results/, are relative to where you are.
set -euo pipefail
# shellcheck source=launch/setup_env.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/setup_env.sh"

list_experiments() {
  echo 'usage: launch/run.sh EXPERIMENT [FLAGS]; EXPERIMENT is one of'
  local file
  for file in "$root"/experiments/*.py; do
    grep -q '^  common\.run(' "$file" || continue
    echo "  $(basename "$file" .py): $(sed -n '1s/"""//gp' "$file")"
  done
}

if (($# == 0)); then
  list_experiments >&2
  exit 2
fi
if [[ $1 == --help ]]; then
  list_experiments
  exit
fi
experiment=$1
shift
if ! grep -qs '^  common\.run(' "$root/experiments/$experiment.py"; then
  echo "error: expected an experiment, got '$experiment'" >&2
  list_experiments >&2
  exit 2
fi
setup_env base
# -P: a folder named experiments where you are must not shadow ours.
exec "$python" -P -m "experiments.$experiment" "$@"
