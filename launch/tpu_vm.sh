#!/usr/bin/env bash
# Runs an experiment on a slice of Cloud TPUs, of any number of hosts:
#
#   launch/tpu_vm.sh --zone=ZONE --accelerator=v5litepod-16 [--project=ID] \
#     [--spot] [--valid_until=6h] [--runtime=VERSION] [--keep] [--dry_run] \
#     NAME EXPERIMENT [FLAGS]
#
# A queued resource named NAME is made, or used again; this tree is copied and
# set up on all its hosts, the experiment runs on all, and what the first of
# them wrote comes to results/ here.  In the end the resource is deleted,
# whatever came of it all, unless --keep.  --dry_run prints the commands.
set -euo pipefail
# shellcheck source=launch/setup_env.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/setup_env.sh"

usage='--zone=ZONE --accelerator=TYPE [FLAGS OF ITS OWN] NAME EXPERIMENT FLAGS'
zone='' accelerator='' project='' runtime='' valid_until=6h
spot='' keep='' dry_run=''
while [[ ${1-} == --* ]]; do
  case $1 in
    --zone=*) zone=${1#*=} ;;
    --accelerator=*) accelerator=${1#*=} ;;
    --project=*) project=${1#*=} ;;
    --runtime=*) runtime=${1#*=} ;;
    --valid_until=*) valid_until=${1#*=} ;;
    --spot) spot=yes ;;
    --keep) keep=yes ;;
    --dry_run) dry_run=yes ;;
    *) fail "expected $usage, got '$1'" ;;
  esac
  shift
done
(($# >= 2)) && [[ $zone && $accelerator ]] || fail "expected $usage"
name=$1 experiment=$2
shift 2
[[ $name =~ ^[a-z]([a-z0-9-]*[a-z0-9])?$ ]] ||
  fail "expected a name of small letters, digits and dashes, got '$name'"

if [[ ! $runtime ]]; then
  case $accelerator in
    v6e-*) runtime=v2-alpha-tpuv6e ;;
    v5p-*) runtime=v2-alpha-tpuv5 ;;
    v5litepod-*) runtime=v2-alpha-tpuv5-lite ;;
    v[234]-*) runtime=tpu-ubuntu2204-base ;;
    *) fail "expected --runtime for the accelerator '$accelerator', got none" ;;
  esac
fi
where=("--zone=$zone" ${project:+"--project=$project"} --quiet)
archive=${TMPDIR:-/tmp}/specjax-$name.tar.gz

# run COMMAND... runs it, or prints it.
run() {
  if [[ $dry_run ]]; then
    printf '%q ' "$@"
    echo
  else
    "$@"
  fi
}

on_all_hosts() {
  run gcloud compute tpus tpu-vm ssh "$name" --worker=all "${where[@]}" \
    "--command=$1"
}

# look PRETENDED sets `state`: of the resource, '' where there is none.
look() {
  local command=(
    gcloud compute tpus queued-resources describe "$name" "${where[@]}"
    '--format=value(state.state)'
  )
  state=$1
  if [[ $dry_run ]]; then
    run "${command[@]}"
  else
    state=$("${command[@]}" 2>/dev/null) || state=''
  fi
}

delete() {
  run gcloud compute tpus queued-resources delete "$name" --force "${where[@]}"
}

create() {
  run gcloud compute tpus queued-resources create "$name" "--node-id=$name" \
    "--accelerator-type=$accelerator" "--runtime-version=$runtime" \
    "--valid-until-duration=$valid_until" ${spot:+--spot} "${where[@]}"
}

create_or_reuse() {
  look ''
  case $state in
    '') create ;;
    FAILED | SUSPENDED)
      delete
      create
      ;;
  esac
  while look ACTIVE && [[ $state != ACTIVE ]]; do
    case $state in
      '' | FAILED | SUSPEND* | DELETING) fail "$name is ${state:-not there}" ;;
    esac
    sleep "${POLL:-30}"
  done
}

# The images of TPU VMs come with an older Python.
set_up='mkdir -p specjax && tar -xzf specjax.tar.gz -C specjax && cd specjax'
set_up+=' && { python3.11 -c "import ensurepip" || { sudo apt-get update'
set_up+=' && sudo apt-get install --yes python3.11-venv; }; }'
set_up+=' && export PYTHON=python3.11 SPECJAX_EXTRAS=tpu'
set_up+=' && bash -c "source launch/setup_env.sh && setup_env base"'
work=(
  launch/run.sh "$experiment" "--run_name=$name" --results_dir=results
  --parallel=shard_map --coordinator=auto "$@"
)

if [[ $keep ]]; then
  trap 'echo "$name is there, and paid for, until it is deleted" >&2' EXIT
else
  trap delete EXIT
fi
create_or_reuse
run tar -czf "$archive" -C "$root" --exclude=./.venv --exclude=./results .
run gcloud compute tpus tpu-vm scp "$archive" "$name:specjax.tar.gz" \
  --worker=all "${where[@]}"
on_all_hosts "$set_up"
status=0
on_all_hosts "cd specjax && SPECJAX_EXTRAS=tpu $(printf '%q ' "${work[@]}")" ||
  status=$?
run mkdir -p results
run gcloud compute tpus tpu-vm scp --recurse \
  "$name:specjax/results/$experiment" results/ --worker=0 "${where[@]}" || status=$((status ? status : $?))
exit "$status"
