#!/usr/bin/env bash
# Runs the checks: launch/test.sh [PYTEST ARGUMENTS].  The first run sets up
# what it needs.
set -euo pipefail
# shellcheck source=launch/setup_env.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/setup_env.sh"

setup_env base,test
cd -- "$root"
"$python" -m ruff check
"$python" -m ruff format --check
# A file goes to one process: its fixtures, models and programs are shared.  A
# process that dies ends the run, which would hang if another took its place.
exec "$python" -m pytest --numprocesses auto --dist loadfile \
  --no-loadscope-reorder --max-worker-restart 0 "$@"
