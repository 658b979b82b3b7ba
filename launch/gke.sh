#!/usr/bin/env bash
# Runs an experiment on a slice of TPUs of a GKE cluster that has JobSet and
# Cloud Storage FUSE:
#
#   launch/gke.sh --image=IMAGE --bucket=BUCKET \
#     [--accelerator=tpu-v5-lite-podslice] [--topology=4x4] \
#     [--chips_per_host=4] [--restarts=3] [--namespace=default] \
#     [--service_account=default] [--dry_run] NAME EXPERIMENT [FLAGS]
#
# IMAGE holds Python 3.11 and this tree in /specjax, set up or not; results go
# to the bucket.  --dry_run prints the command and the manifest.
set -euo pipefail
# shellcheck source=launch/setup_env.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/setup_env.sh"

usage='--image=IMAGE --bucket=BUCKET [FLAGS OF ITS OWN] NAME EXPERIMENT FLAGS'
declare -A fill=(
  [ACCELERATOR]=tpu-v5-lite-podslice [TOPOLOGY]=4x4 [CHIPS]=4 [RESTARTS]=3
  [NAMESPACE]=default [SERVICE_ACCOUNT]=default [IMAGE]='' [BUCKET]=''
)
dry_run=
while [[ ${1-} == --* ]]; do
  case $1 in
    --image=*) fill[IMAGE]=${1#*=} ;;
    --bucket=*) fill[BUCKET]=${1#*=} ;;
    --accelerator=*) fill[ACCELERATOR]=${1#*=} ;;
    --topology=*) fill[TOPOLOGY]=${1#*=} ;;
    --chips_per_host=*) fill[CHIPS]=${1#*=} ;;
    --restarts=*) fill[RESTARTS]=${1#*=} ;;
    --namespace=*) fill[NAMESPACE]=${1#*=} ;;
    --service_account=*) fill[SERVICE_ACCOUNT]=${1#*=} ;;
    --dry_run) dry_run=yes ;;
    *) fail "expected $usage, got '$1'" ;;
  esac
  shift
done
(($# >= 2)) || fail "expected $usage"
fill[NAME]=$1
work=(
  launch/run.sh "$2" "--run_name=$1" --results_dir=/results
  --parallel=shard_map --coordinator=auto "${@:3}"
)
for key in "${!fill[@]}"; do
  [[ ${fill[$key]} =~ ^[A-Za-z0-9][A-Za-z0-9._/:@-]*$ ]] ||
    fail "expected $usage, got '${fill[$key]}' for ${key,,}"
done

# A slice has as many chips as the product of its sides, such as 2x2x4.
[[ ${fill[TOPOLOGY]} =~ ^[1-9][0-9]*(x[1-9][0-9]*)+$ ]] ||
  fail "expected a topology such as 4x4 or 2x2x4, got '${fill[TOPOLOGY]}'"
[[ ${fill[CHIPS]} =~ ^[1-9][0-9]*$ && ${fill[RESTARTS]} =~ ^[0-9]+$ ]] ||
  fail "expected whole numbers, got '${fill[CHIPS]}' and '${fill[RESTARTS]}'"
chips=$((${fill[TOPOLOGY]//x/*}))
((chips % fill[CHIPS] == 0)) ||
  fail "expected hosts of ${fill[CHIPS]} chips to fill ${fill[TOPOLOGY]}"
fill[HOSTS]=$((chips / fill[CHIPS]))

# Words as JSON, which is YAML too.
for word in "${work[@]}"; do
  word=${word//\\/\\\\}
  fill[COMMAND]+="${fill[COMMAND]:+, }\"${word//\"/\\\"}\""
done
manifest=$(<"$root/launch/gke_jobset.yaml")
for key in "${!fill[@]}"; do
  manifest=${manifest//"\${$key}"/"${fill[$key]}"}
done

if [[ $dry_run ]]; then
  echo '# kubectl apply --filename=- <<END'
  echo "$manifest"
  echo '# END'
else
  kubectl apply --filename=- <<<"$manifest"
fi
