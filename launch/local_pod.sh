#!/usr/bin/env bash
# Runs an experiment as the hosts of a pod would, each a process with devices of
# its own on this machine's cores:
#
#   launch/local_pod.sh [--processes=2] [--devices=4] [--dry_run] \
#     EXPERIMENT --run_name=NAME [FLAGS]
#
# The first host speaks, the others into files.  When one fails the others end
# too, in less than a minute, and so does the job.
set -euo pipefail
# shellcheck source=launch/setup_env.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/setup_env.sh"

usage='[--processes=N] [--devices=N] [--dry_run] EXPERIMENT FLAGS'
processes=2 devices=4 dry_run=
while [[ ${1-} == --* ]]; do
  case $1 in
    --processes=*) processes=${1#*=} ;;
    --devices=*) devices=${1#*=} ;;
    --dry_run) dry_run=yes ;;
    *) fail "expected $usage, got '$1'" ;;
  esac
  shift
done
(($#)) || fail "expected $usage, got no experiment"
[[ $processes =~ ^[1-9][0-9]*$ && $devices =~ ^[1-9][0-9]*$ ]] ||
  fail "expected numbers of at least 1, got --processes=$processes" \
    "--devices=$devices"

free_port() {
  local port
  while port=$((20000 + RANDOM % 12000)); do
    (: <"/dev/tcp/127.0.0.1/$port") 2>/dev/null || break
  done
  echo "$port"
}

experiment=$1
shift
port=${PORT:-$(free_port)}
logs=${TMPDIR:-/tmp}/specjax-pod-$port
forced=--xla_force_host_platform_device_count=$devices
run=(
  env JAX_PLATFORMS=cpu "XLA_FLAGS=${XLA_FLAGS:+$XLA_FLAGS }$forced"
  "$root/launch/run.sh" "$experiment" --parallel=shard_map "$@"
  "--coordinator=127.0.0.1:$port" "--num_hosts=$processes"
)

if [[ $dry_run ]]; then
  for ((host = 0; host < processes; host++)); do
    printf '%q ' "${run[@]}" "--host=$host"
    ((host)) && printf '>%q 2>&1 ' "$logs/$host.log"
    echo '&'
  done
  exit
fi

setup_env base # Once, before all of them would.
mkdir -p "$logs"
pids=()
trap 'kill "${pids[@]}" 2>/dev/null' INT TERM
for ((host = 0; host < processes; host++)); do
  if ((host)); then
    "${run[@]}" "--host=$host" >"$logs/$host.log" 2>&1 &
  else
    "${run[@]}" "--host=$host" &
  fi
  pids+=($!)
done

failed=0
for ((left = processes; left; left--)); do
  status=0
  wait -n -p ended "${pids[@]}" || status=$?
  for host in "${!pids[@]}"; do
    [[ ${pids[host]} == "$ended" ]] || continue
    unset "pids[host]"
    ((status)) || continue
    echo "error: host $host ended with status $status" >&2
    ((host == 0)) || echo "  what it said is in $logs/$host.log" >&2
    ((failed)) || failed=$status
  done
done
((failed)) || rm -r "$logs"
exit "$failed"
